/**
 * Kills at points that are spread over the run of each kind of job: a video, a batch, an image and a
 * transcription. After the restart the caller repeats the request with its key; each job has one
 * result and one charge. `FAREBOX_KILL_POINTS` sets the number of points.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import OpenAI from 'openai';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { openTestStore } from '../databases/stores.ts';
import { makeClip, toneWav } from '../media/clips.ts';
import { batchEnd, chatLine, linesOfFile, uploadLines } from '../support/batch-client.ts';
import { type LoopbackEngine, openEngine, sendJson } from '../support/loopback-engine.ts';
import { sharp } from '../support/sharp.ts';
import { type FareboxProcess, startFarebox } from './farebox-process.ts';

const POINTS = Number(process.env['FAREBOX_KILL_POINTS'] ?? '2');
const LINES = 10;
/** About the time that a job takes, in milliseconds. */
const RUN_MS = { video: 5_000, batch: 2_000, transcription: 1_500, image: 800 };
type Kind = keyof typeof RUN_MS;
const KINDS = Object.keys(RUN_MS) as Kind[];
const RETRY_MS = 250;
const MOST_MS = 120_000;

const folder = mkdtempSync(join(tmpdir(), 'farebox-job-kills-'));
let engine: LoopbackEngine;
let running: FareboxProcess | undefined;
let secret = '';

before(async () => {
  engine = await openEngine();
  const color = { r: 200, g: 20, b: 20 };
  const png = await sharp({ create: { width: 32, height: 32, channels: 3, background: color } })
    .png()
    .toBuffer();
  const clip = await makeClip(folder, { width: 64, height: 64, seconds: 1, framesPerSecond: 10 });
  const message = { role: 'assistant', content: 'Hi' };
  const completion = {
    object: 'chat.completion',
    choices: [{ index: 0, finish_reason: 'stop', message }],
    usage: { prompt_tokens: 12, completion_tokens: 5 },
  };
  const videos = new Map<string, number>();
  engine.answer = async ({ method, path, key = '' }, response) => {
    if (path === '/v1/images/generations') {
      await delay(400);
      return sendJson(response, 200, { data: [{ b64_json: png.toString('base64') }] });
    }
    if (path === '/v1/audio/transcriptions') {
      await delay(500);
      return sendJson(response, 200, { text: 'hello' });
    }
    if (path === '/v1/chat/completions') {
      await delay(150);
      return sendJson(response, 200, completion);
    }
    if (method === 'POST') {
      if (!videos.has(key)) videos.set(key, performance.now());
      return sendJson(response, 200, { id: key, status: 'queued' });
    }
    if (path.endsWith('/content')) {
      return response.writeHead(200, { 'content-type': 'video/mp4' }).end(clip);
    }
    const id = path.split('/').at(-1) ?? '';
    const createdMs = videos.get(id);
    if (createdMs === undefined) {
      const data = [...videos.keys()].map((one) => ({ id: one, idempotency_key: one }));
      return sendJson(response, 200, { object: 'list', data });
    }
    const isDone = performance.now() - createdMs > 1_000;
    return sendJson(response, 200, { id, status: isDone ? 'completed' : 'in_progress' });
  };
});
after(async () => {
  await running?.stop('SIGKILL');
  await engine.close();
  rmSync(folder, { recursive: true, force: true });
});

async function start(): Promise<void> {
  running = await startFarebox({
    folder,
    uncheckedResponses: true,
    yaml: `listen: { host: 127.0.0.1, port: 0 }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
limits: { unsoldPerMinute: 1000000, guard: { failures: 100000 } }
engines: { studio: { url: "${engine.url}/v1" } }
models:
  - { id: atlas, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: studio }] }
  - { id: painter, type: image, limits: { requestsPerMinute: 100000 }, price: { perImage: 0.0001 }, replicas: [{ engine: studio }] }
  - { id: ears, type: asr, limits: { requestsPerMinute: 100000 }, price: { perSecond: 0.0001 }, replicas: [{ engine: studio }] }
  - id: film
    type: video
    limits: { requestsPerMinute: 100000 }
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1s], pricing: { kind: generation, perGeneration: 0.0001 } }
`,
  });
  secret = running.secret ?? secret;
}

async function post(path: string, key: string, body: object | FormData): Promise<Response> {
  const isForm = body instanceof FormData;
  return await fetch(`${running?.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${secret}`,
      'idempotency-key': key,
      ...(isForm ? {} : { 'content-type': 'application/json' }),
    },
    body: isForm ? body : JSON.stringify(body),
  });
}

/** Batches by key: the file of the request, once it was uploaded. */
const files = new Map<string, string>();

/** Sends the request of a job. A repetition with the same key is the same job. */
const REQUESTS: Readonly<Record<Kind, (key: string) => Promise<Response>>> = {
  image: (key) => post('/images/generations', key, { model: 'painter', prompt: 'A boat' }),
  transcription: (key) => {
    const form = new FormData();
    form.set('model', 'ears');
    form.set('file', new Blob([new Uint8Array(toneWav('ab'))]), 'speech.wav');
    return post('/audio/transcriptions', key, form);
  },
  video: (key) => post('/video/queue', key, { model: 'film', prompt: 'A boat', duration: '1s' }),
  batch: async (key) => {
    const lines = Array.from({ length: LINES }, (_, at) => chatLine(`${key}-${at}`));
    const id = files.get(key) ?? (await uploadLines(client(), lines)).id;
    files.set(key, id);
    return await post('/batches', key, {
      input_file_id: id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
  },
};

function client(): OpenAI {
  return new OpenAI({ baseURL: running?.url ?? '', apiKey: secret, maxRetries: 0 });
}

/** Repeats a request until its response is a success. */
async function succeeded(send: () => Promise<Response>): Promise<Response> {
  const endMs = performance.now() + MOST_MS;
  let last = '';
  while (performance.now() < endMs) {
    const response = await send();
    if (response.status === 200) return response;
    last = await response.text();
    await delay(RETRY_MS);
  }
  return assert.fail(`No success: ${last}`);
}

/** Waits for the result of a job with the key. */
async function finish(kind: Kind, key: string): Promise<void> {
  const response = await succeeded(() => REQUESTS[kind](key));
  if (kind === 'image' || kind === 'transcription') return void (await response.arrayBuffer());
  const made = (await response.json()) as { id: string; queue_id: string };
  if (kind === 'batch') {
    const batch = await batchEnd(client(), made.id);
    assert.deepEqual(batch.request_counts, { total: LINES, completed: LINES, failed: 0 });
    assert.equal((await linesOfFile(client(), batch.output_file_id)).length, LINES);
    return;
  }
  const endMs = performance.now() + MOST_MS;
  for (;;) {
    const { queue_id } = made;
    const video = await post('/video/retrieve', `${key}-get-${Math.random()}`, { queue_id });
    const bytes = Buffer.from(await video.arrayBuffer());
    assert.equal(video.status, 200, bytes.toString().slice(0, 500));
    if (video.headers.get('content-type') === 'video/mp4') return;
    assert.ok(performance.now() < endMs, bytes.toString());
    await delay(RETRY_MS);
  }
}

test(`${POINTS} kills within each kind of job: each has one result and one charge`, async () => {
  await start();
  const leadMs = Math.max(...Object.values(RUN_MS));
  for (let point = 0; point < POINTS; point += 1) {
    const share = (point + 0.5) / POINTS;
    const works = KINDS.map(async (kind) => {
      await delay(share * (leadMs - RUN_MS[kind]));
      const response = await REQUESTS[kind](`${kind}-${point}`);
      await response.arrayBuffer();
    });
    const lost = Promise.allSettled(works);
    await delay(share * leadMs);
    await running?.stop('SIGKILL');
    await lost;
    await start();
    await Promise.all(KINDS.map((kind) => finish(kind, `${kind}-${point}`)));
  }
  await running?.stop('SIGTERM');
  const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  try {
    const charged = await store.query<{ kind: string; count: bigint; usd: bigint }>(
      `SELECT kind, count(*) AS count, CAST(sum(usd_nano + diem_nano) AS BIGINT) AS usd
       FROM ledger_usage WHERE usd_nano + diem_nano > 0 GROUP BY kind ORDER BY kind`,
    );
    const points = BigInt(POINTS);
    assert.deepEqual(
      charged.map(({ kind, count, usd }) => [kind, count, usd]),
      [
        ['chat', points * BigInt(LINES), points * BigInt(LINES) * 11_000n],
        ['image', points, points * 100_000n],
        ['transcription', points, points * 100_000n],
        ['video', points, points * 100_000n],
      ],
    );
    const postings = await store.query<{ count: bigint }>(
      "SELECT count(*) AS count FROM ledger_transfer WHERE kind = 'CHARGE'",
    );
    assert.deepEqual(postings, [{ count: points * BigInt(LINES + 3) }]);
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const report = await ledger.audit();
    assert.deepEqual([report.differences, report.openHolds], [[], 0]);
  } finally {
    await store.close();
  }
});
