import assert from 'node:assert/strict';
import { type AddressInfo, createServer } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { Worker } from 'node:worker_threads';

import { systemClock } from '../core/clock.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { silentLog } from '../core/log.ts';
import { Engines } from './engines.ts';
import type {
  EngineCall,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSettings,
  EngineSink,
  Replica,
} from './engines.ts';
import { TestUpstream } from '../../test/support/test-upstream.ts';
import { heapBytes } from '../../test/support/heap-bytes.ts';
import { freePort } from '../../test/support/free-port.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { rawServer } from '../../test/support/raw-server.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';

async function upstreamFor(t: TestContext): Promise<TestUpstream> {
  const upstream = await TestUpstream.start();
  t.after(() => upstream.kill().catch(() => undefined));
  return upstream;
}

function enginesFor(
  t: TestContext,
  settings: readonly EngineSettings[],
  clock = systemClock(),
): Engines {
  const engines = new Engines({ clock, ids: seededIds(1), log: silentLog });
  t.after(() => engines.close());
  engines.update(settings);
  return engines;
}

function engine(id: string, url: string, more: Partial<EngineSettings> = {}): EngineSettings {
  return { id, protocol: 'openai', url, ...more };
}

/** One upstream, and the engine `a` for it. */
async function withOne(t: TestContext, more: Partial<EngineSettings> = {}, clock = systemClock()) {
  const upstream = await upstreamFor(t);
  return { upstream, engines: enginesFor(t, [engine('a', upstream.url, more)], clock) };
}

/** Two upstreams, and the engines `a` and `b` for them. */
async function withTwo(t: TestContext, clock = systemClock()) {
  const [a, b] = [await upstreamFor(t), await upstreamFor(t)];
  const engines = enginesFor(t, [engine('a', a.url), engine('b', b.url)], clock);
  return { a, b, engines };
}

function callTo(replicas: readonly Replica[], more: Partial<EngineCall> = {}): EngineCall {
  return {
    work: 'chat',
    replicas,
    method: 'POST',
    path: '/chat/completions',
    contentType: 'application/json',
    buildBody: (replica) => Buffer.from(`{"model":"${replica.model}","messages":[]}`),
    maxResponseBytes: 10_000_000,
    ...more,
  };
}

const ON_A: readonly Replica[] = [{ engine: 'a', model: 'tiny' }];
const ON_A_AND_B: readonly Replica[] = [
  { engine: 'a', model: 'tiny', order: 0 },
  { engine: 'b', model: 'tiny', order: 1 },
];

class Recorder implements EngineSink {
  readonly heads: EngineHead[] = [];
  readonly chunks: Buffer[] = [];
  run: EngineRun | null = null;
  onChunkDo: ((run: EngineRun, count: number) => boolean | undefined) | null = null;

  onHead(head: EngineHead): void {
    this.heads.push(head);
  }

  onChunk(chunk: Buffer): boolean {
    this.chunks.push(chunk);
    return this.onChunkDo?.(this.run!, this.chunks.length) ?? true;
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString('utf8');
  }
}

async function runTo(
  engines: Engines,
  call: EngineCall,
  recorder = new Recorder(),
): Promise<{ outcome: EngineOutcome; recorder: Recorder }> {
  recorder.run = engines.run(call, recorder);
  return { outcome: await recorder.run.outcome, recorder };
}

function failureOf(outcome: EngineOutcome): Extract<EngineOutcome, { ok: false }> {
  assert.equal(outcome.ok, false);
  return outcome;
}

test('a call sends the key, the headers and the model name of its replica, and returns the JSON response', async (t) => {
  const upstream = await upstreamFor(t);
  const settings = engine('a', upstream.url, { apiKey: 'k1', headers: { 'x-rack': '7' } });
  const engines = enginesFor(t, [settings]);
  const { outcome, recorder } = await runTo(
    engines,
    callTo(ON_A, { headers: ['x-request-id', 'r9'] }),
  );
  assert.ok(outcome.ok);
  assert.equal(outcome.attempts, 1);
  assert.deepEqual(outcome.replica, ON_A[0]);
  assert.equal(outcome.bytes, recorder.text.length);
  assert.equal(JSON.parse(recorder.text).model, 'tiny');
  assert.equal(recorder.heads[0]!.status, 200);
  const [seen] = upstream.seen;
  assert.equal(seen!.path, '/v1/chat/completions');
  assert.equal(seen!.headers.authorization, 'Bearer k1');
  assert.equal(seen!.headers['x-rack'], '7');
  assert.equal(seen!.headers['x-request-id'], 'r9');
});

test('only an embedded engine that takes turns receives the caller header', async (t) => {
  const upstream = await upstreamFor(t);
  for (const takesTurns of [true, undefined]) {
    const engines = enginesFor(t, [engine('a', upstream.url, { takesTurns })]);
    const { outcome } = await runTo(engines, callTo(ON_A, { caller: 'account' }));
    assert.ok(outcome.ok);
  }
  const callers = upstream.seen.map(({ headers }) => headers['x-farebox-caller']);
  assert.deepEqual(callers, ['account', undefined]);
});

test('the sink receives a stream completely and in order', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'stream', chunks: 50 };
  const { outcome, recorder } = await runTo(
    engines,
    callTo(ON_A, { accept: ['text/event-stream'] }),
  );
  assert.ok(outcome.ok);
  assert.match(recorder.text, / w0".* w49".*\[DONE\]\n\n$/s);
});

test('an engine can listen on a Unix socket', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'farebox-engine-'));
  const path = join(folder, 'e.sock');
  const upstream = await TestUpstream.start({ path });
  t.after(async () => {
    await upstream.kill();
    await rm(folder, { recursive: true });
  });
  const engines = enginesFor(t, [engine('a', `unix:${path}:/v1`)]);
  const { outcome } = await runTo(engines, callTo(ON_A));
  assert.ok(outcome.ok);
  assert.equal(upstream.seen[0]!.path, '/v1/chat/completions');
});

test('a call fails over from a replica that refuses connections', async (t) => {
  const dead = await TestUpstream.start();
  const deadUrl = dead.url;
  await dead.kill();
  const upstream = await upstreamFor(t);
  const engines = enginesFor(t, [engine('a', deadUrl), engine('b', upstream.url)]);
  const { outcome, recorder } = await runTo(engines, callTo(ON_A_AND_B));
  assert.ok(outcome.ok);
  assert.equal(outcome.attempts, 2);
  assert.equal(outcome.replica.engine, 'b');
  assert.equal(recorder.heads.length, 1);
  assert.equal(recorder.heads[0]!.attempts, 2);
});

for (const kind of ['reset', 'head-cut', 'not-http', 'html'] as const) {
  test(`a call fails over after "${kind}" before the first byte`, async (t) => {
    const { a, b, engines } = await withTwo(t);
    a.otherwise = { kind };
    b.otherwise = { kind: 'stream', chunks: 2 };
    const call = callTo(ON_A_AND_B, { accept: ['text/event-stream'] });
    const { outcome, recorder } = await runTo(engines, call);
    assert.ok(outcome.ok);
    assert.equal(outcome.replica.engine, 'b');
    assert.equal(recorder.heads.length, 1);
  });
}

for (const status of [401, 403, 404, 429, 500, 502, 503, 504]) {
  test(`a call fails over after status ${status}`, async (t) => {
    const { a, engines } = await withTwo(t);
    a.otherwise = { kind: 'status', status };
    const { outcome } = await runTo(engines, callTo(ON_A_AND_B));
    assert.ok(outcome.ok);
    assert.equal(outcome.replica.engine, 'b');
    assert.equal(a.seen.length, 1);
  });
}

for (const status of [400, 413, 422]) {
  test(`a ${status} is final and contains the error body of the engine`, async (t) => {
    const { a, b, engines } = await withTwo(t);
    a.otherwise = { kind: 'status', status, body: '{"error":"too long"}' };
    const failure = failureOf((await runTo(engines, callTo(ON_A_AND_B))).outcome);
    assert.equal(failure.reason, 'refused');
    assert.equal(failure.status, status);
    assert.equal(failure.body!.toString(), '{"error":"too long"}');
    assert.equal(failure.attempts, 1);
    assert.equal(b.seen.length, 0);
  });
}

test('a 401 of every engine is `misconfigured`', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'status', status: 401 };
  const failure = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.equal(failure.reason, 'misconfigured');
  assert.equal(failure.attempts, 1);
});

test('a call to a single replica is retried after a 500', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.script.push({ kind: 'status', status: 500 });
  const { outcome } = await runTo(engines, callTo(ON_A));
  assert.ok(outcome.ok);
  assert.equal(outcome.attempts, 2);
});

test('a call makes at most three attempts and returns the last 5xx', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'status', status: 500 };
  const failure = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.equal(failure.reason, 'failed');
  assert.equal(failure.attempts, 3);
  assert.equal(upstream.seen.length, 3);
});

test('a call waits for a short `Retry-After` and returns a long one', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.script.push({ kind: 'status', status: 429, headers: { 'retry-after': '1' } });
  const startedMs = performance.now();
  const first = await runTo(engines, callTo(ON_A));
  assert.ok(first.outcome.ok);
  assert.ok(performance.now() - startedMs >= 990);
  upstream.otherwise = { kind: 'status', status: 429, headers: { 'retry-after': '60' } };
  const failure = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.equal(failure.reason, 'overloaded');
  assert.equal(failure.retryAfterSeconds, 60);
  assert.equal(failure.attempts, 1);
});

test('a caller receives a `Retry-After` of an hour at most', async (t) => {
  const { upstream, engines } = await withOne(t);
  for (const wait of ['31536000', '9'.repeat(30), 'Fri, 01 Jan 2038 00:00:00 GMT']) {
    upstream.script.push({ kind: 'status', status: 429, headers: { 'retry-after': wait } });
    const failure = failureOf((await runTo(engines, callTo(ON_A, { maxAttempts: 1 }))).outcome);
    assert.equal(failure.retryAfterSeconds, 3_600, wait);
  }
});

test('a call fails over after the limit for the first byte', async (t) => {
  const { clock, pass } = stillClock();
  const { a, engines } = await withTwo(t, clock);
  a.otherwise = { kind: 'head-hang' };
  const running = runTo(engines, callTo(ON_A_AND_B, { timeLimits: { firstByteMs: 100 } }));
  await until(() => a.seen.length === 1, 'the first engine receives the request');
  pass(200);
  const { outcome } = await running;
  assert.ok(outcome.ok);
  assert.equal(outcome.replica.engine, 'b');
  await until(() => a.abandoned === 1, 'the hanging request is dropped');
});

test('a call without any first byte ends as `timeout`', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'hang' };
  const call = callTo(ON_A, { timeLimits: { firstByteMs: 80 } });
  const failure = failureOf((await runTo(engines, call)).outcome);
  assert.equal(failure.reason, 'timeout');
  assert.equal(failure.sawFirstByte, false);
  assert.equal(failure.attempts, 1);
});

test('a stalled stream ends by the idle limit and is not retried', async (t) => {
  const { a, b, engines } = await withTwo(t);
  a.otherwise = { kind: 'stream', chunks: 10, hangAfter: 4 };
  const call = callTo(ON_A_AND_B, { timeLimits: { idleMs: 100 } });
  const failure = failureOf((await runTo(engines, call)).outcome);
  assert.equal(failure.reason, 'timeout');
  assert.equal(failure.sawFirstByte, true);
  assert.ok(failure.bytes > 0);
  assert.equal(b.seen.length, 0);
});

test('a stream ends by the total limit', async (t) => {
  const { clock, pass } = stillClock();
  const { upstream, engines } = await withOne(t, {}, clock);
  upstream.otherwise = { kind: 'stream', chunks: 1_000, everyMs: 10 };
  const recorder = new Recorder();
  const call = callTo(ON_A, { timeLimits: { totalMs: 150 } });
  const running = runTo(engines, call, recorder);
  await until(() => recorder.chunks.length > 3, 'the stream runs');
  pass(200);
  const failure = failureOf((await running).outcome);
  assert.equal(failure.reason, 'timeout');
  assert.equal(failure.sawFirstByte, true);
});

test('a stream of an engine that dies ends as `broken` after the received part', async (t) => {
  const { a, b, engines } = await withTwo(t);
  a.otherwise = { kind: 'stream', chunks: 1_000, everyMs: 5 };
  const recorder = new Recorder();
  recorder.onChunkDo = (_run, count) => {
    if (count === 3) void a.kill();
    return true;
  };
  const { outcome } = await runTo(engines, callTo(ON_A_AND_B), recorder);
  const failure = failureOf(outcome);
  assert.equal(failure.reason, 'broken');
  assert.equal(failure.sawFirstByte, true);
  assert.equal(failure.bytes, recorder.text.length);
  assert.equal(recorder.heads.length, 1);
  assert.equal(b.seen.length, 0);
});

test('a call fails over if the engine dies before the first byte', async (t) => {
  const { a, engines } = await withTwo(t);
  a.otherwise = { kind: 'hang' };
  const pending = runTo(engines, callTo(ON_A_AND_B));
  await until(() => a.seen.length === 1, 'the request arrives');
  await a.kill();
  const { outcome } = await pending;
  assert.ok(outcome.ok);
  assert.equal(outcome.replica.engine, 'b');
});

test('a header that an engine sends twice is accepted', async (t) => {
  const { upstream, engines } = await withOne(t);
  const answer = (status: number, headers: Record<string, string[]>) => {
    upstream.script.push({
      kind: 'own',
      answer: (response) => response.writeHead(status, headers).end('{}'),
    });
  };
  answer(200, { 'content-type': ['application/json', 'application/json'] });
  assert.equal((await engines.collect(callTo(ON_A, { accept: ['application/json'] }))).ok, true);
  answer(429, { 'retry-after': ['60', '60'] });
  const refused = await engines.collect(callTo(ON_A, { maxAttempts: 1 }));
  assert.equal(failureOf(refused).reason, 'overloaded');
});

test('an error thrown by a function of the call rejects the call', async (t) => {
  const { upstream, engines } = await withOne(t);
  const bug = (): never => {
    throw new Error('a bug');
  };
  const ends = async (more: object) =>
    assert.rejects(engines.collect({ ...callTo(ON_A), ...more }), /a bug/);
  await ends({ isUsable: bug });
  await ends({ buildBody: bug });
  upstream.script.push({ kind: 'status', status: 400 });
  const buildBody = (_replica: Replica, refusal?: object) => {
    return refusal === undefined ? Buffer.from('{}') : bug();
  };
  await ends({ canAmend: true, buildBody });
  assert.equal(engines.running, 0);
  assert.equal(engines.replicaStatus(ON_A)[0]!.inFlight, 0);
});

test('a non-streaming call fails over after a broken or unusable body', async (t) => {
  const { a, engines } = await withTwo(t);
  a.script.push({ kind: 'stream', chunks: 5, cutAfter: 2 }, { kind: 'half-json' });
  const isUsable = (body: Buffer): boolean => {
    try {
      return typeof JSON.parse(body.toString()) === 'object';
    } catch {
      return false;
    }
  };
  for (const run of [1, 2]) {
    const response = await engines.collect({ ...callTo(ON_A_AND_B), isUsable });
    assert.ok(response.ok, `run ${run}`);
    assert.equal(response.replica.engine, 'b');
    assert.equal(JSON.parse(response.body.toString()).object, 'chat.completion');
    assert.equal(response.bytes, response.body.length);
  }
  assert.equal(a.seen.length, 2);
});

test('a large response is complete, with and without an announced length, also after a retry', async (t) => {
  const { a, b, engines } = await withTwo(t);
  const bytes = Buffer.from(Uint32Array.from({ length: 1_000_000 }, (_, at) => at).buffer);
  const send = (length: number | undefined): void => {
    a.script.push({
      kind: 'own',
      answer: (response) => {
        response.writeHead(200, length === undefined ? {} : { 'content-length': length });
        const isCut = length !== undefined && length > bytes.length;
        response.write(bytes.subarray(0, 3_000_000), () => {
          if (isCut) response.destroy();
          else response.end(bytes.subarray(3_000_000));
        });
      },
    });
  };
  for (const length of [bytes.length, undefined]) {
    send(length);
    const response = await engines.collect(callTo(ON_A));
    assert.ok(response.ok && response.body.equals(bytes) && response.bytes === bytes.length);
  }
  send(bytes.length + 1);
  const second = await engines.collect(callTo(ON_A_AND_B));
  assert.ok(second.ok && b.seen.length === 1);
  assert.equal(JSON.parse(second.body.toString()).object, 'chat.completion');
});

test('`isUsable` may be asynchronous, also while the caller disconnects', async (t) => {
  const { engines } = await withTwo(t);
  let checks = 0;
  const isUsable = async (): Promise<boolean> => (checks += 1) > 1;
  const response = await engines.collect({ ...callTo(ON_A_AND_B), isUsable });
  assert.ok(response.ok);
  assert.deepEqual([response.attempts, checks], [2, 2]);

  const [begun, verdict, caller] = [
    Promise.withResolvers<void>(),
    Promise.withResolvers<boolean>(),
    new AbortController(),
  ];
  const abandoned = engines.collect({
    ...callTo(ON_A_AND_B, { signal: caller.signal }),
    isUsable: () => {
      begun.resolve();
      return verdict.promise;
    },
  });
  await begun.promise;
  caller.abort();
  assert.equal(failureOf(await abandoned).reason, 'aborted');
  verdict.resolve(true);
  await until(
    () => engines.status().every(({ replicas }) => replicas.every((one) => one.inFlight === 0)),
    'its slot is released',
  );

  const broken = engines.collect({
    ...callTo(ON_A_AND_B),
    isUsable: () => Promise.reject(new Error('a rejected check')),
  });
  await assert.rejects(broken, /a rejected check/);
  assert.equal(engines.running, 0);
});

test('a response above the byte limit ends as `too-large`', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.script.push({ kind: 'json', sizeBytes: 5_000 }, { kind: 'stream', chunks: 1_000 });
  const call = callTo(ON_A, { maxResponseBytes: 4_000 });
  const declared = failureOf((await runTo(engines, call)).outcome);
  assert.deepEqual([declared.reason, declared.sawFirstByte], ['too-large', false]);
  const counted = failureOf((await runTo(engines, call)).outcome);
  assert.deepEqual([counted.reason, counted.attempts], ['too-large', 1]);
});

test('an idle connection that the engine closed does not count as a failure', async (t) => {
  const { upstream, engines } = await withOne(t);
  for (let round = 0; round < 20; round += 1) {
    const { outcome } = await runTo(engines, callTo(ON_A));
    assert.ok(outcome.ok);
    assert.equal(outcome.attempts, 1);
    // The next request is sent in the same tick in which the engine closes the connection.
    upstream.dropIdle();
  }
  assert.equal(engines.status()[0]!.replicas[0]!.failures, 0);
});

test('an engine that sends an unsolicited response loses keep-alive, which is logged once', async (t) => {
  const url = await rawServer(t, (socket) => {
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString();
      const id = /"id":"([a-z0-9]+)"\}/.exec(text)?.[1];
      if (id === undefined) return;
      text = '';
      const body = JSON.stringify({ id });
      const answer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
      socket.write(answer);
      setImmediate(() => socket.writable && socket.write(answer));
    });
  });
  const lines: LogLine[] = [];
  const engines = new Engines({ clock: systemClock(), ids: seededIds(1), log: memoryLog(lines) });
  t.after(() => engines.close());
  engines.update([engine('a', url)]);
  const get = async (id: string): Promise<string> => {
    const response = await engines.collect(
      callTo(ON_A, { buildBody: () => Buffer.from(`{"id":"${id}"}`) }),
    );
    return response.ok ? JSON.parse(response.body.toString()).id : response.reason;
  };
  assert.equal(await get('first'), 'first');
  await until(() => engines.status()[0]?.keepsAlive === false, 'the loss of keep-alive');
  // Changed settings open new connections to the same origin.
  engines.update([engine('a', url, { concurrency: 200 })]);
  assert.equal(engines.status()[0]?.keepsAlive, false);
  const ids = Array.from({ length: 300 }, (_, at) => `n${at}`);
  assert.deepEqual(await Promise.all(ids.map(get)), ids);
  const { isHealthy, failures } = engines.status()[0]!.replicas[0]!;
  assert.deepEqual([isHealthy, failures], [true, 0]);
  assert.deepEqual(
    lines.map(({ level, fields }) => [level, fields]),
    [['warn', { origin: url }]],
  );
});

test('an invalid HTTP response fails over at once', async (t) => {
  const b = await upstreamFor(t);
  const ok = 'HTTP/1.1 200 OK\r\n';
  for (const response of [
    'HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\n\n{}',
    `${ok}transfer-encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n`,
    `${ok}content-length: 2\r\ncontent-length: 3\r\n\r\n{}`,
    `${ok}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}`,
    `${ok}x: a\r\n folded\r\ncontent-length: 2\r\n\r\n{}`,
  ]) {
    const url = await rawServer(t, (socket) => socket.on('data', () => socket.write(response)));
    const engines = enginesFor(t, [engine('a', url), engine('b', b.url)]);
    const startedMs = performance.now();
    const failure = failureOf(await engines.collect(callTo(ON_A)));
    assert.deepEqual([failure.reason, failure.attempts], ['garbage', 1], response);
    const { outcome } = await runTo(engines, callTo(ON_A_AND_B));
    assert.ok(outcome.ok && outcome.replica.engine === 'b', response);
    assert.ok(performance.now() - startedMs < 1_000, response);
  }
});

test('a call with one attempt is sent once, and its failure contains whether it was sent', async (t) => {
  let connections = 0;
  let answers = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => undefined); // the client may disconnect at any time
    socket.on('data', () => {
      answers += 1;
      // The first response keeps the connection alive; the connection dies on the next request.
      if (answers === 1) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
      else socket.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  const engines = enginesFor(t, [
    engine('a', `http://127.0.0.1:${port}`),
    engine('b', 'http://127.0.0.1:9', { isOwn: true }),
  ]);
  assert.ok((await engines.collect(callTo(ON_A))).ok);
  // A connection accepts its next request one turn after its last response.
  await new Promise((resolve) => setTimeout(resolve, 20));
  const died = await engines.collect(callTo(ON_A, { maxAttempts: 1 }));
  assert.ok(!died.ok);
  assert.deepEqual([died.reason, died.wasSent, answers, connections], ['unreachable', true, 2, 1]);
  const absent = await engines.collect(
    callTo([{ engine: 'b', model: 'tiny' }], { maxAttempts: 1 }),
  );
  assert.ok(!absent.ok);
  assert.deepEqual([absent.reason, absent.wasSent], ['unreachable', false]);
});

test('an abort closes the request and ends the call as `aborted`', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'stream', chunks: 1_000, everyMs: 5 };
  const recorder = new Recorder();
  recorder.onChunkDo = (run, count) => {
    if (count === 3) run.abort();
    return true;
  };
  const failure = failureOf((await runTo(engines, callTo(ON_A), recorder)).outcome);
  assert.equal(failure.reason, 'aborted');
  assert.equal(failure.sawFirstByte, true);
  assert.equal(recorder.chunks.length, 3);
  // Without the abort the engine would write for seconds.
  await until(() => upstream.abandoned === 1, 'the engine notices the abort');
});

test('a signal aborts a call before and during it, and does nothing after it', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.script.push({ kind: 'hang' });
  const early = failureOf(
    (await runTo(engines, callTo(ON_A, { signal: AbortSignal.abort() }))).outcome,
  );
  assert.deepEqual([early.reason, early.attempts], ['aborted', 0]);
  const controller = new AbortController();
  const pending = runTo(engines, callTo(ON_A, { signal: controller.signal }));
  await until(() => upstream.seen.length === 1, 'the request arrives');
  controller.abort();
  assert.equal(failureOf((await pending).outcome).reason, 'aborted');
  const late = new AbortController();
  const { outcome } = await runTo(engines, callTo(ON_A, { signal: late.signal }));
  late.abort();
  assert.ok(outcome.ok);
});

test('1,000 aborted calls release all connections, slots and runs', async (t) => {
  const { upstream, engines } = await withOne(t, { concurrency: 100 });
  upstream.otherwise = { kind: 'stream', chunks: 100, everyMs: 50 };
  const pending = Array.from({ length: 1_000 }, (_, index) => {
    const recorder = new Recorder();
    recorder.onChunkDo = (run) => {
      run.abort();
      return true;
    };
    const run = runTo(engines, callTo(ON_A), recorder);
    // Some abort while waiting, some while connecting, the rest at the first byte.
    if (index % 3 === 0) recorder.run!.abort();
    if (index % 3 === 1) setImmediate(() => recorder.run!.abort());
    return run;
  });
  for (const { outcome } of await Promise.all(pending)) {
    assert.equal(failureOf(outcome).reason, 'aborted');
  }
  assert.equal(engines.running, 0);
  await until(() => engines.status()[0]!.busy === 0, 'the pool is empty');
  const [status] = engines.status();
  assert.deepEqual([status!.inFlight, status!.queued], [0, 0]);
  await until(() => upstream.active === 0, 'the engine is idle');
  assert.equal(status!.replicas[0]!.inFlight, 0);
  assert.equal(status!.replicas[0]!.breaker, 'closed');
});

test('a sink that returns `false` receives nothing until `resume`', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'stream', chunks: 20_000 };
  const recorder = new Recorder();
  let isPaused = false;
  recorder.onChunkDo = (run, count) => {
    assert.equal(isPaused, false);
    if (count % 500 !== 0) return true;
    isPaused = true;
    setTimeout(() => {
      isPaused = false;
      run.resume();
    }, 2);
    return false;
  };
  const { outcome } = await runTo(engines, callTo(ON_A), recorder);
  assert.ok(outcome.ok);
  assert.match(recorder.text, / w19999".*\[DONE\]\n\n$/s);
});

test('an error thrown by the sink rejects the outcome', async (t) => {
  const { upstream, engines } = await withOne(t);
  upstream.otherwise = { kind: 'stream', chunks: 1_000, everyMs: 5 };
  const recorder = new Recorder();
  recorder.onChunkDo = () => {
    throw new Error('a bug');
  };
  await assert.rejects(runTo(engines, callTo(ON_A), recorder), /a bug/);
  await until(() => upstream.abandoned === 1, 'the engine is freed');
  assert.equal(engines.running, 0);
  assert.equal(engines.status()[0]!.inFlight, 0);
});

test('`buildBody` is called once per replica', async (t) => {
  const { a, b, engines } = await withTwo(t);
  a.script.push({ kind: 'status', status: 500 });
  const built: string[] = [];
  const buildBody = (replica: Replica): Buffer => {
    built.push(replica.engine);
    return Buffer.from(`{"model":"tiny","for":"${replica.engine}"}`);
  };
  assert.ok((await runTo(engines, callTo(ON_A_AND_B, { buildBody }))).outcome.ok);
  assert.deepEqual(built, ['a', 'b']);
  assert.match(b.seen[0]!.body, /"for":"b"/);
  a.script.push({ kind: 'status', status: 500 });
  assert.ok((await runTo(engines, callTo(ON_A, { buildBody }))).outcome.ok);
  assert.deepEqual(built, ['a', 'b', 'a']);
});

test('calls to a full engine wait in a bounded queue, first come first served', async (t) => {
  const { upstream, engines } = await withOne(t, { concurrency: 1, maxQueued: 2 });
  upstream.script.push({ kind: 'hang' });
  const holder = new Recorder();
  const first = runTo(engines, callTo(ON_A), holder);
  await until(() => upstream.seen.length === 1, 'the holder has the slot');
  const order: number[] = [];
  const waiting = [1, 2].map(async (number) => {
    const { outcome } = await runTo(engines, callTo(ON_A));
    order.push(number);
    return outcome;
  });
  const failure = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.equal(failure.reason, 'overloaded');
  assert.equal(failure.attempts, 0);
  assert.equal(engines.status()[0]!.queued, 2);
  holder.run!.abort();
  await first;
  for (const outcome of await Promise.all(waiting)) assert.ok(outcome.ok);
  assert.deepEqual(order, [1, 2]);
  assert.equal(engines.status()[0]!.inFlight, 0);
});

test('an abort of several calls sends none of those that wait for a slot', async (t) => {
  const { upstream, engines } = await withOne(t, { concurrency: 1 });
  upstream.otherwise = { kind: 'hang' };
  const leave = new AbortController();
  const { signal } = leave;
  const running = [1, 2, 3].map(() => runTo(engines, callTo(ON_A, { signal })));
  await until(() => upstream.seen.length === 1, 'the first call has the slot');
  leave.abort();
  const failures = (await Promise.all(running)).map(({ outcome }) => failureOf(outcome));
  assert.deepEqual(
    failures.map(({ reason, attempts }) => `${reason} ${attempts}`),
    ['aborted 1', 'aborted 0', 'aborted 0'],
  );
  const [status] = engines.status();
  assert.deepEqual([status!.inFlight, status!.queued], [0, 0]);
});

test('`hasSpareCapacity` is true on an idle engine and while another slot stays free', async (t) => {
  const upstream = await upstreamFor(t);
  upstream.otherwise = { kind: 'hang' };
  const engines = enginesFor(t, [
    engine('one', upstream.url, { concurrency: 1 }),
    engine('three', upstream.url, { concurrency: 3 }),
  ]);
  const on = (id: string): Replica[] => [{ engine: id, model: 'tiny' }];
  const spare = (): boolean[] =>
    ['one', 'three', 'none'].map((id) => engines.hasSpareCapacity(on(id)));
  assert.deepEqual(spare(), [true, true, false]);
  const runs = [engines.run(callTo(on('one')), new Recorder())];
  runs.push(engines.run(callTo(on('three')), new Recorder()));
  assert.deepEqual(spare(), [false, true, false]);
  runs.push(engines.run(callTo(on('three')), new Recorder()));
  assert.deepEqual(spare(), [false, false, false]);
  for (const run of runs) run.abort();
  await Promise.all(runs.map((run) => run.outcome));
  await until(() => spare().join() === 'true,true,false', 'the slots are free again');
});

test('calls are distributed by weight', async (t) => {
  const { a, b, engines } = await withTwo(t);
  a.otherwise = b.otherwise = { kind: 'hang' };
  const replicas = [
    { engine: 'a', model: 'tiny' },
    { engine: 'b', model: 'tiny', weight: 2 },
  ];
  const runs = Array.from({ length: 30 }, () => engines.run(callTo(replicas), new Recorder()));
  const loads = engines.status().map((status) => status.inFlight);
  assert.deepEqual(loads, [10, 20]);
  for (const run of runs) run.abort();
  await Promise.all(runs.map((run) => run.outcome));
});

test('calls with one affinity key use one replica, and a dead replica moves only its own keys', async (t) => {
  const upstreams = await Promise.all(['a', 'b', 'c'].map(() => upstreamFor(t)));
  const ids = ['a', 'b', 'c'];
  const engines = enginesFor(
    t,
    upstreams.map((upstream, index) => engine(ids[index]!, upstream.url)),
  );
  const replicas = ids.map((id) => ({ engine: id, model: 'tiny' }));
  const homeOf = async (key: string): Promise<string> => {
    const { outcome } = await runTo(engines, callTo(replicas, { affinityKey: key }));
    assert.ok(outcome.ok);
    return outcome.replica.engine;
  };
  const keys = Array.from({ length: 60 }, (_, index) => `conversation-${index}`);
  const homes = new Map<string, string>();
  for (const key of keys) homes.set(key, await homeOf(key));
  for (const key of keys) assert.equal(await homeOf(key), homes.get(key));
  for (const id of ids) {
    const share = [...homes.values()].filter((home) => home === id).length;
    assert.ok(share >= 8, `${id} has ${share} of 60`);
  }
  await upstreams[0]!.kill();
  for (const key of keys) {
    const home = await homeOf(key);
    if (homes.get(key) === 'a') assert.notEqual(home, 'a');
    else assert.equal(home, homes.get(key));
  }
});

test('the breaker of a dead engine opens, rejects calls with a retry time, and closes after a successful probe', async (t) => {
  const port = await freePort();
  const { clock, pass } = stillClock();
  const engines = enginesFor(t, [engine('a', `http://127.0.0.1:${port}/v1`)], clock);
  for (let round = 0; round < 2; round += 1) {
    assert.equal(failureOf((await runTo(engines, callTo(ON_A))).outcome).reason, 'unreachable');
  }
  assert.equal(engines.isReady(ON_A), false);
  assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'open');
  const refused = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.deepEqual([refused.reason, refused.attempts], ['unreachable', 0]);
  assert.equal(refused.retryAfterSeconds, 1);
  const second = await TestUpstream.start({ port });
  t.after(() => second.kill());
  pass(1_500);
  assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'half-open');
  assert.equal(engines.isReady(ON_A), false, 'half-open is not ready');
  assert.ok((await runTo(engines, callTo(ON_A))).outcome.ok);
  assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'closed');
  assert.ok(engines.isReady(ON_A));
});

test('a stream from an engine that has returned does not block other calls until its end', async (t) => {
  const port = await freePort();
  const { clock, pass } = stillClock();
  const engines = enginesFor(t, [engine('a', `http://127.0.0.1:${port}/v1`)], clock);
  for (let round = 0; round < 2; round += 1) await runTo(engines, callTo(ON_A));
  const back = await TestUpstream.start({ port });
  t.after(() => back.kill());
  pass(1_500);
  const end = Promise.withResolvers<undefined>();
  back.script.push({ kind: 'stream', chunks: 2, endsAfter: end.promise });
  const recorder = new Recorder();
  const stream = engines.run(callTo(ON_A, { caller: 'alice' }), recorder);
  await until(() => recorder.heads.length > 0, 'the first byte of the stream');
  assert.ok((await runTo(engines, callTo(ON_A, { caller: 'bob' }))).outcome.ok);
  end.resolve(undefined);
  assert.ok((await stream.outcome).ok);
});

test('a long call to an engine that accepts connections again does not block other calls', async (t) => {
  const port = await freePort();
  const { clock, pass } = stillClock();
  const url = `http://127.0.0.1:${port}/v1`;
  const engines = enginesFor(t, [engine('a', url, { timeLimits: { connectMs: 3_000 } })], clock);
  for (let round = 0; round < 2; round += 1) await runTo(engines, callTo(ON_A));
  const back = await TestUpstream.start({ port });
  t.after(() => back.kill());
  pass(1_500);
  const end = Promise.withResolvers<undefined>();
  back.script.push({ kind: 'answer', after: end.promise });
  const long = engines.collect(callTo(ON_A, { caller: 'alice' }));
  await until(() => back.active === 1, 'the request of the long call');
  const other = () => engines.collect(callTo(ON_A, { caller: 'bob' }));
  assert.equal(failureOf(await other()).reason, 'unreachable', 'it may still be connecting');
  pass(4_500);
  assert.ok((await other()).ok);
  end.resolve(undefined);
  assert.ok((await long).ok);
});

test('an engine that returns 500 is not ready, until it serves a call or is not called for 30 s', async (t) => {
  const { clock, pass } = stillClock();
  const { upstream, engines } = await withOne(t, {}, clock);
  const fail = async (): Promise<void> => {
    for (let at = 0; at < 3; at += 1) upstream.script.push({ kind: 'status', status: 500 });
    await runTo(engines, callTo(ON_A));
  };
  await fail();
  assert.ok(engines.isReady(ON_A), 'a single request can be the cause');
  await fail();
  assert.equal(engines.isReady(ON_A), false);
  pass(1_500);
  assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'half-open');
  assert.deepEqual(
    [engines.isReady(ON_A), engines.replicaStatus(ON_A)[0]!.isHealthy],
    [false, false],
  );
  pass(30_000);
  assert.ok(engines.isReady(ON_A), 'a load balancer sends requests again');
  await fail();
  assert.equal(engines.isReady(ON_A), false);
  upstream.script.length = 0;
  pass(5_000);
  assert.ok((await runTo(engines, callTo(ON_A))).outcome.ok);
  assert.ok(engines.isReady(ON_A));
});

test('an open breaker after 500s lets a last-resort call through', async (t) => {
  const { upstream, engines } = await withOne(t, {}, stillClock().clock);
  for (let round = 0; round < 6; round += 1) upstream.script.push({ kind: 'status', status: 500 });
  await runTo(engines, callTo(ON_A));
  await runTo(engines, callTo(ON_A));
  assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'open');
  assert.ok((await runTo(engines, callTo(ON_A))).outcome.ok);
});

for (const kind of ['reset', 'not-http', 'head-cut', 'half-json'] as const) {
  test(`a breaker opened by one caller's "${kind}" blocks that caller only`, async (t) => {
    const { upstream, engines } = await withOne(t, {}, stillClock().clock);
    const ask = async (caller: string): Promise<EngineOutcome | { ok: true }> =>
      engines.collect({
        ...callTo(ON_A, { caller }),
        isUsable: (body) => body.toString().endsWith('}'),
      });
    const spoil = async (caller: string): Promise<void> => {
      upstream.script.push({ kind }, { kind }, { kind });
      assert.equal((await ask(caller)).ok, false);
      upstream.script.length = 0;
    };
    for (let round = 0; round < 6; round += 1) await spoil('mallory');
    assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'open');
    for (let round = 0; round < 20; round += 1) assert.ok((await ask('alice')).ok);
    for (const caller of ['bob', 'carol']) await spoil(caller);
    // Three callers saw the failure, so the breaker now applies to all callers.
    const late = await ask('alice');
    assert.equal(late.ok, kind === 'not-http' || kind === 'half-json');
  });
}

test('an early rejection of a large request is returned and does not open the breaker', async (t) => {
  for (const refusal of ['HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig', '']) {
    const node = new URL('../../test/rpc/refusing-node-worker.ts', import.meta.url);
    const worker = new Worker(node, { workerData: { limitBytes: 100_000, refusal } });
    t.after(() => worker.terminate());
    const port = await new Promise((resolve) => {
      worker.once('message', resolve);
    });
    const engines = enginesFor(t, [engine('a', `http://127.0.0.1:${String(port)}/v1`)]);
    const buildBody = (): Buffer => Buffer.alloc(16_000_000, 0x61);
    for (let round = 0; round < 15; round += 1) {
      const large = callTo(ON_A, { buildBody, caller: 'mallory' });
      const failure = failureOf((await runTo(engines, large)).outcome);
      if (refusal !== '') assert.deepEqual([failure.reason, failure.status], ['refused', 413]);
      else assert.equal(failure.reason, 'unreachable');
    }
    assert.equal(engines.replicaStatus(ON_A)[0]!.breaker, 'closed');
    const small = callTo(ON_A, { buildBody: () => Buffer.from('{"id":1,"method":"x"}') });
    assert.ok((await runTo(engines, small)).outcome.ok);
  }
});

test('waiting calls take turns over the callers', async (t) => {
  const { upstream, engines } = await withOne(t, { concurrency: 1, maxQueued: 6 });
  upstream.script.push({ kind: 'hang' });
  const holder = new Recorder();
  const first = runTo(engines, callTo(ON_A, { caller: 'mallory' }), holder);
  await until(() => upstream.seen.length === 1, 'the holder has the slot');
  const order: string[] = [];
  const wait = async (name: string): Promise<EngineOutcome> => {
    const { outcome } = await runTo(engines, callTo(ON_A, { caller: name.slice(0, -1) }));
    if (outcome.ok) order.push(name);
    return outcome;
  };
  const waiting = ['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'a1', 'b1'].map(wait);
  // The queue is full: the newest call of the longest queue is removed, and that queue cannot grow.
  for (const at of [4, 5]) assert.equal(failureOf(await waiting[at]!).reason, 'overloaded');
  assert.equal(failureOf(await wait('m7')).reason, 'overloaded');
  holder.run!.abort();
  await first;
  await Promise.all(waiting);
  assert.deepEqual(order, ['m1', 'a1', 'b1', 'm2', 'm3', 'm4']);
});

test('an update uses the new engine and does not interrupt a running stream', async (t) => {
  const [old, fresh] = [await upstreamFor(t), await upstreamFor(t)];
  old.otherwise = { kind: 'stream', chunks: 20, everyMs: 5 };
  const engines = enginesFor(t, [engine('a', old.url)]);
  const running = runTo(engines, callTo(ON_A));
  await until(() => old.seen.length === 1, 'the stream begins');
  engines.update([engine('a', fresh.url)]);
  const next = await runTo(engines, callTo(ON_A));
  assert.ok(next.outcome.ok);
  assert.equal(fresh.seen.length, 1);
  const { outcome, recorder } = await running;
  assert.ok(outcome.ok);
  assert.match(recorder.text, /\[DONE\]/);
  await until(() => old.connections === 0, 'the old connections close');
});

test('an invalid update throws and changes nothing', async (t) => {
  const { upstream, engines } = await withOne(t);
  assert.throws(() => engines.update([engine('a', 'ftp://x')]), RangeError);
  assert.throws(
    () => engines.update([engine('a', upstream.url), engine('a', upstream.url)]),
    RangeError,
  );
  assert.ok((await runTo(engines, callTo(ON_A))).outcome.ok);
});

test('a call without any engine ends as `unreachable`', async (t) => {
  const engines = enginesFor(t, []);
  const failure = failureOf((await runTo(engines, callTo(ON_A))).outcome);
  assert.deepEqual([failure.reason, failure.attempts, failure.replica], ['unreachable', 0, null]);
});

test('`close` waits for the grace period, then aborts running calls', async (t) => {
  const clock = new TestClock();
  const { upstream, engines } = await withOne(t, {}, clock);
  upstream.script.push({ kind: 'stream', chunks: 10, everyMs: 5 }, { kind: 'hang' });
  const short = runTo(engines, callTo(ON_A));
  await until(() => upstream.seen.length === 1, 'the first arrives');
  const long = runTo(engines, callTo(ON_A));
  await until(() => upstream.seen.length === 2, 'the second arrives');
  const closing = engines.close(300);
  assert.ok((await short).outcome.ok);
  const passing = setInterval(() => clock.advance(50), 1);
  await closing;
  clearInterval(passing);
  assert.equal(failureOf((await long).outcome).reason, 'aborted');
  assert.equal(failureOf((await runTo(engines, callTo(ON_A))).outcome).reason, 'unreachable');
  await until(() => upstream.connections === 0, 'all connections close');
});

test('`probe` lists the models or returns the reason', async (t) => {
  const upstream = await upstreamFor(t);
  const mute = createServer(() => undefined);
  await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
  t.after(() => mute.close());
  const dead = await TestUpstream.start();
  await dead.kill().catch(() => undefined);
  const engines = enginesFor(t, [engine('a', upstream.url), engine('b', 'http://127.0.0.1:9/v1')]);
  const alive = await engines.probe('a');
  assert.ok(alive.ok);
  assert.deepEqual(alive.models, ['tiny', 'large']);
  const refused = await engines.probe('b');
  assert.ok(!refused.ok);
  assert.equal(refused.reason, 'unreachable');
  assert.equal(refused.message, 'connect ECONNREFUSED 127.0.0.1:9');
  const unknown = await engines.probe('z');
  assert.ok(!unknown.ok);
  assert.equal(unknown.reason, 'unknown-engine');
});

test('a response of single bytes takes little more memory than its bytes', async (t) => {
  const pieces = 300_000;
  const url = await rawServer(t, (socket) => {
    const head = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
    socket.once('data', () => socket.write(`${head}${'1\r\na\r\n'.repeat(pieces)}0\r\n\r\n`));
  });
  const engines = enginesFor(t, [engine('a', url)]);
  const usedBytes = heapBytes();
  let grownBytes = Infinity;
  const isUsable = (body: Buffer): boolean => {
    grownBytes = heapBytes() - usedBytes;
    return body.length === pieces;
  };
  const response = await engines.collect({ ...callTo(ON_A), isUsable });
  assert.ok(response.ok);
  assert.ok(grownBytes < 20 * pieces, String(grownBytes));
});
