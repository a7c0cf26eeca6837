/**
 * Videos are validated before they are charged: the file of a completed job must decode to its end
 * and have about the ordered length, size and sound. Other jobs are refunded.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { sha256Hex } from '../../src/core/ids.ts';
import { formatUsd, nano } from '../../src/core/money.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type FilmOptions, makeFilm, toneWav } from '../media/clips.ts';
import { fastClock } from '../support/fast-clock.ts';

const folder = mkdtempSync(join(tmpdir(), 'farebox-films-'));
/** Results of the engine by prompt, and its requests. */
const films = new Map<string, Buffer>();
const orders = new Map<string, string>();
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { method, url = '' } = request;
    const asked = Buffer.concat(chunks).toString('latin1');
    const id = url.split('/')[3] ?? /name="prompt"\r\n\r\n(\S+)/.exec(asked)?.[1] ?? '';
    if (method === 'POST') orders.set(id, asked);
    if (url.endsWith('/content')) {
      response.writeHead(200, { 'content-type': 'video/mp4' }).end(films.get(id));
      return;
    }
    const status = method === 'POST' ? 'queued' : 'completed';
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ id, status, progress: 100 }));
  });
});
let farebox: TestApp;
/** A job waits for its turns more than it works. */
const AT_ONCE = { concurrency: 8 };
/** Far more than a video takes on any machine. */
const MOST_FILM_MS = 180_000;

/** 256p of 16:9 is 456 x 256. */
const RIGHT = { width: 456, height: 256, seconds: 2, framesPerSecond: 8 } as const;
const ORDER = {
  model: 'short',
  duration: '2s',
  resolution: '256p',
  aspect_ratio: '16:9',
};

before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  farebox = await startTestApp({
    // The server polls a job every few seconds.
    clock: fastClock(5),
    yaml: `engines: { studio: { url: "http://127.0.0.1:${port}/v1" } }
limits: { unsoldPerMinute: 1000000, guard: { failures: 100000 }, plans: { staff: { videoQueue: 100000, videoRetrieve: 100000 } } }
models:
  - id: short
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [2s], resolutions: [256p], aspectRatios: ["16:9", "9:16"], pricing: { kind: duration-resolution, rates: { 256p: 0.05 } } }
  - id: loud
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [2s], resolutions: [256p], aspectRatios: ["16:9"], audio: true, audioConfigurable: true, pricing: { kind: duration-resolution, rates: { 256p: 0.05 } } }
  - id: piece
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } }
  - id: follower
    type: video
    replicas: [{ engine: studio }]
    video: { task: reference-to-video, durations: [auto], resolutions: [256p], aspectRatios: ["16:9", adaptive], pricing: { kind: tokens, perMillionTokens: 7 } }
  - id: larger
    type: video
    replicas: [{ engine: studio }]
    video: { task: upscale, pricing: { kind: upscale, tiers: [{ maxHeight: 2160, perSecond: 0.02 }] } }
`,
  });
});
after(async () => {
  const { usdNano } = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
  assert.equal(farebox.owner.creditNano - usdNano, charged);
  await farebox.audit();
  await farebox.stop();
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

const made = new Map<string, Promise<Buffer>>();
function film(options: Partial<FilmOptions> = {}): Promise<Buffer> {
  const whole = { container: 'mp4' as const, ...RIGHT, ...options };
  const name = JSON.stringify(whole);
  let making = made.get(name);
  if (making === undefined) {
    // One after the other: they share the names of their files.
    const before = [...made.values()].at(-1) ?? Promise.resolve();
    making = before.then(() => makeFilm(folder, whole));
    made.set(name, making);
  }
  return making;
}

function post(path: string, body: unknown): Promise<Response> {
  return fetch(farebox.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${farebox.owner.secret}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
}

interface Ended {
  readonly status: number;
  readonly type: string;
  readonly bytes: Buffer;
  readonly cost: bigint | undefined;
  readonly receipt: string | undefined;
  readonly sha256: readonly string[] | undefined;
  /** Requests to the engine. */
  readonly asked: string;
}

let charged = 0n;

/** Orders a video and waits for the end of the job. */
async function order(given: Buffer | string, request: object = ORDER): Promise<Ended> {
  const prompt = `film-${films.size}`;
  films.set(prompt, Buffer.from(given));
  const queued = await post('/video/queue', { ...request, prompt });
  const said = (await queued.json()) as { queue_id?: string };
  assert.equal(queued.status, 200, JSON.stringify(said));
  const endMs = performance.now() + MOST_FILM_MS;
  while (performance.now() < endMs) {
    const answer = await post('/video/retrieve', { queue_id: said.queue_id });
    const type = answer.headers.get('content-type') ?? '';
    const bytes = Buffer.from(await answer.arrayBuffer());
    const isRunning = answer.status === 200 && type.startsWith('application/json');
    if (!isRunning) {
      const { store } = farebox.app.stores;
      const id = String(said.queue_id);
      const receipt = await receiptOf(store, farebox.owner.accountId, id);
      // A posting of its own refunds the charge of a failed job.
      const extras = JSON.parse(receipt?.extras ?? '{}') as {
        refundedUsd?: string;
        sha256?: string[];
      };
      const isBack =
        receipt !== undefined && extras.refundedUsd === formatUsd(nano(receipt.usd_nano));
      const cost = isBack ? 0n : receipt?.usd_nano;
      charged += cost ?? 0n;
      const asked = orders.get(prompt) ?? '';
      const { sha256 } = extras;
      const told = { status: answer.status, type, bytes, cost, asked };
      return { ...told, receipt: receipt?.status, sha256 };
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return assert.fail('The job did not end');
}

function assertRefunded(ended: Ended): void {
  const said = ended.bytes.toString('utf8', 0, 500);
  assert.deepEqual([ended.status, ended.cost, ended.receipt], [500, 0n, 'failed'], said);
  const body = JSON.parse(said) as Record<string, unknown>;
  assert.deepEqual([body['code'], body['credits_refunded']], ['INFERENCE_FAILED', true]);
  assert.match(String(body['error']), /it costs nothing/);
}

describe('a video that differs from the order is refunded', AT_ONCE, () => {
  const cut = (bytes: Buffer, share: number): Buffer =>
    bytes.subarray(0, Math.floor(bytes.length * share));
  const scratched = (bytes: Buffer): Buffer =>
    Buffer.from(bytes).fill(0xff, Math.floor(bytes.length * 0.6), Math.floor(bytes.length * 0.7));
  const GARBAGE: [string, () => Promise<Buffer | string> | Buffer | string][] = [
    ['nothing', () => ''],
    ['a web page', () => '<!doctype html><title>502 Bad Gateway</title>'],
    ['JSON', () => '{"error":{"message":"cuda out of memory"}}'],
    ['the first bytes of an MP4', async () => (await film()).subarray(0, 200)],
    ['an MP4 cut in half', async () => cut(await film(), 0.5)],
    ['an MP4 without its last byte', async () => (await film()).subarray(0, -1)],
    ['a MOV cut in half', async () => cut(await film({ container: 'mov' }), 0.5)],
    ['a WebM cut in half', async () => cut(await film({ container: 'webm' }), 0.5)],
    [
      'a WebM without its last byte',
      async () => (await film({ container: 'webm' })).subarray(0, -1),
    ],
    ['an MP4 with its middle overwritten', async () => scratched(await film())],
    [
      'a WebM with its middle overwritten',
      async () => scratched(await film({ container: 'webm' })),
    ],
    ['half a second of two', () => film({ seconds: 0.5 })],
    ['ten seconds of two', () => film({ seconds: 10 })],
    ['a quarter of the size', () => film({ width: 228, height: 128 })],
    ['a film that stands upright', () => film({ width: 256, height: 456 })],
    ['a single picture that stays', () => film({ framesPerSecond: 0.5 })],
    ['a black film', () => film({ isBlack: true })],
    ['sound alone', () => toneWav('a b a b')],
  ];
  for (const [name, give] of GARBAGE) {
    test(name, async () => assertRefunded(await order(await give())));
  }

  test('a video without the ordered sound', async () => {
    assertRefunded(await order(await film(), { ...ORDER, model: 'loud' }));
    const silent = await film({ letters: '  ' });
    assertRefunded(await order(silent, { ...ORDER, model: 'loud' }));
    const sold = await order(silent, { ...ORDER, model: 'loud', audio: false });
    assert.deepEqual([sold.status, sold.cost], [200, 100_000_000n]);
  });

  test('an upscale that is as small as its source', async () => {
    const source = await film({ width: 160, height: 90 });
    const request = {
      model: 'larger',
      video_url: `data:video/mp4;base64,${source.toString('base64')}`,
    };
    assertRefunded(await order(source, request));
    const large = await film({ width: 320, height: 180 });
    const sold = await order(large, request);
    assert.deepEqual([sold.status, sold.cost], [200, 40_000_000n]);
    assert.match(sold.asked, /name="upscale_factor"\r\n\r\n2\r\n/);
  });
});

describe('a video as ordered is charged and returned unchanged', AT_ONCE, () => {
  const SOLD: [string, Partial<FilmOptions>, string][] = [
    ['MP4', {}, 'video/mp4'],
    ['MOV with sound', { container: 'mov', letters: 'a b' }, 'video/quicktime'],
    ['WebM', { container: 'webm' }, 'video/webm'],
    ['WebM with sound', { container: 'webm', letters: 'a b' }, 'video/webm'],
    [
      'a film a tenth longer and a little smaller',
      { seconds: 2.2, width: 440, height: 240 },
      'video/mp4',
    ],
  ];
  for (const [name, options, type] of SOLD) {
    test(name, async () => {
      const bytes = await film(options);
      const sold = await order(bytes);
      assert.deepEqual(
        [sold.status, sold.type, sold.cost, sold.receipt],
        [200, type, 100_000_000n, 'completed'],
        sold.bytes.toString('utf8', 0, 300),
      );
      assert.ok(sold.bytes.equals(bytes));
      assert.deepEqual(sold.sha256, [sha256Hex(bytes)]);
    });
  }

  test('a piece of any length and size', async () => {
    const request = { model: 'piece', duration: '1 gen' };
    const sold = await order(await film({ seconds: 0.5, width: 64, height: 64 }), request);
    assert.deepEqual([sold.status, sold.cost], [200, 280_000_000n]);
  });

  test('a video with the length and shape of its source', async () => {
    const source = await film({ seconds: 4, width: 90, height: 160 });
    const request = {
      model: 'follower',
      duration: 'auto',
      aspect_ratio: 'adaptive',
      reference_video_urls: [`data:video/mp4;base64,${source.toString('base64')}`],
    };
    const right = await film({ seconds: 4, width: 256, height: 456 });
    const sold = await order(right, request);
    assert.equal(sold.status, 200, sold.bytes.toString('utf8', 0, 300));
    assertRefunded(await order(await film({ width: 256, height: 456 }), request));
  });

  test('members with internal names in a request do not change the order', async () => {
    const request = { ...ORDER, seconds: '1000', size: '9999x9999' };
    assert.equal((await order(await film(), request)).status, 200);
    const piece = { model: 'piece', duration: '1 gen', seconds: '1000', size: '9x9' };
    const sold = await order(await film(), piece);
    assert.equal(sold.status, 200);
    assert.doesNotMatch(sold.asked, /name="(?:seconds|size)"/);
  });
});
