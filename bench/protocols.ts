/**
 * Cost of Responses and Messages compared with chat completions: the functions and calls of a
 * request (exact), and the CPU time of a chunk of a long stream.
 *
 * Run: node bench/protocols.ts; `-v` lists the functions.
 */
import { Session } from 'node:inspector/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import { startTestApp } from '../test/app/test-app.ts';
import { cpuOf, median, startGateway, startProcess, stopAll } from './harness.ts';

const WORDS = 1_000;
const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const STREAMS = 64;
const RUNS = 20;
const TEXT = 'a '.repeat(500);

/** Limits that no request of the benchmark reaches. */
const LIMITS =
  'limits: { plans: { paid: { text: { XS: &wide { requestsPerMinute: 1000000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } } }';

/** Equivalent requests in each protocol. */
const PROTOCOLS = [
  {
    name: 'chat',
    path: '/chat/completions',
    body: { messages: [{ role: 'user', content: TEXT }] },
  },
  { name: 'Responses', path: '/responses', body: { input: TEXT, store: false } },
  { name: 'Responses, stored', path: '/responses', body: { input: TEXT } },
  {
    name: 'Messages',
    path: '/messages',
    body: { max_tokens: 1_024, messages: [{ role: 'user', content: TEXT }] },
  },
] as const;

type Protocol = (typeof PROTOCOLS)[number];

/** A server and its pool of connections. */
interface Server {
  readonly url: string;
  readonly key: string;
  readonly pool: Pool;
}

async function send({ url, key, pool }: Server, { path, body }: Protocol, stream: boolean) {
  const { statusCode, body: response } = await pool.request({
    path: new URL(url).pathname + path,
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'bench-model', stream, ...body }),
  });
  const text = await response.text();
  if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${text.slice(0, 300)}`);
}

/** Functions and calls in `src/` during one request, from exact coverage. */
async function pathOf(session: Session, name: string, request: () => Promise<void>): Promise<void> {
  for (let run = 0; run < RUNS; run += 1) await request();
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await delay(100);
  await session.post('Profiler.takePreciseCoverage');
  for (let run = 0; run < RUNS; run += 1) await request();
  await delay(100);
  const { result } = await session.post('Profiler.takePreciseCoverage');
  await session.post('Profiler.stopPreciseCoverage');
  let functions = 0;
  let calls = 0;
  for (const { url, functions: list } of result) {
    const file = /\/(src\/.*)$/.exec(url)?.[1];
    if (file === undefined || url.includes('/node_modules/')) continue;
    for (const { functionName, ranges } of list) {
      const count = ranges[0]?.count ?? 0;
      // Skips functions of timers, which run in fewer than 90 % of the requests, and modules.
      if (count < RUNS * 0.9 || (functionName === '' && ranges[0]?.startOffset === 0)) continue;
      functions += 1;
      calls += count / RUNS;
      if (process.argv.includes('-v')) {
        console.log(`    ${file}: ${functionName || '(anonymous)'} ${(count / RUNS).toFixed(0)}`);
      }
    }
  }
  const figures = `${functions} functions, ${Math.round(calls)} calls`;
  console.log(`${name.padEnd(36)} ${figures}`);
}

async function paths(): Promise<void> {
  const upstream = await startProcess('./upstream.ts', { env: { WORDS: '16' } });
  const model = `{ id: bench-model, type: text, context: 131072, maxCompletionTokens: 1024, price: { input: 0.05, output: 0.2 }, replicas: [{ engine: bench, model: upstream-model }] }`;
  const farebox = await startTestApp({
    yaml: `engines: { bench: { url: ${upstream.url} } }\nmodels:\n  - ${model}\n${LIMITS}`,
  });
  const { secret } = await farebox.account('1000');
  const pool = new Pool(new URL(farebox.url).origin, { connections: 1 });
  const server = { url: farebox.url, key: secret, pool };
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  for (const protocol of PROTOCOLS) {
    for (const stream of [false, true]) {
      const name = `${protocol.name}${stream ? ', stream of 16 words' : ''}`;
      await pathOf(session, name, () => send(server, protocol, stream));
    }
  }
  session.disconnect();
  await pool.close();
  await farebox.stop();
}

async function chunks(): Promise<void> {
  const upstream = await startProcess('./upstream.ts', { env: { WORDS: String(WORDS) } });
  const gateway = await startGateway(upstream);
  const pool = new Pool(new URL(gateway.url).origin, { connections: STREAMS });
  const server = { ...gateway, pool };
  const figures = new Map<string, number[]>();
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const protocol of PROTOCOLS) {
      const before = cpuOf(gateway.pid);
      await Promise.all(Array.from({ length: STREAMS }, () => send(server, protocol, true)));
      const each = (cpuOf(gateway.pid) - before) / (STREAMS * WORDS);
      // The first round is a warm-up.
      if (round > 0) figures.set(protocol.name, [...(figures.get(protocol.name) ?? []), each]);
    }
  }
  await pool.close();
  const chat = median(figures.get('chat') ?? []);
  for (const [name, values] of figures) {
    const each = median(values);
    const beside = `${((each / chat - 1) * 100).toFixed(0)} % beside chat`;
    console.log(`${`${name}, CPU of a chunk`.padEnd(36)} ${each.toFixed(1)} µs, ${beside}`);
  }
}

try {
  await paths();
  await chunks();
} finally {
  await stopAll();
}
