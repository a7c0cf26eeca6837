/**
 * Media from the outside, with the engines that run on any machine: photographs cut out, videos
 * quoted, queued, retrieved and completed, clips written down; and everything hostile refused
 * without a charge. The audit is clean at the end of each suite.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import OpenAI, { APIError, toFile } from 'openai';
import { sharp } from '../support/sharp.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { receiptOf, transactionsOf } from '../../src/billing/ledger/ledger.ts';
import { wavHeader } from '../../src/engines/media/wav.ts';
import {
  makeClip,
  openMedia,
  portraitJpeg,
  telephoneHeader,
  toneWav,
  toySpeech,
} from '../media/clips.ts';
import { pngHead } from '../media/png-head.ts';
import { type Site, endless, openSite } from '../media/site.ts';
import { fastClock } from '../support/fast-clock.ts';
import { until } from '../support/until.ts';
import { portraitMaskSvg, portraitSvg } from '../support/engine-fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'farebox-media-'));
/** Far above what a video takes on any machine. */
const MOST_VIDEO_MS = 120_000;
const GUARD = `limits: { guard: { failures: 100000 }, plans: { staff: { image: 1000, audio: 1000, videoQueue: 1000, videoRetrieve: 100000 } } }`;
let site: Site;
let farebox: TestApp;
let clip: Buffer;

before(async () => {
  site = await openSite();
  clip = await makeClip(folder, {
    letters: 'ab ba',
    width: 160,
    height: 120,
    seconds: 3,
    framesPerSecond: 12,
  });
  site.pages.set('/clip.mp4', clip);
  farebox = await startTestApp({
    media: true,
    // The server polls a job every few seconds.
    clock: fastClock(3),
    yaml: `${GUARD}
fetch: { allow: [127.0.0.0/8] }
media: { ${await toySpeech(folder)}, downloadTimeoutSeconds: 6, maxDownloadMb: 20, maxTranscriptionSeconds: 60 }
video: { webhooks: true, webhookSecret: a-secret-of-tests }
`,
  });
  const offered = ['farebox-cutout', 'farebox-upscale', 'farebox-transcription'];
  await until(
    () => offered.every((id) => farebox.app.catalog.get(id) !== undefined),
    'that the engines are up',
  );
});
after(async () => {
  await farebox.audit();
  await farebox.stop();
  await site.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Sent {
  readonly path: string;
  readonly body?: unknown;
  readonly key?: string | undefined;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

function send({
  path,
  body,
  key = farebox.owner.secret,
  method = 'POST',
  headers = {},
}: Sent): Promise<Response> {
  const isForm = body instanceof FormData;
  return fetch(`${farebox.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(isForm || body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) }),
  });
}

async function json(answer: Response): Promise<Record<string, unknown>> {
  return (await answer.json()) as Record<string, unknown>; // the tests check single fields
}

async function spentBy(accountId: string, credit: bigint): Promise<bigint> {
  const { usdNano } = await farebox.app.stores.ledger.balances(accountId);
  return credit - usdNano;
}

const ownerSpent = (): Promise<bigint> =>
  spentBy(farebox.owner.accountId, farebox.owner.creditNano);

function formWith(field: string, bytes: Buffer): FormData {
  const form = new FormData();
  form.set(field, new Blob([new Uint8Array(bytes)]), 'photo');
  return form;
}

async function assertCut(png: Buffer, width = 640, height = 480): Promise<void> {
  const { data, info } = await sharp(png).ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  assert.deepEqual([info.width, info.height, info.channels], [width, height, 4]);
  const alpha = (x: number, y: number): number =>
    data[(Math.round(y * height) * width + Math.round(x * width)) * 4 + 3]!;
  assert.ok(alpha(0.5, 0.4) > 240);
  assert.ok(alpha(0.05, 0.05) < 10);
}

describe('POST /image/background-remove', () => {
  const path = '/image/background-remove';

  test('a file, base64, a data URL and a URL are cut out at full size for 0.03 USD each', async () => {
    const photo = await portraitJpeg();
    site.pages.set('/me.jpg', photo);
    const base64 = photo.toString('base64');
    const before = await ownerSpent();
    const answers = [
      await send({ path, body: formWith('image', photo) }),
      await send({ path, body: { image: base64 } }),
      await send({ path, body: { image: `data:image/jpeg;base64,${base64}` } }),
      await send({ path, body: { image_url: `${site.url}/me.jpg` } }),
    ];
    for (const answer of answers) {
      assert.equal(answer.status, 200, await answer.clone().text());
      assert.equal(answer.headers.get('content-type'), 'image/png');
      assert.equal(answer.headers.get('x-svc-model-id'), 'farebox-cutout');
      assert.equal(answer.headers.get('x-svc-model-router'), 'embedded-cutout/person');
      await assertCut(Buffer.from(await answer.arrayBuffer()));
    }
    assert.equal((await ownerSpent()) - before, 120_000_000n);
  });

  test('the edge is soft and follows the true outline', async () => {
    const answer = await send({ path, body: formWith('image', await portraitJpeg()) });
    const cut = await sharp(Buffer.from(await answer.arrayBuffer()))
      .extractChannel('alpha')
      .raw()
      .toBuffer();
    const truth = await sharp(Buffer.from(portraitMaskSvg())).greyscale().raw().toBuffer();
    let both = 0;
    let either = 0;
    let soft = 0;
    for (const [index, real] of truth.entries()) {
      const mine = cut[index]!;
      if (mine > 127 && real > 127) both += 1;
      if (mine > 127 || real > 127) either += 1;
      if (mine > 8 && mine < 247) soft += 1;
    }
    assert.ok(both / either > 0.99, `intersection over union ${both / either}`);
    assert.ok(soft > 1_000 && soft < 0.05 * truth.length, `${soft} soft pixels`);
  });

  test('an orientation tag is applied', async () => {
    const turned = await sharp(await portraitJpeg())
      .rotate(270)
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    const answer = await send({ path, body: formWith('image', turned) });
    assert.equal(answer.status, 200);
    await assertCut(Buffer.from(await answer.arrayBuffer()));
  });

  test('an image without a person gets an error that names the subject of the model, without a charge', async () => {
    const [width, height] = [640, 480];
    const noise = sharp({
      create: {
        width,
        height,
        channels: 3,
        background: '#204060',
        noise: { type: 'gaussian', mean: 120, sigma: 30 },
      },
    });
    const sky = sharp({ create: { width, height, channels: 3, background: '#87ceeb' } });
    const before = await ownerSpent();
    for (const picture of [noise, sky]) {
      const answer = await send({ path, body: formWith('image', await picture.jpeg().toBuffer()) });
      const { code, error } = (await answer.json()) as { code: string; error: string };
      assert.deepEqual([answer.status, code], [422, 'SUBJECT_NOT_FOUND']);
      assert.match(
        error,
        /(?:removed the whole|removed less than 2 %) .*Cuts out people in photographs/,
      );
    }
    assert.equal(await ownerSpent(), before);
  });

  const plain = (text: string): Buffer => Buffer.from(text);
  const solid = (width: number, height: number) =>
    sharp({ create: { width, height, channels: 3, background: '#808080' } });
  const isoFile = (brand: string): Buffer =>
    Buffer.concat([Buffer.from([0, 0, 0, 24]), plain(`ftyp${brand}`), Buffer.alloc(64, 7)]);
  const HOSTILE: [string, () => Buffer | Promise<Buffer>, number, string][] = [
    ['nothing at all', () => Buffer.alloc(0), 400, 'CORRUPTED_IMAGE'],
    ['text', () => plain('this is certainly not an image'), 415, 'INVALID_CONTENT_TYPE'],
    ['an SVG', () => plain(portraitSvg()), 415, 'INVALID_CONTENT_TYPE'],
    [
      'an SVG that reads a file',
      () => plain('<svg><image href="file:///etc/passwd"/></svg>'),
      415,
      'INVALID_CONTENT_TYPE',
    ],
    ['an HTML page', () => plain('<!doctype html><p>no image</p>'), 415, 'INVALID_CONTENT_TYPE'],
    ['a PDF', () => plain(`%PDF-1.7${'\n'.repeat(50)}%%EOF`), 415, 'INVALID_CONTENT_TYPE'],
    ['a ZIP', () => plain(`PK\x03\x04${'x'.repeat(64)}`), 415, 'INVALID_CONTENT_TYPE'],
    ['an MP4', () => isoFile('isom'), 415, 'INVALID_CONTENT_TYPE'],
    ['a HEIC', () => isoFile('heic'), 415, 'INVALID_CONTENT_TYPE'],
    ['an AVIF brand with rubbish', () => isoFile('avif'), 400, 'CORRUPTED_IMAGE'],
    [
      'a JPEG start with rubbish',
      () => Buffer.concat([Buffer.from([0xff, 0xd8, 0xff]), Buffer.alloc(4096, 0x55)]),
      400,
      'CORRUPTED_IMAGE',
    ],
    [
      'a JPEG cut in half',
      async () => (await portraitJpeg()).subarray(0, 9_000),
      400,
      'CORRUPTED_IMAGE',
    ],
    ['a PNG head alone', () => pngHead(640, 480), 400, 'CORRUPTED_IMAGE'],
    [
      'a PNG with rubbish behind its head',
      () => Buffer.concat([pngHead(640, 480), Buffer.alloc(5_000, 0x33)]),
      400,
      'CORRUPTED_IMAGE',
    ],
    ['a PNG of 100000 by 100000', () => pngHead(100_000, 100_000), 422, 'IMAGE_TOO_LARGE'],
    ['a PNG one pixel too large', () => pngHead(33_177_601, 1), 422, 'IMAGE_TOO_LARGE'],
    ['one pixel', () => solid(1, 1).png().toBuffer(), 400, 'IMAGE_TOO_SMALL'],
    ['255 by 256 pixels', () => solid(255, 256).jpeg().toBuffer(), 400, 'IMAGE_TOO_SMALL'],
    ['a tall thin bomb', () => solid(1, 16_383).webp().toBuffer(), 400, 'IMAGE_TOO_SMALL'],
    [
      'a GIF without frames',
      () =>
        Buffer.concat([plain('GIF89a'), Buffer.from([0, 2, 0, 2, 0, 0, 0, 0x3b]), Buffer.alloc(9)]),
      400,
      'CORRUPTED_IMAGE',
    ],
    [
      'a TIFF that points at itself',
      () => Buffer.concat([plain('II*\0'), Buffer.from([8, 0, 0, 0, 1, 0]), Buffer.alloc(40)]),
      400,
      'CORRUPTED_IMAGE',
    ],
    ['25 MB of zeros', () => Buffer.alloc(25_000_000), 413, 'PAYLOAD_TOO_LARGE'],
  ];

  for (const [name, make, status, code] of HOSTILE) {
    test(`${name} is ${status} ${code} and costs nothing`, async () => {
      const before = await ownerSpent();
      const answer = await send({ path, body: formWith('image', await make()) });
      const body = await json(answer);
      assert.deepEqual([answer.status, body['code']], [status, code], String(body['error']));
      assert.equal(await ownerSpent(), before);
    });
  }

  test('a bomb behind image_url is 422 like one that is sent, and costs nothing', async () => {
    const before = await ownerSpent();
    const bomb = pngHead(100_000, 100_000);
    site.pages.set('/bomb.png', bomb);
    const inline = `data:image/png;base64,${bomb.toString('base64')}`;
    for (const image_url of [inline, `${site.url}/bomb.png`]) {
      const asked = { prompt: 'x', duration: '1s', resolution: '360p', aspect_ratio: '1:1' };
      const still = { model: 'farebox-still-to-video', ...asked, image_url };
      for (const [path, body] of [
        ['/image/background-remove', { image_url }],
        ['/video/queue', still],
      ] as const) {
        const answer = await send({ path, body });
        const said = await json(answer);
        assert.deepEqual([answer.status, said['code']], [422, 'IMAGE_TOO_LARGE'], path);
      }
    }
    assert.equal(await ownerSpent(), before);
  });

  test('invalid forms and content types are rejected', async () => {
    const photo = formWith('image', await portraitJpeg()).get('image') as File;
    const both = (field: string, text: string): FormData => {
      const form = new FormData();
      form.append('image', photo, 'photo');
      form.append(field, text);
      return form;
    };
    const refused: [unknown, number][] = [
      [{}, 400],
      [{ image: 'aGk=', image_url: `${site.url}/me.jpg` }, 400],
      [{ image: '' }, 400],
      [{ image: '?!' }, 400],
      [{ image_url: 'file:///etc/passwd' }, 400],
      [{ image_url: 'http://169.254.169.254/latest/meta-data' }, 400],
      [{ image_url: `${site.url}/missing.png` }, 400],
      [formWith('file', await portraitJpeg()), 400],
      [both('image_url', `${site.url}/me.jpg`), 400],
      [both('image', 'aGk='), 400],
    ];
    for (const [body, status] of refused) {
      const answer = await send({ path, body });
      assert.equal(answer.status, status, JSON.stringify(await answer.json()));
    }
    const text = await fetch(farebox.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${farebox.owner.secret}`, 'content-type': 'text/plain' },
      body: 'hello',
    });
    assert.equal(text.status, 415);
  });

  test('nothing is fetched without credit, and without a key the 402 has payment options', async () => {
    const poor = await farebox.account('0.001');
    const asked = site.asked.length;
    const body = { image_url: `${site.url}/me.jpg` };
    assert.equal((await send({ path, body, key: poor.secret })).status, 402);
    assert.equal(site.asked.length, asked);
    const open = await fetch(farebox.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    assert.equal(open.status, 402);
  });
});

describe('the life of a video', () => {
  const still = async () => ({
    model: 'farebox-still-to-video',
    prompt: 'pan left',
    duration: '1s',
    resolution: '360p',
    aspect_ratio: '1:1',
    image_url: `data:image/jpeg;base64,${(await portraitJpeg()).toString('base64')}`,
  });
  const queued = async (body: object, key?: string): Promise<Record<string, unknown>> => {
    const answer = await send({ path: '/video/queue', body, key });
    const said = await json(answer);
    assert.equal(answer.status, 200, JSON.stringify(said));
    return said;
  };
  const finished = async (body: object, key?: string): Promise<Response> => {
    const endMs = performance.now() + MOST_VIDEO_MS;
    while (performance.now() < endMs) {
      const answer = await send({ path: '/video/retrieve', body, key });
      if (answer.headers.get('content-type') !== 'application/json; charset=utf-8') return answer;
      const said = await json(answer.clone());
      if (said['status'] !== 'PROCESSING') return answer;
      assert.ok(Number(said['average_execution_time']) > 0);
      assert.ok(Number(said['progress']) >= 0 && Number(said['progress']) <= 1);
      assert.ok(Number(said['remaining_time']) >= 0);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return assert.fail('The video was not made');
  };

  test('a video is charged its quote once, and its media is deleted at the end', async () => {
    const user = await farebox.account('1');
    const credit = 1_000_000_000n;
    const body = await still();
    const { image_url: _, prompt: _p, ...asked } = body;
    const quote = await json(await send({ path: '/video/quote', body: asked, key: '' }));
    assert.deepEqual(quote, { quote: 0.001 });
    const { queue_id: id, model, quote: held } = await queued(body, user.secret);
    assert.deepEqual([model, held], ['farebox-still-to-video', 0.001]);
    assert.match(String(id), /^[0-9a-f-]{36}$/);
    // A key pays when it queues; what fails is given back.
    assert.equal(await spentBy(user.accountId, credit), 1_000_000n);
    const running = await receiptOf(farebox.app.stores.store, user.accountId, String(id));
    assert.deepEqual([running?.status, running?.usd_nano], ['running', 1_000_000n]);
    const list1 = await send({ path: '/video/jobs', method: 'GET', key: user.secret });
    assert.equal(list1.headers.get('x-svc-balance-usd'), '0.999000');
    await list1.body?.cancel();
    const answer = await finished({ queue_id: id }, user.secret);
    assert.equal(answer.headers.get('content-type'), 'video/mp4');
    const bytes = Buffer.from(await answer.arrayBuffer());
    assert.equal(String(bytes.length), answer.headers.get('content-length'));
    assert.equal(bytes.toString('latin1', 4, 8), 'ftyp');
    assert.equal(await spentBy(user.accountId, credit), 1_000_000n);
    const other = await farebox.account('1');
    const stranger = await send({
      path: '/video/retrieve',
      body: { model, queue_id: id },
      key: other.secret,
    });
    assert.equal(stranger.status, 404);
    const complete = { path: '/video/complete', body: { model, queue_id: id }, key: user.secret };
    assert.deepEqual(await json(await send({ ...complete, key: user.secret })), { success: true });
    assert.deepEqual(await json(await send(complete)), { success: true });
    assert.equal((await send({ ...complete, key: other.secret })).status, 404);
    const gone = await send({ path: '/video/retrieve', body: { queue_id: id }, key: user.secret });
    assert.equal(gone.status, 404);
    const rows = await transactionsOf(farebox.app.stores.store, user.accountId, {
      limit: 10,
      offset: 0,
    });
    assert.deepEqual(
      rows.map((row) => [row.kind, row.amount_nano]),
      [
        ['CHARGE', 1_000_000n],
        ['CREDIT', 1_000_000_000n],
      ],
    );
    const list = await json(await send({ path: '/video/jobs', method: 'GET', key: user.secret }));
    const [job] = list['data'] as Record<string, unknown>[];
    assert.deepEqual(
      [job?.['queue_id'], job?.['status'], job?.['progress'], job?.['quote']],
      [id, 'COMPLETED', 1, 0.001],
    );
    assert.equal(
      (
        (await json(await send({ path: '/video/jobs', method: 'GET', key: other.secret })))[
          'data'
        ] as unknown[]
      ).length,
      0,
    );
  });

  test('`delete_media_on_completion` deletes a delivered video; a clip is upscaled', async () => {
    const body = { model: 'farebox-upscale', video_url: `${site.url}/clip.mp4`, upscale_factor: 2 };
    const quote = await json(await send({ path: '/video/quote', body, key: '' }));
    const seconds = (await (await openMedia()).probe(join(folder, 'clip.mp4'), call))
      .durationSeconds;
    assert.equal(quote['quote'], (Math.round(seconds * 1_000) * 1_000) / 1e9);
    const { queue_id: id } = await queued(body);
    const take = { queue_id: id, delete_media_on_completion: true };
    const answer = await finished(take);
    assert.equal(
      answer.status,
      200,
      await answer
        .clone()
        .text()
        .catch(() => ''),
    );
    const bytes = Buffer.from(await answer.arrayBuffer());
    const path = join(folder, 'large.mp4');
    writeFileSync(path, bytes);
    const facts = await (await openMedia()).probe(path, call);
    assert.deepEqual([facts.video?.width, facts.video?.height, facts.hasAudio], [320, 240, true]);
    await until(
      async () => (await send({ path: '/video/retrieve', body: take })).status === 404,
      'that the media is gone',
      50,
    );
  });

  test('a webhook reports the end of a job, signed with the secret in the response to the queue request', async () => {
    // Webhooks go to https only; a plain address is refused before anything is held.
    const refused = await send({
      path: '/video/queue',
      body: { ...(await still()), webhook_url: `${site.url}/hook` },
    });
    assert.equal(refused.status, 400);
    for (const webhook_url of ['https://10.0.0.1/hook', 'https://localhost.internal/hook']) {
      const answer = await send({
        path: '/video/queue',
        body: { ...(await still()), webhook_url },
      });
      const { details } = (await json(answer)) as { details?: { webhook_url?: unknown } };
      assert.equal(answer.status, 400, webhook_url);
      assert.notEqual(details?.webhook_url, undefined);
    }
    const told = await queued({ ...(await still()), webhook_url: 'https://127.0.0.1:1/hook' });
    assert.match(String(told['webhook_secret']), /^[0-9a-f]{64}$/);
    await finished({ queue_id: told['queue_id'] });
  });

  test('an image that cannot be decoded fails the job, which is refunded', async () => {
    const user = await farebox.account('1', { kind: 'ADMIN' });
    const key = user.secret;
    const budgets = [{ tag: 'user' }, {}].map((of) =>
      send({ path: '/budgets', body: { ...of, period: 'LIFETIME', usd: 0.0015 }, key }),
    );
    const [ofUser, ofAll] = (await Promise.all(budgets)).map(async (made) => {
      const { data } = await json(made);
      return (data as { id: string }).id; // as it was made
    });
    const spent = async (path: string) => {
      const { data } = await json(await send({ path: `/budgets/${path}`, method: 'GET', key }));
      return (data as { spentUsd: number }).spentUsd; // of one value
    };
    const bad = Buffer.concat([pngHead(640, 480), Buffer.alloc(900, 9)]);
    const body = {
      ...(await still()),
      image_url: `data:image/png;base64,${bad.toString('base64')}`,
    };
    const headers = { 'x-svc-metadata': '{"user":"anna"}' };
    const [first, second] = await Promise.all(
      [1, 2].map(() => send({ path: '/video/queue', body, key, headers })),
    );
    assert.deepEqual(new Set([first?.status, second?.status]), new Set([200, 402]));
    const { queue_id: id } = await json((first?.status === 200 ? first : second)!);
    const answer = await finished({ queue_id: id }, user.secret);
    assert.equal(answer.status, 422);
    assert.deepEqual((await json(answer))['error'], {
      message:
        'The engine cannot read the media: it is damaged or its format is not supported; it costs nothing',
      type: 'provider_request_refused',
      credits_refunded: true,
    });
    assert.equal(await spentBy(user.accountId, 1_000_000_000n), 0n);
    assert.deepEqual(
      [await spent(`${await ofUser}?value=anna`), await spent(`${await ofAll}`)],
      [0, 0],
    );
    const receipt = await receiptOf(farebox.app.stores.store, user.accountId, String(id));
    assert.equal(receipt?.metadata, '{"user":"anna"}');
    assert.deepEqual(
      [receipt?.status, receipt?.usd_nano, receipt?.kind],
      ['failed', 1_000_000n, 'video'],
    );
    const page = { limit: 10, offset: 0 };
    const rows = await transactionsOf(farebox.app.stores.store, user.accountId, page);
    assert.deepEqual(
      rows.map((row) => [row.kind, row.amount_nano, row.balance_after_nano]),
      [
        ['REFUND', 1_000_000n, 1_000_000_000n],
        ['CHARGE', 1_000_000n, 999_000_000n],
        ['CREDIT', 1_000_000_000n, 1_000_000_000n],
      ],
    );
    const extras = JSON.parse(receipt?.extras ?? '{}') as Record<string, unknown>;
    assert.equal(extras['refundedUsd'], '0.001000000');
    const list = await json(await send({ path: '/video/jobs', method: 'GET', key: user.secret }));
    assert.equal((list['data'] as Record<string, unknown>[])[0]?.['status'], 'FAILED');
  });

  test('the balance must cover the quote; requests that cannot be made are 400 with details', async () => {
    const poor = await farebox.account('0.1');
    const long = { ...(await still()), duration: '30s', resolution: '1080p' };
    const answer = await send({ path: '/video/queue', body: long, key: poor.secret });
    assert.equal(answer.status, 402);
    const base = await still();
    const wrong: [object, string][] = [
      [{ ...base, duration: '31s' }, 'duration'],
      [{ ...base, resolution: '4k' }, 'resolution'],
      [{ ...base, image_url: null }, 'image_url'],
      [{ ...base, prompt: '' }, 'prompt'],
      [{ ...base, upscale_factor: 2 }, 'upscale_factor'],
      [
        { model: 'farebox-upscale', video_url: `${site.url}/clip.mp4`, resolution: '2x' },
        'resolution',
      ],
      [{ model: 'farebox-upscale' }, 'video_url'],
    ];
    for (const [body, field] of wrong) {
      const refused = await send({ path: '/video/queue', body });
      const said = await json(refused);
      assert.equal(refused.status, 400, JSON.stringify(said));
      assert.ok(
        field in (said['details'] as object),
        `${field} in ${JSON.stringify(said['details'])}`,
      );
    }
    const unknown = await send({ path: '/video/queue', body: { ...base, model: 'nothing' } });
    assert.equal(unknown.status, 404);
    const extra = await send({
      path: '/video/complete',
      body: { model: 'x', queue_id: 'y', z: 1 },
    });
    assert.equal(extra.status, 400);
  });

  test('GET /models shows what each model takes', async () => {
    const list = await json(await send({ path: '/models?type=video', method: 'GET' }));
    const models = list['data'] as {
      id: string;
      model_spec: { constraints: Record<string, unknown> };
    }[];
    const found = models.find(({ id }) => id === 'farebox-still-to-video');
    assert.deepEqual(found?.model_spec.constraints['resolutions'], [
      '360p',
      '480p',
      '720p',
      '1080p',
    ]);
    assert.equal(found?.model_spec.constraints['model_type'], 'image-to-video');
  });
});

const call = { signal: new AbortController().signal };

describe('the examples of docs/callers/media.md', () => {
  const run = promisify(execFile);
  const example = (name: string): string => join(import.meta.dirname, '../../examples/media', name);
  const env = () => ({
    PATH: process.env['PATH'],
    FAREBOX_URL: farebox.url,
    FAREBOX_KEY: farebox.owner.secret,
    POLL_MS: '100',
  });

  test('background removal of a photo, then a video of the result', async () => {
    const photo = join(folder, 'me.jpg');
    writeFileSync(photo, await portraitJpeg());
    const cut = [example('cutout.ts'), photo, join(folder, 'me.png')];
    const said = await run(process.execPath, cut, { env: env() });
    assert.match(said.stdout, /was created by farebox-cutout/);
    await assertCut(readFileSync(join(folder, 'me.png')));
    const film = [example('video.ts'), photo, join(folder, 'me.mp4')];
    const told = await run(process.execPath, film, { env: env() });
    assert.match(told.stdout, /The video will cost 0.002 USD[^]*Saved /);
    assert.equal(readFileSync(join(folder, 'me.mp4')).toString('latin1', 4, 8), 'ftyp');
  });
});

describe('POST /video/transcriptions', () => {
  const path = '/video/transcriptions';

  test('a video without an audio track gets an error and costs nothing', async () => {
    const size = { width: 64, height: 64, seconds: 1, framesPerSecond: 4 };
    const mute = mkdtempSync(join(folder, 'mute-'));
    site.pages.set('/mute.mp4', await makeClip(mute, size));
    const before = await ownerSpent();
    const byUrl = await send({ path, body: { url: `${site.url}/mute.mp4` } });
    const form = formWith('file', readFileSync(join(mute, 'clip.mp4')));
    const byFile = await send({ path: '/audio/transcriptions', body: form });
    for (const answer of [byUrl, byFile]) {
      const { code, error } = await json(answer);
      assert.deepEqual([answer.status, code], [422, 'ASR_UPSTREAM_VALIDATION_FAILED']);
      assert.match(String(error), /The video has no audio track/);
    }
    assert.equal(await ownerSpent(), before);
  });

  test('a clip is transcribed as JSON and as text, and charged by its exact duration', async () => {
    const before = await ownerSpent();
    const answer = await send({ path, body: { url: `${site.url}/clip.mp4` } });
    const said = await json(answer);
    assert.equal(answer.status, 200, JSON.stringify(said));
    assert.equal(String(said['transcript']).replaceAll(/\s+/g, ' '), 'a b b a');
    assert.equal(typeof said['lang'], 'string');
    const { durationMs } = await (
      await openMedia()
    ).extractAudio(join(folder, 'clip.mp4'), join(folder, 'clip.pcm'), 60, call);
    assert.equal((await ownerSpent()) - before, BigInt(durationMs) * 100n);
    const text = await send({
      path,
      body: { url: `${site.url}/clip.mp4`, response_format: 'text' },
    });
    assert.match(text.headers.get('content-type') ?? '', /^text\/plain/);
    assert.equal((await text.text()).replaceAll(/\s+/g, ' '), 'a b b a');
  });

  const HOSTILE: [string, () => Parameters<Site['pages']['set']>[1], number[]][] = [
    [
      'an HLS playlist of a local file',
      () => '#EXTM3U\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n',
      [400],
    ],
    ['a concat script', () => "ffconcat version 1.0\nfile '/etc/passwd'\n", [400]],
    [
      'a DASH description',
      () => '<?xml version="1.0"?><MPD><BaseURL>file:///etc/passwd</BaseURL></MPD>',
      [400],
    ],
    ['a web page', () => '<!doctype html><p>no film', [400]],
    ['nothing', () => '', [400]],
    [
      'an MP4 head with rubbish',
      () =>
        Buffer.concat([
          Buffer.from([0, 0, 0, 24]),
          Buffer.from('ftypisom'),
          Buffer.alloc(9_000, 0xa5),
        ]),
      [400],
    ],
    ['an endless stream', () => endless(Buffer.alloc(65_536), 1), [400, 422]],
    ['a stream that drips', () => endless(Buffer.alloc(1), 50), [400]],
    ['21 MB', () => Buffer.alloc(21_000_000), [422]],
    [
      'a page that redirects inside',
      () => (response) =>
        void response.writeHead(302, { location: 'http://169.254.169.254/' }).end(),
      [400],
    ],
    [
      'a redirect without end',
      () => (response) => void response.writeHead(302, { location: '/hostile' }).end(),
      [400],
    ],
    ['an error page', () => (response) => void response.writeHead(500).end(), [400]],
    [
      'a minute and two seconds of silence',
      () => Buffer.concat([telephoneHeader(62 * 16_000), Buffer.alloc(62 * 16_000)]),
      [422],
    ],
  ];

  for (const [name, page, statuses] of HOSTILE) {
    test(`${name} ends in ${statuses.join(' or ')} within seconds and costs nothing`, async () => {
      site.pages.set('/hostile', page());
      const before = await ownerSpent();
      const startedMs = performance.now();
      const answer = await send({ path, body: { url: `${site.url}/hostile` } });
      const body = await json(answer);
      assert.ok(statuses.includes(answer.status), `${answer.status} ${JSON.stringify(body)}`);
      assert.ok(performance.now() - startedMs < 8_000);
      assert.equal(await ownerSpent(), before);
    });
  }

  test('private addresses, other schemes and other formats are rejected', async () => {
    for (const body of [
      { url: 'http://10.0.0.1/a.mp4' },
      { url: 'http://[::1]/a.mp4' },
      { url: 'file:///etc/passwd' },
      { url: 'data:video/mp4;base64,AAAA' },
      { url: `${site.url}/clip.mp4`, response_format: 'srt' },
      {},
    ]) {
      const answer = await send({ path, body });
      assert.equal(answer.status, 400, JSON.stringify(await answer.json()));
    }
  });
});

describe('POST /audio/transcriptions, by the SDK of OpenAI', () => {
  const model = 'farebox-transcription';
  const client = (): OpenAI =>
    new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
  const wav = () => toFile(toneWav(' ab  a  b '), 'said.wav');

  test('a file is transcribed in each format, and charged by its exact duration', async () => {
    const { transcriptions } = client().audio;
    const before = await ownerSpent();
    const plain = await transcriptions.create({ file: await wav(), model });
    assert.deepEqual(plain, { text: 'a b a b', usage: { type: 'duration', seconds: 8 } });
    assert.equal((await ownerSpent()) - before, 800_000n);
    const as = async (response_format: 'text' | 'srt' | 'vtt') =>
      await transcriptions.create({ file: await wav(), model, response_format });
    assert.equal(await as('text'), 'a b a b');
    const srt = await as('srt');
    assert.match(srt, /^1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\na b\n\n2\n00:00:0[34],/);
    assert.match(srt, /\n3\n[^\n]+\nb\n\n$/);
    assert.match(await as('vtt'), /^WEBVTT\n\n00:00:0\d\.\d{3} --> [^]+\na b\n\n/);
    const verbose = await transcriptions.create({
      file: await toFile(clip, 'clip.mp4'),
      model,
      language: 'en',
      temperature: 0,
      response_format: 'verbose_json',
      timestamp_granularities: ['segment'],
    });
    const { task, language, segments = [], words } = verbose as typeof verbose & { task: string };
    assert.deepEqual([task, language, words], ['transcribe', 'en', undefined]);
    assert.deepEqual([segments[0]?.id, segments[0]?.text], [0, 'a b b a']);
    assert.ok(segments.every(({ start, end }) => start < end && end <= verbose.duration));
    const timed = await transcriptions.create({
      file: await wav(),
      model,
      response_format: 'verbose_json',
      timestamp_granularities: ['segment', 'word'],
    });
    const found = timed.words?.map(({ word, start }) => `${word} ${Math.round(start)}`);
    assert.deepEqual(found, ['a 1', 'b 2', 'a 4', 'b 7'], JSON.stringify(timed.words));
    assert.equal(timed.segments?.length, 3);
  });

  test('the embedded engine streams one stretch of speech after the other', async () => {
    const before = await ownerSpent();
    const { transcriptions } = client().audio;
    const stream = await transcriptions.create({ file: await wav(), model, stream: true });
    const events: OpenAI.Audio.TranscriptionStreamEvent[] = [];
    for await (const event of stream) events.push(event);
    const deltas = events.flatMap((event) => ('delta' in event ? [event.delta] : []));
    assert.deepEqual(deltas, ['a b', ' a', ' b']);
    const last = events.at(-1);
    assert.ok(last?.type === 'transcript.text.done');
    assert.equal(last.text, 'a b a b');
    assert.equal((await ownerSpent()) - before, 800_000n);
    const silence = Buffer.concat([wavHeader(32_000), Buffer.alloc(32_000)]);
    const file = await toFile(silence, 'silence.wav');
    const nothing = [];
    for await (const event of await transcriptions.create({ file, model, stream: true })) {
      nothing.push(event);
    }
    assert.deepEqual(
      nothing.map((event) => (event.type === 'transcript.text.done' ? event.text : event.type)),
      [''],
    );
  });

  test('unsupported requests get an error with a reason, and cost nothing', async () => {
    const before = await ownerSpent();
    const refused: [object, number, RegExp][] = [
      [{ timestamp_granularities: ['segment'] }, 400, /verbose_json/],
      [{ response_format: 'diarized_json' }, 400, /response_format/],
      [{ language: 'English, please' }, 400, /language/],
      [{ temperature: 2 }, 400, /temperature/],
      [{ stream: true, response_format: 'srt' }, 400, /stream/],
      [{ prompt: 'p'.repeat(5_000) }, 400, /4096/],
      [{ model: 'nobody' }, 404, /nobody/],
    ];
    for (const [fields, status, message] of refused) {
      await assert.rejects(
        client().audio.transcriptions.create({ file: await wav(), model, ...fields }),
        (error: unknown) => {
          assert.ok(error instanceof APIError);
          assert.equal(error.status, status, error.message);
          assert.match(`${error.message} ${JSON.stringify(error.error)}`, message);
          return true;
        },
      );
    }
    assert.equal(await ownerSpent(), before);
  });

  test('hostile uploads are rejected like hostile URLs', async () => {
    const before = await ownerSpent();
    const silence = Buffer.concat([wavHeader(62 * 32_000), Buffer.alloc(62 * 32_000)]);
    const head = Buffer.concat([Buffer.from('\0\0\0\x18ftypisom'), Buffer.alloc(9_000, 0xa5)]);
    const hostile: [string, Buffer, number][] = [
      ['a playlist', Buffer.from('#EXTM3U\n#EXTINF:9,\nfile:///etc/passwd\n'), 400],
      ['a concat script', Buffer.from("ffconcat version 1.0\nfile '/etc/passwd'\n"), 400],
      ['nothing', Buffer.alloc(0), 400],
      ['an MP4 head with rubbish', head, 400],
      ['too many bytes', Buffer.alloc(20_000_001), 413],
      ['a minute and two seconds', silence, 422],
    ];
    for (const [name, bytes, status] of hostile) {
      const answer = await send({ path: '/audio/transcriptions', body: formWith('file', bytes) });
      assert.equal(answer.status, status, `${name}: ${await answer.text()}`);
    }
    for (const body of [formWith('image', clip), { url: `${site.url}/clip.mp4` }]) {
      const answer = await send({ path: '/audio/transcriptions', body });
      assert.equal(answer.status, body instanceof FormData ? 400 : 415, await answer.text());
    }
    assert.equal(await ownerSpent(), before);
  });
});
