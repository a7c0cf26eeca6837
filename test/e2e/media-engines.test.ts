/**
 * Media over engines that are not of the box: quotes against a table worked out by hand, one row
 * for each kind of pricing and edge; a video engine that fails; an OpenAI-compatible transcription
 * server; a rembg server.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { sharp } from '../support/sharp.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { makeClip, portraitJpeg, toneWav } from '../media/clips.ts';
import { type Site, openSite } from '../media/site.ts';
import {
  type Answer,
  type LoopbackEngine,
  type Heard,
  openEngine,
  sendJson,
} from '../support/loopback-engine.ts';
import { fastClock } from '../support/fast-clock.ts';

const MODELS = `
models:
  - id: by-resolution
    type: video
    replicas: [{ engine: studio }]
    video:
      task: text-to-video
      durations: [5s, 8s, 30s]
      resolutions: [480p, 720p]
      aspectRatios: ["16:9", "1:1"]
      audio: true
      audioConfigurable: true
      pricing: { kind: duration-resolution, rates: { 480p: 0.012, 720p: { silent: 0.05, sound: 0.07 } } }
  - id: by-megapixel
    type: video
    replicas: [{ engine: studio }]
    video:
      task: text-to-video
      durations: [5s]
      resolutions: [720p, 1080p]
      aspectRatios: ["16:9", "9:16", "1:1"]
      pricing: { kind: megapixel, perMegapixelSecond: 0.02 }
  - id: by-second
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1s, 7s], pricing: { kind: second, perSecond: 0.000000003 } }
  - id: by-piece
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1 gen], downloadUrl: true, pricing: { kind: generation, perGeneration: 0.28 } }
  - id: by-token
    type: video
    replicas: [{ engine: studio }]
    video:
      task: reference-to-video
      durations: [5s, "-1", auto]
      resolutions: [720p]
      aspectRatios: ["16:9", adaptive]
      pricing: { kind: tokens, perMillionTokens: 7, perMillionTokensWithReference: 4.3 }
  - id: larger
    type: video
    replicas: [{ engine: studio }]
    video:
      task: upscale
      pricing: { kind: upscale, tiers: [{ maxHeight: 240, perSecond: 0.013 }, { maxHeight: 480, perSecond: 0.025 }], fastAbove: 20, maxSourceSeconds: 3 }
  - id: fragile
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.1 } }
  - id: two-places
    type: video
    replicas: [{ engine: studio, model: locked }, { engine: nobody, model: x, order: 1 }, { engine: studio, model: open, order: 2 }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.1 } }
  - id: ears
    type: asr
    price: { perSecond: 0.0001 }
    replicas: [{ engine: studio, model: whisper-1 }]
  - id: simple-ears
    type: asr
    price: { perSecond: 0.0001 }
    replicas: [{ engine: studio, model: simple }]
  - id: scissors
    type: inpaint
    price: { perImage: 0.02 }
    replicas: [{ engine: rembg }]
`;

const folder = mkdtempSync(join(tmpdir(), 'farebox-engines-'));
let engine: LoopbackEngine;
let site: Site;
let farebox: TestApp;

before(async () => {
  engine = await openEngine();
  site = await openSite();
  farebox = await startTestApp({
    // The server polls a job every few seconds.
    clock: fastClock(5),
    yaml: `fetch: { allow: [127.0.0.0/8] }
engines: { studio: { url: "${engine.url}/v1" }, nobody: { url: "http://127.0.0.1:9/v1" }, rembg: { protocol: rembg, url: "${engine.url}/api/remove" } }
limits: { unsoldPerMinute: 1000000, guard: { failures: 100000 }, plans: { staff: { image: 1000, audio: 1000, videoQueue: 1000, videoRetrieve: 100000 } } }
${MODELS}`,
  });
});
after(async () => {
  await farebox.audit();
  await farebox.stop();
  await site.close();
  await engine.close();
  rmSync(folder, { recursive: true, force: true });
});

async function post(
  path: string,
  body: unknown,
  key = farebox.owner.secret,
): Promise<{ status: number; body: Record<string, unknown>; answer: Response }> {
  const answer = await fetch(farebox.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const isJson = (answer.headers.get('content-type') ?? '').startsWith('application/json');
  const said = isJson ? await answer.clone().json() : {};
  return { status: answer.status, body: said as Record<string, unknown>, answer };
}

async function get(path: string): Promise<{ status: number; body: Record<string, unknown> }> {
  const headers = { authorization: `Bearer ${farebox.owner.secret}` };
  const answer = await fetch(farebox.url + path, { headers });
  // The tests check single fields.
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

async function spent(): Promise<bigint> {
  const { usdNano } = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
  return farebox.owner.creditNano - usdNano;
}

describe('POST /video/quote against a table worked out by hand', () => {
  const ask = { prompt: 'ignored' };
  const QUOTES: [string, object, number][] = [
    ['5 s × 0.012', { model: 'by-resolution', duration: '5s', resolution: '480p' }, 0.06],
    [
      '30 s × 0.07, sound by default',
      { model: 'by-resolution', duration: '30s', resolution: '720p' },
      2.1,
    ],
    [
      '8 s × 0.05 without sound',
      { model: 'by-resolution', duration: '8s', resolution: '720p', audio: false },
      0.4,
    ],
    [
      '1280 × 720 = 0.9216 MP × 5 s × 0.02',
      { model: 'by-megapixel', duration: '5s', aspect_ratio: '16:9' },
      0.09216,
    ],
    [
      '1080 × 1920 = 2.0736 MP × 5 s × 0.02',
      { model: 'by-megapixel', duration: '5s', resolution: '1080p', aspect_ratio: '9:16' },
      0.20736,
    ],
    ['7 s × 3 nano', { model: 'by-second', duration: '7s' }, 0.000000021],
    ['a piece', { model: 'by-piece', duration: '1 gen' }, 0.28],
    // 1280 × 720 × 24 × 5 / 1024 = 108,000 tokens × 7 / 10^6
    ['108,000 tokens × 7', { model: 'by-token', duration: '5s', aspect_ratio: '16:9' }, 0.756],
    // (5 + 10) s: 324,000 tokens × 4.3 / 10^6
    [
      '(5 + 10) s of tokens × 4.3',
      {
        model: 'by-token',
        duration: '5s',
        aspect_ratio: '16:9',
        reference_video_total_duration: 10,
      },
      1.3932,
    ],
    // matched: (12.5 + 12.5) s: 540,000 tokens × 4.3 / 10^6
    [
      'matched length',
      {
        model: 'by-token',
        duration: '-1',
        aspect_ratio: 'adaptive',
        reference_video_total_duration: 12.5,
      },
      2.322,
    ],
  ];
  for (const [sum, request, usd] of QUOTES) {
    test(`${sum} = ${usd} USD`, async () => {
      const { status, body } = await post('/video/quote', { ...ask, ...request }, 'none');
      assert.deepEqual([status, body], [200, { quote: usd }]);
    });
  }

  test('an upscale is priced by its measured length, height and rate', async () => {
    const size = { width: 160, height: 120, seconds: 2 };
    site.pages.set('/slow.mp4', await makeClip(folder, { ...size, framesPerSecond: 10 }));
    site.pages.set('/fast.mp4', await makeClip(folder, { ...size, framesPerSecond: 30 }));
    const ask = (file: string, factor: number) =>
      post('/video/quote', {
        model: 'larger',
        video_url: `${site.url}/${file}`,
        upscale_factor: factor,
      });
    assert.deepEqual((await ask('slow.mp4', 2)).body, { quote: 0.026 });
    assert.deepEqual((await ask('slow.mp4', 4)).body, { quote: 0.05 });
    assert.deepEqual((await ask('fast.mp4', 2)).body, { quote: 0.052 });
    const data = `data:video/mp4;base64,${(site.pages.get('/slow.mp4') as Buffer).toString('base64')}`;
    const inline = { model: 'larger', video_url: data, upscale_factor: 1 };
    assert.deepEqual((await post('/video/quote', inline)).body, { quote: 0.026 });
  });

  const REFUSED: [string, object, number][] = [
    ['an unknown duration', { model: 'by-second', duration: '31s' }, 400],
    ['no duration', { model: 'by-second' }, 400],
    ['no resolution where it is priced', { model: 'by-resolution', duration: '5s' }, 400],
    ['no shape where pixels are priced', { model: 'by-megapixel', duration: '5s' }, 400],
    [
      '151 s of references',
      {
        model: 'by-token',
        duration: '5s',
        aspect_ratio: '16:9',
        reference_video_total_duration: 151,
      },
      400,
    ],
    [
      'a matched length of 3.9 s',
      {
        model: 'by-token',
        duration: 'auto',
        aspect_ratio: '16:9',
        reference_video_total_duration: 3.9,
      },
      400,
    ],
    [
      'a matched length without a source',
      { model: 'by-token', duration: 'auto', aspect_ratio: '16:9' },
      400,
    ],
    ['no source to upscale', { model: 'larger' }, 400],
    ['an unknown model', { model: 'by-moonlight', duration: '5s' }, 404],
  ];
  for (const [name, request, wanted] of REFUSED) {
    test(`${name} is ${wanted}`, async () => {
      const { status, body } = await post('/video/quote', request);
      assert.equal(status, wanted, JSON.stringify(body));
      if (wanted === 400) assert.ok('details' in body, JSON.stringify(body));
    });
  }

  test('a source that is too long is rejected with 422, and the inspection of files is bounded', async () => {
    site.pages.set(
      '/long.mp4',
      await makeClip(folder, { width: 64, height: 64, seconds: 4, framesPerSecond: 5 }),
    );
    const ask = { model: 'larger', video_url: `${site.url}/long.mp4` };
    assert.equal((await post('/video/quote', ask)).status, 422);
    // A look that finds nothing counts too; a minute may turn in between.
    const nothing = { ...ask, video_url: `${site.url}/nothing.mp4` };
    let last = 400;
    for (let turn = 0; turn < 25 && last === 400; turn += 1) {
      last = (await post('/video/quote', nothing, 'none')).status;
    }
    assert.equal(last, 429);
  });
});

describe('an external video engine', () => {
  const SIZE = { width: 64, height: 64, seconds: 1, framesPerSecond: 8 };
  const order = { model: 'by-piece', prompt: 'a lighthouse', duration: '1 gen' };

  async function until(
    id: unknown,
    isEnd: (status: number, said: Record<string, unknown>) => boolean,
  ) {
    const endMs = performance.now() + 60_000;
    while (performance.now() < endMs) {
      const { status, body, answer } = await post('/video/retrieve', { queue_id: id });
      if (isEnd(status, body)) return { status, body, answer };
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return assert.fail('The job did not end');
  }

  test('gets requests in its protocol, and the result has a secret address', async () => {
    const clip = await makeClip(folder, SIZE);
    engine.answer = ({ method, path }, response) => {
      if (method === 'POST') sendJson(response, 200, { id: 'v1', status: 'queued' });
      else if (path.endsWith('/content'))
        response.writeHead(200, { 'content-type': 'video/mp4' }).end(clip);
      else sendJson(response, 200, { id: 'v1', status: 'completed', progress: 100 });
    };
    const before = await spent();
    const { status, body } = await post('/video/queue', order);
    assert.equal(status, 200, JSON.stringify(body));
    const done = await until(body['queue_id'], (_status, said) => said['status'] === 'COMPLETED');
    assert.deepEqual(Object.keys(done.body), [
      'status',
      'average_execution_time',
      'execution_duration',
    ]);
    assert.equal((await spent()) - before, 280_000_000n);
    const address = new URL(String(body['download_url']));
    const url = farebox.app.address + address.pathname;
    const film = await fetch(url);
    assert.deepEqual([film.status, Buffer.from(await film.arrayBuffer())], [200, clip]);
    const size = clip.length;
    const tag = film.headers.get('etag')!;
    const ranges: [string, string | undefined, number, Buffer, string | null][] = [
      ['bytes=0-1', undefined, 206, clip.subarray(0, 2), `bytes 0-1/${size}`],
      ['bytes=100-', tag, 206, clip.subarray(100), `bytes 100-${size - 1}/${size}`],
      ['bytes=-10', undefined, 206, clip.subarray(-10), `bytes ${size - 10}-${size - 1}/${size}`],
      ['bytes=5-999999999', undefined, 206, clip.subarray(5), `bytes 5-${size - 1}/${size}`],
      // Another version of the file, several ranges, no range: the whole file.
      ['bytes=0-1', '"another"', 200, clip, null],
      ['bytes=0-1,5-6', undefined, 200, clip, null],
      ['bytes=9-2', undefined, 200, clip, null],
      ['lines=1-2', undefined, 200, clip, null],
    ];
    for (const [range, condition, status, bytes, told] of ranges) {
      const headers = { range, ...(condition !== undefined && { 'if-range': condition }) };
      const part = await fetch(url, { headers });
      assert.equal(part.headers.get('accept-ranges'), 'bytes');
      assert.equal(part.headers.get('content-range'), told, range);
      assert.deepEqual([part.status, Buffer.from(await part.arrayBuffer())], [status, bytes]);
    }
    for (const [range, status, length] of [
      [undefined, 200, size],
      ['bytes=0-9', 206, 10],
    ] as const) {
      const head = await fetch(url, {
        method: 'HEAD',
        headers: range === undefined ? {} : { range },
      });
      assert.equal(head.status, status);
      assert.equal(head.headers.get('content-length'), String(length));
      assert.equal(head.headers.get('accept-ranges'), 'bytes');
      assert.equal((await head.arrayBuffer()).byteLength, 0);
    }
    for (const range of [`bytes=${size}-`, 'bytes=-0']) {
      const behind = await fetch(url, { headers: { range } });
      assert.equal(behind.status, 416, range);
      assert.equal(behind.headers.get('content-range'), `bytes */${size}`);
    }
    assert.equal((await fetch(url.slice(0, -1) + (url.endsWith('A') ? 'B' : 'A'))).status, 404);
    assert.equal((await fetch(url, { method: 'DELETE' })).status, 200);
    assert.equal((await fetch(url)).status, 404);
    const create = engine.heard.find(({ method }) => method === 'POST');
    assert.equal(create?.path, '/v1/videos');
    assert.match(create?.body ?? '', /name="prompt"\r\n\r\na lighthouse/);
    assert.match(create?.body ?? '', /name="model"\r\n\r\nby-piece/);
  });

  test('that fails or rejects the job causes a refund, which the receipt shows', async () => {
    const failures: [Answer, number, RegExp][] = [
      [
        ({ method }, response) =>
          method === 'POST'
            ? sendJson(response, 200, { id: 'v2' })
            : sendJson(response, 200, {
                status: 'failed',
                error: { message: 'out of memory', code: 'oom' },
              }),
        500,
        /The engine could not make the video/,
      ],
      [
        (_heard, response) =>
          sendJson(response, 400, {
            error: { message: 'not this', code: 'content_policy_violation' },
          }),
        422,
        /"message":"The engine rejected the content; it costs nothing","type":"provider_content_policy"/,
      ],
      [
        (_heard, response) =>
          sendJson(response, 400, { error: { message: 'bad prompt at 10.0.0.7', code: null } }),
        422,
        /change the prompt or the options[^}]*"type":"provider_request_refused"/,
      ],
      [
        (_heard, response) => sendJson(response, 401, { error: { message: 'key sk-12 is bad' } }),
        500,
        /The engine could not make the video/,
      ],
      [(_heard, response) => response.end('<html>out of memory</html>'), 500, /could not make/],
    ];
    for (const [answer, wanted, words] of failures) {
      engine.answer = answer;
      const before = await spent();
      const { length } = engine.heard;
      const { body } = await post('/video/queue', { ...order, model: 'fragile' });
      const ended = await until(body['queue_id'], (status) => status !== 200);
      assert.equal(ended.status, wanted, JSON.stringify(ended.body));
      assert.match(JSON.stringify(ended.body), words);
      assert.doesNotMatch(JSON.stringify(ended.body), /memory|not this|10\.0|sk-12/);
      assert.equal(engine.heard.slice(length).filter(({ method }) => method === 'POST').length, 1);
      assert.match(JSON.stringify(ended.body), /"credits_refunded":true/);
      assert.equal(await spent(), before);
      const receipt = await receiptOf(
        farebox.app.stores.store,
        farebox.owner.accountId,
        String(body['queue_id']),
      );
      assert.deepEqual([receipt?.status, receipt?.usd_nano], ['failed', 100_000_000n]);
      assert.match(receipt?.extras ?? '', /"refundedUsd":"0\.100000000"/);
    }
  });

  test('that gives no clear response receives the job at most twice, under one key', async () => {
    const answers: Record<string, (response: ServerResponse) => unknown> = {
      fails: (response) => sendJson(response, 500, { error: { message: 'cuda out of memory' } }),
      forgets: (response) => sendJson(response, 200, { status: 'queued' }),
      hangs: (response) => response.destroy(),
    };
    const promptOf = (heard: Heard): string =>
      /name="prompt"\r\n\r\n(\w+)/.exec(heard.body)?.[1] ?? '';
    engine.answer = (heard, response) =>
      heard.method === 'POST'
        ? answers[promptOf(heard)]?.(response)
        : sendJson(response, 404, { error: { message: 'there is no list' } });
    const before = await spent();
    const { length } = engine.heard;
    await Promise.all(
      Object.keys(answers).map(async (prompt) => {
        const { body } = await post('/video/queue', { ...order, prompt, model: 'fragile' });
        const ended = await until(body['queue_id'], (status) => status !== 200);
        assert.equal(ended.status, 500, JSON.stringify(ended.body));
        assert.doesNotMatch(JSON.stringify(ended.body), /cuda/);
        const orders = engine.heard.slice(length).filter((one) => promptOf(one) === prompt);
        assert.equal(orders.length, 2, prompt);
        assert.deepEqual(
          new Set(orders.map(({ key }) => key)),
          new Set([`${String(body['queue_id'])}-0`]),
        );
      }),
    );
    assert.equal(await spent(), before);
  });

  test('that lists an order does not receive it again', async () => {
    const clip = await makeClip(folder, SIZE);
    let key: string | undefined;
    engine.answer = (heard, response) => {
      if (heard.method === 'POST') {
        key = heard.key;
        sendJson(response, 502, {});
      } else if (heard.path.startsWith('/v1/videos?')) {
        const other = { id: 'other', metadata: { idempotency_key: 'somebody' } };
        sendJson(response, 200, {
          data: [other, { id: 'mine', metadata: { idempotency_key: key } }],
        });
      } else if (heard.path.endsWith('/content')) {
        response.writeHead(200, { 'content-type': 'video/mp4' }).end(clip);
      } else sendJson(response, 200, { id: 'mine', status: 'completed' });
    };
    const { length } = engine.heard;
    const { body } = await post('/video/queue', order);
    await until(body['queue_id'], (_status, said) => said['status'] === 'COMPLETED');
    const heard = engine.heard.slice(length);
    assert.equal(heard.filter(({ method }) => method === 'POST').length, 1);
    assert.ok(heard.some(({ path }) => path === '/v1/videos/mine/content'));
  });

  test('that certainly has no order is replaced by the next engine', async () => {
    const models: string[] = [];
    engine.answer = (heard, response) => {
      if (heard.method !== 'POST') return sendJson(response, 200, { status: 'in_progress' });
      const model = /name="model"\r\n\r\n(\w+)/.exec(heard.body)?.[1] ?? '';
      models.push(model);
      return model === 'locked'
        ? sendJson(response, 403, { error: { message: 'no' } })
        : sendJson(response, 200, { id: 'v3' });
    };
    const before = await spent();
    const { body } = await post('/video/queue', { ...order, model: 'two-places' });
    assert.ok((await spent()) > before);
    await until(body['queue_id'], () => models.length === 2);
    assert.deepEqual(models, ['locked', 'open']);
    // And a caller who does not want it any more has its money back, once.
    const cancel = () => post('/video/cancel', { queue_id: body['queue_id'] });
    for (const { status, body: said } of [await cancel(), await cancel()]) {
      assert.deepEqual(
        [status, said],
        [200, { queue_id: body['queue_id'], status: 'CANCELLED', credits_refunded: true }],
      );
    }
    assert.ok(engine.heard.some(({ method, path }) => method === 'DELETE' && path.endsWith('/v3')));
    const { status } = await post('/video/retrieve', { queue_id: body['queue_id'] });
    assert.deepEqual([status, await spent()], [410, before]);
    const { body: list } = await get('/video/jobs?limit=1');
    const [job] = list['data'] as Record<string, unknown>[];
    assert.deepEqual([job?.['status'], job?.['credits_refunded']], ['CANCELLED', true]);
    const stranger = await farebox.account('1');
    const foreign = await post('/video/cancel', { queue_id: body['queue_id'] }, stranger.secret);
    assert.equal(foreign.status, 404);
    assert.equal((await post('/video/cancel', { queue_id: 'x', z: 1 })).status, 400);
  });
});

describe('an external transcription server', () => {
  const upload = (fields: readonly (readonly [string, string])[]) => {
    const form = new FormData();
    for (const [name, value] of fields) form.append(name, value);
    form.set('file', new Blob([new Uint8Array(toneWav('a b'))]), 'said.wav');
    const headers = { authorization: `Bearer ${farebox.owner.secret}` };
    return fetch(`${farebox.url}/audio/transcriptions`, { method: 'POST', headers, body: form });
  };

  test('gets WAV by the OpenAI protocol, and its language becomes a code', async () => {
    engine.answer = (_heard, response) =>
      sendJson(response, 200, { text: ' Hello there. ', language: 'english', duration: 2 });
    site.pages.set('/hello.wav', toneWav('a b'));
    const before = await spent();
    const { status, body } = await post('/video/transcriptions', { url: `${site.url}/hello.wav` });
    assert.deepEqual([status, body], [200, { transcript: 'Hello there.', lang: 'en' }]);
    assert.equal((await spent()) - before, 200_000n);
    const heard = engine.heard.at(-1);
    assert.equal(heard?.path, '/v1/audio/transcriptions');
    assert.match(heard?.body ?? '', /name="model"\r\n\r\nwhisper-1/);
    assert.match(heard?.body ?? '', /name="response_format"\r\n\r\nverbose_json/);
    assert.match(heard?.body ?? '', /audio\/wav\r\n\r\nRIFF/);
  });

  test('that supports only the short format is called with it', async () => {
    engine.answer = ({ body }, response) =>
      body.includes('verbose_json')
        ? sendJson(response, 400, { error: { message: 'unsupported response_format' } })
        : sendJson(response, 200, { text: 'short' });
    const { body } = await post('/video/transcriptions', { url: `${site.url}/hello.wav` });
    assert.deepEqual(body, { transcript: 'short', lang: 'und' });
  });

  test('is called without the options that it does not know', async () => {
    const sent: string[][] = [];
    const refusal = (field: string) => ({ error: { message: `Unknown parameter: '${field}'` } });
    engine.answer = ({ body }, response) => {
      const names = [...body.matchAll(/; name="([^"]+)"/g)].map(([, name]) => String(name));
      sent.push(names);
      const unknown = ['temperature', 'prompt', 'stream'].find((one) => names.includes(one));
      if (unknown !== undefined) return sendJson(response, 400, refusal(unknown));
      if (body.includes('verbose_json')) return sendJson(response, 422, { detail: 'no' });
      return sendJson(response, 200, { text: 'Short.' });
    };
    const before = await spent();
    const fields = [
      ['model', 'simple-ears'],
      ['temperature', '0.2'],
      ['prompt', 'Names: Ann'],
      ['language', 'en'],
    ] as const;
    const first = await upload(fields);
    assert.equal(first.status, 200, await first.text());
    const known = ['model', 'response_format', 'language', 'file'];
    assert.deepEqual(sent.at(-1), known);
    assert.equal(sent.length, 4);
    const next = await upload(fields);
    assert.deepEqual([next.status, sent.slice(4)], [200, [known]]);
    for (const calls of [2, 1]) {
      sent.length = 0;
      const stream = await upload([...fields, ['stream', 'true']]);
      assert.match(await stream.text(), /"transcript\.text\.delta","delta":"Short\."/);
      assert.equal(sent.length, calls);
    }
    assert.equal((await spent()) - before, 800_000n);
  });

  test('that rejects a language is called with it by the next request', async () => {
    engine.answer = ({ body }, response) => {
      const text = "The language 'xx' is not supported";
      return body.includes('name="language"')
        ? sendJson(response, 400, { error: { message: text } })
        : sendJson(response, 200, { text: 'Any.' });
    };
    for (let time = 0; time < 2; time += 1) {
      assert.equal((await upload([['language', 'xx']])).status, 422);
    }
  });

  test('gets eleven minutes of audio in two parts, each a WAV file', async () => {
    let pieces = 0;
    engine.answer = (_heard, response) =>
      sendJson(response, 200, { text: `part ${(pieces += 1)}` });
    site.pages.set('/long.wav', toneWav(`a${' '.repeat(659)}b`));
    const before = await spent();
    const { body } = await post('/video/transcriptions', { url: `${site.url}/long.wav` });
    assert.equal(body['transcript'], 'part 1 part 2');
    assert.equal((await spent()) - before, 66_000_000n);
  });

  test('gets the options of an upload, and its timestamps are passed on', async () => {
    const segments = [{ id: 4, start: 0, end: 1.5, text: ' Hello <there>. ', no_speech_prob: 0.1 }];
    const words = [{ word: 'Hello', start: 0, end: 0.5 }];
    // SDKs require these members, which the engine does not report.
    const added = { seek: 0, tokens: [], temperature: 0, avg_logprob: 0, compression_ratio: 1 };
    engine.answer = (_heard, response) =>
      sendJson(response, 200, { text: 'Hello <there>.', language: 'english', segments, words });
    const verbose = [
      ['response_format', 'verbose_json'],
      ['timestamp_granularities[]', 'word'],
      ['timestamp_granularities[]', 'segment'],
      ['language', 'en'],
      ['temperature', '0.2'],
      ['prompt', 'Names: Ann'],
    ] as const;
    const before = await spent();
    const answer = await upload(verbose);
    assert.deepEqual(
      [answer.status, await answer.json()],
      [
        200,
        {
          task: 'transcribe',
          language: 'en',
          duration: 2,
          text: 'Hello <there>.',
          segments: [{ ...segments[0], ...added, id: 0 }],
          words: [{ word: 'Hello', start: 0, end: 0.5 }],
          usage: { type: 'duration', seconds: 2 },
        },
      ],
    );
    assert.equal((await spent()) - before, 200_000n);
    const sent = engine.heard.at(-1)?.body ?? '';
    for (const [name, value] of verbose) {
      assert.ok(sent.includes(`name="${name}"\r\n\r\n${value}`), name);
    }
    const vtt = await upload([['response_format', 'vtt']]);
    assert.equal(
      await vtt.text(),
      'WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello &lt;there&gt;.\n\n',
    );
    // Engines without timestamps and engines with only the short format: no subtitles, no charge.
    engine.answer = (_heard, response) => sendJson(response, 200, { text: 'Hello.' });
    assert.equal((await upload([['response_format', 'srt']])).status, 422);
    engine.answer = (_heard, response) => sendJson(response, 400, { error: { message: 'no' } });
    assert.equal((await upload([['response_format', 'srt']])).status, 422);
    assert.equal((await spent()) - before, 400_000n);
  });

  test('that fails costs nothing', async () => {
    const before = await spent();
    for (const [status, wanted] of [
      [500, 502],
      [422, 422],
      [503, 429],
    ] as const) {
      engine.answer = (_heard, response) => {
        response.setHeader('retry-after', '30');
        sendJson(response, status, { error: { message: 'cuda out of memory' }, code: 'X' });
      };
      const answer = await post('/video/transcriptions', { url: `${site.url}/hello.wav` });
      assert.equal(answer.status, wanted, JSON.stringify(answer.body));
      assert.doesNotMatch(JSON.stringify(answer.body), /cuda/);
    }
    assert.equal(await spent(), before);
  });
});

describe('an external rembg server', () => {
  test('gets the image as multipart; a smaller or different result is not charged', async () => {
    const photo = await portraitJpeg();
    const image = photo.toString('base64');
    engine.answer = async (_heard, response) => {
      response.end(await sharp(photo).ensureAlpha(0.5).png().toBuffer());
    };
    const before = await spent();
    const { status, answer } = await post('/image/background-remove', { image });
    assert.deepEqual([status, answer.headers.get('x-svc-model-id')], [200, 'scissors']);
    assert.equal((await spent()) - before, 20_000_000n);
    assert.equal(engine.heard.at(-1)?.path, '/api/remove');
    assert.match(engine.heard.at(-1)?.body ?? '', /name="file"/);
    engine.answer = async (_heard, response) => {
      response.end(await sharp(photo).resize(320).png().toBuffer());
    };
    assert.equal((await post('/image/background-remove', { image })).status, 500);
    engine.answer = (_heard, response) => response.end('<html>');
    assert.equal((await post('/image/background-remove', { image })).status, 500);
    assert.equal((await spent()) - before, 20_000_000n);
  });
});

describe('an Idempotency-Key', () => {
  const keyed = (path: string, body: unknown, key: string) =>
    fetch(farebox.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
        'idempotency-key': key,
      },
      body: JSON.stringify(body),
    });
  const sameTwice = async (path: string, body: unknown, key: string) => {
    const calls = engine.heard.length;
    const before = await spent();
    const [first, second] = await Promise.all([keyed(path, body, key), keyed(path, body, key)]);
    const again = await keyed(path, body, key);
    const cost = (await spent()) - before;
    const answers = await Promise.all(
      [first, second, again].map(async (one) => ({
        status: one.status,
        type: one.headers.get('content-type'),
        id: one.headers.get('x-request-id'),
        body: Buffer.from(await one.arrayBuffer()).toString('base64'),
      })),
    );
    assert.equal(answers[0]?.status, 200);
    assert.deepEqual(answers[1], answers[0]);
    assert.deepEqual(answers[2], answers[0]);
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(engine.heard.length, calls + 1);
    return cost;
  };

  test('cuts out an image once, and transcribes a clip once, however often the request is repeated', async () => {
    const photo = await portraitJpeg();
    engine.answer = async (_heard, response) => {
      response.end(await sharp(photo).ensureAlpha(0.5).png().toBuffer());
    };
    const image = photo.toString('base64');
    assert.equal(await sameTwice('/image/background-remove', { image }, 'cut'), 20_000_000n);
    engine.answer = (_heard, response) =>
      sendJson(response, 200, { text: 'Once.', language: 'english', duration: 2 });
    site.pages.set('/once.wav', toneWav('a b'));
    const url = `${site.url}/once.wav`;
    const asText = { url, response_format: 'text' };
    assert.equal(await sameTwice('/video/transcriptions', asText, 'hear'), 200_000n);
  });
});
