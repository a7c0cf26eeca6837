import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holdsNoLoop } from '../../test/app/held-loop.ts';
import {
  VideoCompleteRequest,
  VideoQueueRequest,
  VideoQuoteRequest,
  VideoRetrieveRequest,
  mediaUrlsOf,
} from './video-requests.ts';

const url = 'https://example.com/a.png';

function takesQuote(fields: object): boolean {
  return VideoQuoteRequest.safeParse({ model: 'm', ...fields }).success;
}

function takesQueue(fields: object): boolean {
  return VideoQueueRequest.safeParse({ model: 'm', prompt: 'p', duration: '5s', ...fields })
    .success;
}

test('a quote accepts exactly the values of the specification', () => {
  for (let second = 1; second <= 30; second += 1) assert.ok(takesQuote({ duration: `${second}s` }));
  for (const duration of ['-1', '1 gen', 'auto', 'Auto']) assert.ok(takesQuote({ duration }));
  for (const duration of ['0s', '31s', '5', 'AUTO', 5]) assert.ok(!takesQuote({ duration }));
  for (const resolution of ['256p', '2K', '768P', 'true_1080p', '4x'])
    assert.ok(takesQuote({ resolution }));
  assert.ok(!takesQuote({ resolution: '2k' }));
  for (const ratio of ['9:21', 'adaptive', 'auto']) assert.ok(takesQuote({ aspect_ratio: ratio }));
  assert.ok(!takesQuote({ aspect_ratio: '16/9' }));
  for (const factor of [1, 2, 4]) assert.ok(takesQuote({ upscale_factor: factor }));
  assert.ok(!takesQuote({ upscale_factor: 3 }) && !takesQuote({ upscale_factor: '2' }));
  for (const total of [0, 7.5, 150])
    assert.ok(takesQuote({ reference_video_total_duration: total }));
  assert.ok(!takesQuote({ reference_video_total_duration: 150.1 }));
  assert.ok(!takesQuote({ reference_video_total_duration: -1 }));
  assert.ok(takesQuote({ video_url: 'data:video/mp4;base64,AAAA' }));
  assert.ok(!takesQuote({ video_url: 'file:///etc/passwd' }) && !takesQuote({ video_url: 'x' }));
});

test('null equals a missing field, and unknown fields are kept', () => {
  const quote = VideoQuoteRequest.parse({ model: 'm', duration: null, seed: 7 });
  assert.deepEqual(quote, { model: 'm', seed: 7 });
  assert.ok(takesQueue({ image_url: null, negative_prompt: null }));
});

test('a queue request limits the length of its lists', () => {
  const list = (count: number): string[] => Array.from({ length: count }, () => url);
  const bounds: [string, number, object][] = [
    ['reference_image_urls', 30, {}],
    ['reference_video_urls', 10, {}],
    ['reference_audio_urls', 10, { reference_image_urls: [url] }],
    ['reference_document_urls', 1, {}],
    ['scene_image_urls', 4, {}],
  ];
  for (const [field, most, others] of bounds) {
    assert.ok(takesQueue({ [field]: list(most), ...others }), field);
    assert.ok(!takesQueue({ [field]: list(most + 1), ...others }), field);
  }
  for (const field of ['further_urls', 'further']) {
    const further = (count: number) => list(count).map((image_url) => ({ image_url }));
    const given = (count: number) => (field === 'further' ? further(count) : list(count));
    assert.ok(takesQueue({ [field]: given(100) }), field);
    assert.ok(!takesQueue({ [field]: given(101) }), field);
  }
  const elements = (count: number): object[] =>
    Array.from({ length: count }, () => ({
      frontal_image_url: url,
      reference_image_urls: list(3),
    }));
  assert.ok(takesQueue({ elements: elements(4) }) && !takesQueue({ elements: elements(5) }));
  assert.ok(!takesQueue({ elements: [{ reference_image_urls: list(4) }] }));
});

test('reference audio needs a reference image or video', () => {
  assert.ok(!takesQueue({ reference_audio_urls: [url] }));
  assert.ok(takesQueue({ reference_audio_urls: [url], reference_video_urls: [url] }));
});

test('keyframes are unique and within the duration times 24', () => {
  const frames = (...indexes: number[]): object => ({
    keyframes: indexes.map((frame_index) => ({ image_url: url, frame_index })),
  });
  assert.ok(takesQueue(frames(0, 60, 120)));
  assert.ok(!takesQueue(frames(5, 5)));
  assert.ok(!takesQueue(frames(121)));
  assert.ok(!takesQueue(frames(-1)));
  assert.ok(!takesQueue(frames(...Array.from({ length: 11 }, (_, index) => index))));
});

test('retrieve and complete reject unknown fields', () => {
  assert.deepEqual(VideoRetrieveRequest.parse({ queue_id: 'q' }), {
    queue_id: 'q',
    delete_media_on_completion: false,
  });
  assert.ok(!VideoRetrieveRequest.safeParse({ queue_id: 'q', wait: true }).success);
  assert.ok(VideoCompleteRequest.safeParse({ queue_id: 'q', model: 'm' }).success);
  assert.ok(!VideoCompleteRequest.safeParse({ queue_id: 'q' }).success);
  assert.ok(!VideoCompleteRequest.safeParse({ queue_id: 'q', model: 'm', x: 1 }).success);
});

test('`mediaUrlsOf` finds every media field with its path', () => {
  const request = VideoQueueRequest.parse({
    model: 'm',
    prompt: 'https://example.com/not-media',
    duration: '5s',
    image_url: url,
    reference_image_urls: [url, url],
    elements: [{ video_url: url }],
    keyframes: [{ image_url: url, frame_index: 3 }],
    webhook_url: 'https://example.com/hook',
    consents: { proof_url: url },
  });
  assert.deepEqual(
    mediaUrlsOf(request).map(({ role }) => role),
    [
      'image_url',
      'reference_image_urls.0',
      'reference_image_urls.1',
      'elements.0.video_url',
      'keyframes.0.image_url',
    ],
  );
});

test('`mediaUrlsOf` recognises a media field by the end of its name', () => {
  const base = { model: 'm', prompt: 'p', duration: '5s' };
  const rolesOf = (fields: object) =>
    mediaUrlsOf(VideoQueueRequest.parse({ ...base, ...fields })).map(({ role }) => role);
  const named = { a_url: url, _url: url, aBc_image_url: url, 'x.y_urls': [url], b_url: { 3: url } };
  assert.deepEqual(rolesOf({ extra: named }), [
    'extra.a_url',
    'extra._url',
    'extra.aBc_image_url',
    'extra.x.y_urls.0',
    'extra.b_url.3',
  ]);
  const others = { url, aBc_url: url, a_url_b: url, a_URL: url, 'a_url.b': url, é_url: url };
  assert.deepEqual(rolesOf({ extra: others }), []);
});

test('`mediaUrlsOf` reads long names in linear time', async () => {
  const base = { model: 'm', prompt: 'p', duration: '5s' };
  const children = Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [`k${at}`, url]));
  const names = [`${'_'.repeat(1_000_000)}-`, `${'a_url'.repeat(200_000)}!`, '1.'.repeat(500_000)];
  for (const name of names) {
    for (const value of [url, children]) {
      const request = VideoQueueRequest.parse({ ...base, [name]: value });
      assert.deepEqual(await holdsNoLoop(async () => mediaUrlsOf(request)), []);
    }
  }
});
