/**
 * `POST /video/queue` with an idempotency key creates one job and one charge, whenever the server
 * dies or the caller disconnects.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { sharp } from '../support/sharp.ts';
import { systemClock } from '../../src/core/clock.ts';
import { processResponses } from '../app/process-responses.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { openTestStore } from '../databases/stores.ts';
import { makeClip } from '../media/clips.ts';
import type { DyingServerGreeting, DyingServerOrder } from './dying-server.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { until } from '../support/until.ts';

/** Longer than the lease of an idempotency key, which a dead process cannot release. */
const LATER_MS = 61_000;
/** A request makes fewer database calls. */
const MAX_PLACES = 60;
const PRICE_NANO = 280_000_000n;
const ORDER = { model: 'film', prompt: 'a lighthouse', duration: '1 gen' };

const folder = mkdtempSync(join(tmpdir(), 'farebox-queue-once-'));
const PICTURE = { width: 64, height: 64, channels: 3, background: '#225588' } as const;
/** An image that is requested, and sent when the test allows it. */
function openGate() {
  return { asked: Promise.withResolvers<void>(), open: Promise.withResolvers<void>() };
}
let gate = openGate();
const engine = createServer((request, response) => {
  request.resume();
  const { method, url = '' } = request;
  if (url === '/picture.png') {
    gate.asked.resolve();
    void gate.open.promise.then(async () => {
      const png = await sharp({ create: PICTURE }).png().toBuffer();
      response.writeHead(200, { 'content-type': 'image/png' }).end(png);
    });
  } else if (url.endsWith('/content')) {
    response.writeHead(200, { 'content-type': 'video/mp4' }).end(film);
  } else {
    const status = method === 'POST' ? 'queued' : 'completed';
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ id: 'v1', status, progress: 100 }));
  }
});
let film: Buffer;
let engineUrl: string;
let yaml: string;
const children = new Set<ChildProcess>();

before(async () => {
  film = await makeClip(folder, { width: 64, height: 64, seconds: 1, framesPerSecond: 8 });
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const { port } = engine.address() as AddressInfo; // a listening TCP server has one
  engineUrl = `http://127.0.0.1:${port}`;
  yaml = `fetch: { allow: [127.0.0.0/8] }
engines: { studio: { url: "${engineUrl}/v1" } }
video: { maxOpenJobs: 200 }
limits: { starterCreditUsd: 100, plans: { staff: { videoQueue: 1000, videoRetrieve: 100000 } } }
models:
  - id: film
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } }
  - id: moving
    type: video
    replicas: [{ engine: studio }]
    video: { task: image-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } }
`;
});
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  engine.closeAllConnections();
  engine.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Mortal extends DyingServerGreeting {
  /** The server dies after this number of database calls of the next request. */
  arm(places: number): Promise<void>;
  readonly gone: Promise<unknown>;
  kill(): Promise<void>;
}

async function startMortal(order: DyingServerOrder): Promise<Mortal> {
  const answers = processResponses();
  const child = endWithUs(
    fork(new URL('./dying-server.ts', import.meta.url), [], {
      // Removes the environment of the test run.
      env: childEnvironment(answers.env),
      execArgv: [],
    }),
  );
  children.add(child);
  const gone = once(child, 'exit').then(() => {
    children.delete(child);
    answers.assertFitting();
  });
  child.send(order);
  const [greeting] = (await once(child, 'message')) as [DyingServerGreeting]; // from the process file
  await answers.follow(greeting.url, order.yaml);
  return {
    ...greeting,
    gone,
    arm: async (places) => {
      child.send(places);
      await once(child, 'message');
    },
    kill: async () => {
      child.kill('SIGKILL');
      await gone;
    },
  };
}

interface Told {
  readonly id: string;
  readonly isReplayed: boolean;
}

async function queue(
  server: { readonly url: string; readonly secret: string },
  key: string,
  options: { readonly order?: object; readonly signal?: AbortSignal } = {},
): Promise<Told> {
  const answer = await fetch(`${server.url}/video/queue`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${server.secret}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: JSON.stringify(options.order ?? ORDER),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  const { queue_id: id } = JSON.parse(text) as { queue_id: string }; // documented
  return { id, isReplayed: answer.headers.get('idempotent-replayed') === 'true' };
}

/** Jobs in the database, oldest first. */
async function jobIds(dataFolder: string): Promise<string[]> {
  const store = await openTestStore(`sqlite:${join(dataFolder, 'farebox.db')}`);
  try {
    const rows = await store.query<{ id: string }>(
      "SELECT id FROM video_job WHERE state NOT IN ('admitting', 'failed') ORDER BY created_ms, id",
    );
    return rows.map(({ id }) => id);
  } finally {
    await store.close();
  }
}

/** Waits until the engine has every order; a job whose server dies twice during its submission is refunded. */
async function untilAllAreOrdered(dataFolder: string): Promise<void> {
  const store = await openTestStore(`sqlite:${join(dataFolder, 'farebox.db')}`);
  try {
    const waiting = () => store.query("SELECT id FROM video_job WHERE state = 'queued'");
    await until(async () => (await waiting()).length === 0, 'that all jobs are ordered');
  } finally {
    await store.close();
  }
}

async function chargesOnceEach(farebox: TestApp, ids: readonly string[]): Promise<void> {
  const sql = "SELECT id, amount_nano FROM ledger_transfer WHERE kind = 'CHARGE' ORDER BY id";
  const { store, ledger } = farebox.app.stores;
  const charges = () => store.query<{ id: string; amount_nano: bigint }>(sql);
  const isDone = async (): Promise<boolean> =>
    (await charges()).length >= ids.length && (await ledger.openHolds()).count === 0;
  await until(isDone, 'the end of the jobs');
  assert.deepEqual(
    (await charges()).map((row) => [row.id, row.amount_nano]),
    ids.toSorted().map((id) => [id, PRICE_NANO]),
  );
  assert.deepEqual((await ledger.openHolds()).count, 0);
  await farebox.audit();
}

/** Sends the request to a server that dies; `undefined` if it died before its response. */
async function queueUntilDeath(server: Mortal, key: string): Promise<Told | undefined> {
  try {
    return await queue(server, key);
  } catch (error) {
    // The connection ended with the server; a wrong response is an error.
    if (error instanceof assert.AssertionError) throw error;
    return undefined;
  }
}

test('one key is one job and one charge, at whatever point the server is killed', async () => {
  const dataFolder = mkdtempSync(join(folder, 'killed-'));
  const clock = systemClock();
  const ids: string[] = [];
  let aheadMs = 0;
  const start = (): Promise<Mortal> => {
    aheadMs += LATER_MS;
    return startMortal({ dataFolder, yaml, aheadMs });
  };
  let deathsAfterJob = 0;
  let server = await start();
  for (let place = 1; ; place += 1) {
    assert.ok(place < MAX_PLACES, 'The request asks its database without end');
    const key = `key-${place}`;
    await server.arm(place);
    const told = await queueUntilDeath(server, key);
    if (told !== undefined) await server.kill();
    await server.gone;
    const made = (await jobIds(dataFolder)).filter((id) => !ids.includes(id));
    server = await start();
    const retry = await queue(server, key);
    // A job that existed when the server died is the job of the retry.
    assert.deepEqual(made, retry.isReplayed ? [retry.id] : [], `place ${place}`);
    assert.deepEqual(await queue(server, key), { id: retry.id, isReplayed: true });
    ids.push(retry.id);
    assert.deepEqual((await jobIds(dataFolder)).toSorted(), ids.toSorted(), `place ${place}`);
    await untilAllAreOrdered(dataFolder);
    if (told !== undefined) break;
    if (retry.isReplayed) deathsAfterJob += 1;
  }
  await server.kill();
  assert.ok(deathsAfterJob > 0, 'No server died between the job and its answer');
  const ahead = { ...clock, nowMs: () => clock.nowMs() + aheadMs + LATER_MS };
  const farebox = await startTestApp({ dataFolder, yaml, clock: ahead });
  try {
    await chargesOnceEach(farebox, ids);
  } finally {
    await farebox.stop();
  }
});

/** Queues a video whose image is not available yet, in a new server. */
async function queueWithoutPicture() {
  gate = openGate();
  const dataFolder = mkdtempSync(join(folder, 'waiting-'));
  const farebox = await startTestApp({ dataFolder, yaml });
  const server = { url: farebox.url, secret: farebox.owner.secret };
  const order = { ...ORDER, model: 'moving', image_url: `${engineUrl}/picture.png` };
  const caller = new AbortController();
  const answer = queue(server, 'waiting', { order, signal: caller.signal });
  await gate.asked.promise;
  return {
    farebox,
    dataFolder,
    caller,
    answer,
    again: () => queue(server, 'waiting', { order }),
  };
}

test('after a disconnect a retry with the key finds the job, which is charged once', async () => {
  const { farebox, dataFolder, caller, answer, again } = await queueWithoutPicture();
  try {
    caller.abort();
    await assert.rejects(answer, { name: 'AbortError' });
    gate.open.resolve();
    const { id, isReplayed } = await again();
    assert.equal(isReplayed, true);
    assert.deepEqual(await jobIds(dataFolder), [id]);
    await chargesOnceEach(farebox, [id]);
  } finally {
    await farebox.stop();
  }
});

test('a request that has lost its key creates no job', async () => {
  const { farebox, dataFolder, answer } = await queueWithoutPicture();
  try {
    // As if the process had been suspended for longer than its lease.
    await farebox.app.stores.store.query("UPDATE idempotency_entry SET token = 'another'");
    gate.open.resolve();
    await assert.rejects(answer, /409 !== 200|REQUEST_IN_PROGRESS/);
    assert.deepEqual(await jobIds(dataFolder), []);
  } finally {
    await farebox.stop();
  }
});
