import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { checkQueue, checkQuote, engineRequest, videoConstraints } from './model-checks.ts';
import { type Measured, frameSize, quoteVideo } from './video-pricing.ts';
import { type PricedRequest, VideoQueueRequest, VideoQuoteRequest } from './video-requests.ts';

const RATIOS = ['16:9', '9:16', '1:1', '21:9', '4:5', 'adaptive'];

const byResolution = VideoModelSettings.parse({
  task: 'reference-to-video',
  durations: ['1s', '5s', '8s', '30s', '-1', 'auto', 'Auto'],
  resolutions: ['480p', '720p'],
  aspectRatios: RATIOS,
  audio: true,
  audioConfigurable: true,
  pricing: {
    kind: 'duration-resolution',
    rates: { '480p': 0.012, '720p': { silent: 0.03, sound: 0.045 } },
    ratesWithReference: { '480p': 0.008 },
  },
});

const byMegapixel = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['5s'],
  resolutions: ['720p', '480p'],
  aspectRatios: ['16:9', '9:16', '1:1', '21:9', '4:5'],
  pricing: { kind: 'megapixel', perMegapixelSecond: 0.01 },
});

const byTokens = VideoModelSettings.parse({
  task: 'reference-to-video',
  durations: ['1s', '5s', 'auto'],
  resolutions: ['720p', '480p'],
  aspectRatios: RATIOS,
  pricing: { kind: 'tokens', perMillionTokens: 2.5, perMillionTokensWithReference: 1.5 },
});

const tiny = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1s'],
  resolutions: ['480p'],
  aspectRatios: ['16:9'],
  pricing: { kind: 'tokens', perMillionTokens: '0.000001' },
});

const bySecond = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1s', '30s'],
  pricing: { kind: 'second', perSecond: 0.02 },
});

const byGeneration = VideoModelSettings.parse({
  task: 'text-to-video',
  durations: ['1 gen', '5s'],
  audio: true,
  audioConfigurable: true,
  pricing: { kind: 'generation', perGeneration: { silent: 0.28, sound: 0.44 } },
});

const upscale = VideoModelSettings.parse({
  task: 'upscale',
  pricing: {
    kind: 'upscale',
    tiers: [
      { maxHeight: 2160, perSecond: 0.1 },
      { maxHeight: 720, perSecond: 0.013 },
      { maxHeight: 1080, perSecond: 0.025 },
    ],
  },
});

function source(
  seconds: number,
  height: number,
  framesPerSecond = 25,
  width = (height * 16) / 9,
): Measured {
  return { source: { durationMs: seconds * 1_000, width, height, framesPerSecond } };
}

const reference = (seconds: number) => ({ referenceMs: Math.round(seconds * 1_000) });

/** Reads `5s, 480p, 16:9, silent, x2`: duration, resolution, aspect ratio, no sound, upscale factor. */
function requestOf(text: string): PricedRequest {
  const fields = text.split(', ').map((value): object => {
    if (value === 'silent') return { audio: false };
    if (value === 'adaptive' || value.includes(':')) return { aspect_ratio: value };
    if (value.startsWith('x')) return { upscale_factor: Number(value.slice(1)) };
    return value.endsWith('p') ? { resolution: value } : { duration: value };
  });
  return text === '' ? {} : Object.assign({}, ...fields);
}

/** Name, model, request, measurements, and the expected nano-USD, calculated by hand. */
const TABLE: [string, VideoModelSettings, string, Measured, bigint][] = [
  ['5 s at 480p', byResolution, '5s, 480p', {}, 60_000_000n], // 5 × 0.012
  ['8 s with sound by default', byResolution, '8s, 720p', {}, 360_000_000n], // 8 × 0.045
  ['8 s without sound', byResolution, '8s, 720p, silent', {}, 240_000_000n], // 8 × 0.03
  ['30 s, the longest', byResolution, '30s, 720p', {}, 1_350_000_000n], // 30 × 0.045
  // (5 + 7.25) × 0.008
  ['reference rate for input and output', byResolution, '5s, 480p', reference(7.25), 98_000_000n],
  // (5 + 150) × 0.045
  ['reference without own rate', byResolution, '5s, 720p', reference(150), 6_975_000_000n],
  // (6.4 + 6.4) × 0.008
  ['auto, as long as the source', byResolution, 'auto, 480p', reference(6.4), 102_400_000n],
  ['Auto equals auto', byResolution, 'Auto, 480p', reference(6.4), 102_400_000n],
  // (4 + 4) × 0.008 and (30 + 30) × 0.008; the limits of the source are inclusive
  ['-1 with the shortest source', byResolution, '-1, 480p', reference(4), 64_000_000n],
  ['-1 with the longest source', byResolution, '-1, 480p', reference(30), 480_000_000n],
  // 1280 × 720 = 0.9216 MP × 5 × 0.01
  ['megapixels, 720p 16:9', byMegapixel, '5s, 16:9', {}, 46_080_000n],
  ['megapixels, upright', byMegapixel, '5s, 9:16', {}, 46_080_000n],
  ['megapixels, square', byMegapixel, '5s, 1:1', {}, 25_920_000n], // 720 × 720 = 0.5184
  ['megapixels, wide', byMegapixel, '5s, 21:9', {}, 60_480_000n], // 1680 × 720 = 1.2096
  // 853.3 → 854 × 480 = 0.40992
  ['megapixels, the longer side is even', byMegapixel, '5s, 480p, 16:9', {}, 20_496_000n],
  ['megapixels, 4:5', byMegapixel, '5s, 480p, 4:5', {}, 14_400_000n], // 480 × 600 = 0.288
  // 921,600 × 24 × 5 ÷ 1024 = 108,000 tokens × 2.5 ÷ 10^6
  ['tokens without reference', byTokens, '5s, 16:9', {}, 270_000_000n],
  // 921,600 × 24 × 15 ÷ 1024 = 324,000 × 1.5 ÷ 10^6
  ['tokens with 10 s of reference', byTokens, '5s, 16:9', reference(10), 486_000_000n],
  // 108,000 × 1.5 ÷ 10^6
  ['tokens with a reference of 0 s', byTokens, '5s, 16:9', reference(0), 162_000_000n],
  // the largest frame of the model is 21:9: 1,209,600 × 24 × 12 ÷ 1024 = 340,200 × 1.5 ÷ 10^6
  ['tokens, adaptive: largest frame', byTokens, 'auto, adaptive', reference(6), 510_300_000n],
  // 409,920 × 24 ÷ 1024 = 9,607.5 tokens × 2.5 ÷ 10^6 = 0.02401875
  ['tokens, a half token counts', byTokens, '1s, 480p, 16:9', {}, 24_018_750n],
  // 9,607.5 × 1,000 nano ÷ 10^6 = 9.6075
  ['one rounding, half up, at the end', tiny, '1s, 16:9', {}, 10n],
  ['per second, 1 s', bySecond, '1s', {}, 20_000_000n],
  ['per second, 30 s', bySecond, '30s', {}, 600_000_000n],
  ['per generation', byGeneration, '1 gen', {}, 440_000_000n],
  ['per generation, silent, any length', byGeneration, '5s, silent', {}, 280_000_000n],
  ['upscale, factor 2 by default', upscale, '', source(10, 360), 130_000_000n], // 10 × 0.013
  ['upscale, 722 pixels high', upscale, 'x2', source(10, 361), 250_000_000n], // 10 × 0.025
  ['upscale by 4', upscale, 'x4', source(10, 540), 1_000_000_000n], // 10 × 0.10
  ['upscale by 1', upscale, 'x1', source(10, 720), 130_000_000n],
  // 2 × 3840x360 has 5,529,600 pixels: more than 1920x1080, fewer than 3840x2160.
  ['upscale, very wide: by pixels', upscale, '', source(10, 360, 25, 3840), 1_000_000_000n],
  ['upscale, slightly wider than its tier', upscale, '', source(10, 360, 25, 641), 250_000_000n],
  ['upscale, upright: by height', upscale, '', source(10, 360, 25, 200), 130_000_000n],
  ['upscale, 48 frames per second are not fast', upscale, '', source(10, 360, 48), 130_000_000n],
  ['upscale, 59.94 frames per second: double', upscale, '', source(10, 360, 59.94), 260_000_000n],
  ['upscale, 12.345 s', upscale, '', source(12.345, 360), 160_485_000n], // 12.345 × 0.013
  ['upscale, the longest source', upscale, 'x2', source(300, 1080), 30_000_000_000n], // 300 × 0.10
];

describe('`quoteVideo` returns the price calculated by hand', () => {
  for (const [name, model, request, measured, expected] of TABLE) {
    test(name, () => assert.equal(quoteVideo(model, requestOf(request), measured), expected));
  }

  test('a matched length needs a source of 4 to 30 seconds', () => {
    const request = { duration: 'auto', resolution: '480p' } as const;
    for (const measured of [{}, reference(3.999), reference(30.001), reference(0)]) {
      assert.throws(() => quoteVideo(byResolution, request, measured), { code: 'INVALID_REQUEST' });
    }
  });

  test('a source above the limit is rejected with 422, a result above the largest tier with 400', () => {
    const code = (measured: Measured): string => {
      try {
        quoteVideo(upscale, { upscale_factor: 4 }, measured);
      } catch (error) {
        if (error instanceof Fault) return `${error.status} ${error.code}`;
      }
      return 'none';
    };
    assert.equal(code(source(300.001, 360)), '422 VIDEO_DURATION_TOO_LONG');
    assert.equal(code(source(1, 540, 25, 961)), '400 INVALID_REQUEST');
    assert.equal(code(source(10, 541)), '400 INVALID_REQUEST');
  });

  test('`frameSize` uses the default resolution and even sides', () => {
    assert.deepEqual(frameSize(byMegapixel, { aspect_ratio: '9:16' }), {
      width: 720,
      height: 1280,
    });
    assert.deepEqual(frameSize(byMegapixel, { resolution: '480p' }), { width: 1120, height: 480 });
    assert.equal(frameSize(upscale, {}), undefined);
  });
});

/** The field names in the `details` of the error. */
function fieldsOf(check: () => void): string[] {
  try {
    check();
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    assert.equal(error.status, 400);
    return Object.keys(error.options.details as object).filter((key) => key !== '_errors');
  }
  return [];
}

describe('limits of a model', () => {
  const quote = (model: VideoModelSettings, request: object): string[] =>
    fieldsOf(() => checkQuote(model, VideoQuoteRequest.parse({ model: 'm', ...request })));
  const queue = (model: VideoModelSettings, request: object): string[] =>
    fieldsOf(() => checkQueue(model, VideoQueueRequest.parse({ model: 'm', ...request })));

  test('each kind of pricing needs its fields in a quote', () => {
    assert.deepEqual(quote(byResolution, {}), ['duration', 'resolution']);
    assert.deepEqual(quote(byMegapixel, {}), ['duration', 'aspect_ratio']);
    assert.deepEqual(quote(byTokens, { duration: '5s' }), ['aspect_ratio']);
    assert.deepEqual(quote(bySecond, {}), ['duration']);
    assert.deepEqual(quote(bySecond, { duration: '1s' }), []);
    assert.deepEqual(quote(byGeneration, { duration: '1 gen' }), []);
    assert.deepEqual(quote(upscale, {}), ['video_url']);
    assert.deepEqual(quote(upscale, { video_url: 'https://example.com/a.mp4' }), []);
  });

  test('every unsupported value is named', () => {
    assert.deepEqual(quote(bySecond, { duration: '2s', resolution: '720p', aspect_ratio: '1:1' }), [
      'duration',
      'resolution',
      'aspect_ratio',
    ]);
    assert.deepEqual(quote(bySecond, { duration: '1s', upscale_factor: 2 }), ['upscale_factor']);
    assert.deepEqual(quote(upscale, { resolution: '2x', video_url: 'https://a.example/b' }), [
      'resolution',
    ]);
    const loud = { ...byGeneration, audioConfigurable: false };
    assert.deepEqual(quote(loud, { duration: '5s', audio: false }), ['audio']);
  });

  test('references, and aspect ratios that follow them, need a reference model', () => {
    const fixed = { duration: '5s', resolution: '480p' };
    assert.deepEqual(quote(bySecond, { duration: '1s', reference_video_total_duration: 5 }), [
      'reference_video_total_duration',
    ]);
    assert.deepEqual(quote(byResolution, { ...fixed, aspect_ratio: 'adaptive' }), ['aspect_ratio']);
    assert.deepEqual(
      quote(byResolution, {
        ...fixed,
        aspect_ratio: 'adaptive',
        reference_video_total_duration: 5,
      }),
      [],
    );
    const short = { ...byResolution, maxReferenceSeconds: 15 };
    assert.deepEqual(quote(short, { ...fixed, reference_video_total_duration: 16 }), [
      'reference_video_total_duration',
    ]);
  });

  test('a queue request needs a prompt and the media of its task, an upscale only a video', () => {
    assert.deepEqual(queue(bySecond, { duration: '1s' }), ['prompt']);
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x'.repeat(2_501) }), ['prompt']);
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x'.repeat(2_500) }), []);
    const still = { ...bySecond, task: 'image-to-video' as const };
    assert.deepEqual(queue(still, { duration: '1s', prompt: 'x' }), ['image_url']);
    assert.deepEqual(queue(upscale, { video_url: 'data:video/mp4;base64,AAAA' }), []);
    const urls = ['https://example.com/a.mp4'];
    assert.deepEqual(queue(bySecond, { duration: '1s', prompt: 'x', reference_video_urls: urls }), [
      'reference_video_urls',
    ]);
  });

  test('`videoConstraints` has the model types of the API', () => {
    const type = (model: VideoModelSettings): unknown => Object.entries(videoConstraints(model))[0];
    assert.deepEqual(type(bySecond), ['model_type', 'text-to-video']);
    assert.deepEqual(type(upscale), ['model_type', 'video']);
  });
});

test('no other member can request a larger, longer or second video than the quoted one', () => {
  const beyond = { n: 4, num_frames: 900, fps: 60, num_outputs: 2 };
  const large = { width: 3_840, height: 2_160, image_size: '3840x2160', megapixels: 8 };
  const sent = (model: VideoModelSettings, fields: object) => {
    const request = { model: 'm', prompt: 'p', seed: 7, ...fields, ...beyond, ...large };
    return engineRequest(model, VideoQueueRequest.parse(request), {});
  };
  const priced = { resolution: '480p', aspect_ratio: '16:9' };
  assert.deepEqual(sent(byMegapixel, { duration: '5s', ...priced }), {
    prompt: 'p',
    seed: 7,
    ...priced,
    seconds: '5',
    size: '854x480',
  });
  const video_url = 'data:video/mp4;base64,AAAA';
  const upscaled = sent(upscale, { video_url, upscale_factor: 2 });
  assert.deepEqual(upscaled, { prompt: 'p', seed: 7, upscale_factor: 2 });
  // Without resolutions, no price depends on the size.
  assert.deepEqual(sent(bySecond, { duration: '1s' }), {
    prompt: 'p',
    seed: 7,
    seconds: '1',
    ...large,
  });
});

test('a video without `aspect_ratio` has the first one of its model, not the largest', () => {
  const sent = (fields: object) =>
    engineRequest(
      byResolution,
      VideoQueueRequest.parse({ model: 'm', prompt: 'p', ...fields }),
      {},
    );
  const wanted = { duration: '5s', resolution: '720p' };
  assert.equal(sent(wanted)['size'], '1280x720');
  assert.equal(sent({ ...wanted, aspect_ratio: '21:9' })['size'], '1680x720');
});

describe('contradicting settings are rejected', () => {
  const base = { task: 'text-to-video', durations: ['5s'] };
  const bySecond1 = { kind: 'second', perSecond: 1 };
  const cases: [string, object][] = [
    ['an upscale model without tiers', { task: 'upscale', pricing: bySecond1 }],
    ['no duration', { task: 'text-to-video', pricing: bySecond1 }],
    [
      'a resolution without a rate',
      { ...base, resolutions: ['720p'], pricing: { kind: 'duration-resolution', rates: {} } },
    ],
    [
      'a price by pixels without aspect ratios',
      { ...base, resolutions: ['720p'], pricing: { kind: 'megapixel', perMegapixelSecond: 1 } },
    ],
    ['1 gen priced by the second', { ...base, durations: ['1 gen'], pricing: bySecond1 }],
    ['auto without a source', { ...base, durations: ['auto'], pricing: bySecond1 }],
    ['31 seconds', { ...base, durations: ['31s'], pricing: bySecond1 }],
  ];
  for (const [name, settings] of cases) {
    test(name, () => assert.equal(VideoModelSettings.safeParse(settings).success, false));
  }
});
