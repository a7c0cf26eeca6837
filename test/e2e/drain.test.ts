/**
 * SIGTERM under load: no new work, every open stream ends with `[DONE]`, every hold is settled, and
 * the process ends with 0. A stream that outlives the deadline is cut and pays for what it produced.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Pool } from 'undici';
import { rawServer } from '../support/raw-server.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { openTestStore } from '../databases/stores.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

const STREAMS = 200;
const BODY = '{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}';

interface Stage {
  readonly upstream: TestUpstream;
  readonly server: FareboxProcess;
  readonly origin: string;
  readonly pool: Pool;
}

async function stage(context: TestContext, drainSeconds: number): Promise<Stage> {
  const upstream = await TestUpstream.start();
  const server = await startFarebox({ yaml: yaml(upstream.url, drainSeconds) });
  const { origin } = new URL(server.url);
  const pool = new Pool(origin, { connections: STREAMS + 20, pipelining: 1 });
  context.after(async () => {
    await pool.destroy();
    await server.stop('SIGKILL');
    await upstream.kill();
    removeFolder(server);
  });
  return { upstream, server, origin, pool };
}

function yaml(engineUrl: string, drainSeconds: number): string {
  return `listen: { host: 127.0.0.1, port: 0 }
embedded: { enabled: false }
discovery: { enabled: false }
http: { drainSeconds: ${drainSeconds} }
engines: { fake: { url: ${engineUrl} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
limits: { keyConcurrency: 1000, starterCreditUsd: 1000, plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } } }
`;
}

interface OpenStream {
  readonly text: Promise<string>;
}

/** Opens a stream; resolves when its first bytes are there. */
async function openStream({ pool, server }: Stage, more: object = {}): Promise<OpenStream> {
  const answer = await pool.request({
    path: '/api/v1/chat/completions',
    method: 'POST',
    headers: {
      authorization: `Bearer ${server.secret}`,
      'content-type': 'application/json',
      ...more,
    },
    body: BODY,
  });
  assert.equal(answer.statusCode, 200);
  const text = answer.body.text().catch((error: unknown) => `CUT: ${String(error)}`);
  return { text };
}

/** Calls a tool of `/mcp`; resolves after the first progress notification. */
async function openToolCall({ pool, server }: Stage): Promise<OpenStream> {
  const answer = await pool.request({
    path: '/mcp',
    method: 'POST',
    headers: {
      authorization: `Bearer ${server.secret}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'chat', arguments: { prompt: 'Hi' }, _meta: { progressToken: 1 } },
    }),
  });
  assert.equal(answer.statusCode, 200);
  return { text: answer.body.text().catch((error: unknown) => `CUT: ${String(error)}`) };
}

async function audit(server: FareboxProcess) {
  const store = await openTestStore(`sqlite:${join(server.folder, 'data/farebox.db')}`);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const usage = await store.query<{ status: string; amount: bigint; count: bigint }>(
      'SELECT status, count(*) AS count, min(usd_nano) AS amount FROM ledger_usage GROUP BY status',
    );
    return { report: await ledger.audit(), usage };
  } finally {
    await store.close();
  }
}

test(`SIGTERM under ${STREAMS} open streams: each ends with [DONE], then exit 0`, async (context) => {
  const scene = await stage(context, 120);
  const { upstream, server, pool } = scene;
  const gate = Promise.withResolvers<void>();
  const endsAfter = gate.promise;
  upstream.otherwise = { kind: 'stream', chunks: 40, everyMs: 50, usage: true, endsAfter };
  const streams = await Promise.all(Array.from({ length: STREAMS }, () => openStream(scene)));
  const ended = server.stop('SIGTERM');

  const refused = await refusal(scene);
  assert.equal(refused.status, 503);
  assert.equal(refused.code, 'SHUTTING_DOWN');
  assert.equal(refused.connection, 'close');
  const ready = await pool.request({ path: '/readyz', method: 'GET' });
  assert.equal(ready.statusCode, 503);
  assert.equal(((await ready.body.json()) as { status: string }).status, 'draining');
  const live = await pool.request({ path: '/livez', method: 'GET' });
  assert.equal(live.statusCode, 200);
  await live.body.dump();

  gate.resolve();
  const texts = await Promise.all(streams.map((stream) => stream.text));
  const complete = texts.filter((text) => text.endsWith('data: [DONE]\n\n'));
  const broken = texts.find((text) => !text.endsWith('data: [DONE]\n\n'));
  assert.equal(complete.length, STREAMS, broken ?? '');
  assert.ok(texts.every((text) => text.includes('" w39"') && text.includes('"cost"')));
  assert.equal(await ended, 0);
  const { report, usage } = await audit(server);
  assert.deepEqual([report.differences, report.openHolds], [[], 0]);
  const [row, ...others] = usage;
  assert.deepEqual(
    [row?.status, row?.count, row?.amount, others],
    ['completed', BigInt(STREAMS), 92_000n, []],
  );
});

test('a stream or tool call is cut at the deadline, and its output is charged', async (context) => {
  const scene = await stage(context, 1);
  const { upstream, server } = scene;
  upstream.otherwise = { kind: 'stream', chunks: 60, hangAfter: 5, usage: true };
  const streams = await Promise.all([
    ...Array.from({ length: 5 }, () => openStream(scene)),
    // Continues after its caller has left, but not after the deadline.
    openStream(scene, { 'idempotency-key': 'key' }),
    openToolCall(scene),
  ]);
  const startedMs = performance.now();
  const ended = server.stop('SIGTERM');
  assert.equal(await ended, 0);
  const tookMs = performance.now() - startedMs;
  assert.ok(tookMs > 900, `ended after ${tookMs} ms`);
  for (const stream of streams) assert.match(await stream.text, /^CUT/);
  const { report, usage } = await audit(server);
  assert.deepEqual([report.differences, report.openHolds], [[], 0]);
  const counts = new Map(usage.map(({ status, count }) => [status, count]));
  assert.deepEqual([counts.size, counts.get('aborted'), counts.get('failed')], [2, 6n, 1n]);
  for (const { amount } of usage) assert.ok(amount > 0n);
});

test('a second SIGTERM cuts open streams immediately, and their output is charged', async (context) => {
  // Not the deadline ends it.
  const scene = await stage(context, 600);
  const { upstream, server } = scene;
  upstream.otherwise = { kind: 'stream', chunks: 60, hangAfter: 5, usage: true };
  const stream = await openStream(scene);
  const ended = server.stop('SIGTERM');
  assert.equal((await refusal(scene)).code, 'SHUTTING_DOWN');
  // The same signal twice at once, as npm passes it on, is one.
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  await server.stop('SIGTERM');
  assert.equal(await ended, 0);
  assert.match(await stream.text, /^CUT/);
  const { report, usage } = await audit(server);
  assert.deepEqual([report.differences, report.openHolds], [[], 0]);
  assert.deepEqual([usage[0]?.status, usage[0]?.count], ['aborted', 1n]);
});

test('an incomplete request does not delay the shutdown', async (context) => {
  const { server, origin, pool } = await stage(context, 1);
  const socket = connect(Number(new URL(origin).port), '127.0.0.1');
  socket.on('error', () => undefined); // the server cuts it, which is what is tested
  socket.write('POST /api/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-');
  const live = await pool.request({ path: '/livez', method: 'GET' });
  await live.body.dump();
  const startedMs = performance.now();
  const ended = server.stop('SIGTERM');
  assert.equal(await ended, 0);
  // Node would wait for the rest of it for minutes.
  assert.ok(performance.now() - startedMs < 45_000);
  socket.destroy();
});

test('a payment node that does not respond does not delay the shutdown', async (context) => {
  const node = await rawServer(context, (socket) => socket.resume());
  const server = await startFarebox({
    yaml: `${yaml(node, 1)}payments:
  base: { payTo: '0x00000000000000000000000000000000000fa12b', rpcUrl: '${node}', gasKey: '0x${'1'.repeat(64)}' }
`,
  });
  context.after(() => removeFolder(server));
  const startedMs = performance.now();
  assert.equal(await server.stop('SIGTERM'), 0);
  assert.ok(performance.now() - startedMs < 15_000);
});

/** Returns the response to a chat after the signal has arrived, which takes a moment. */
async function refusal({ pool, server }: Stage) {
  for (let isDraining = false; !isDraining;) {
    const ready = await pool.request({ path: '/readyz', method: 'GET' });
    await ready.body.dump();
    isDraining = ready.statusCode === 503;
  }
  const answer = await pool.request({
    path: '/api/v1/chat/completions',
    method: 'POST',
    headers: { authorization: `Bearer ${server.secret}`, 'content-type': 'application/json' },
    body: BODY,
  });
  const body = (await answer.body.json()) as { code?: string };
  const { connection } = answer.headers;
  return { status: answer.statusCode, code: body.code, connection };
}
