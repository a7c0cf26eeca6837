/**
 * CPU time of the server for a request that is translated between protocols, compared with one that
 * is passed through: callers of chat completions, Messages and Responses on engines of each
 * protocol. Rounds alternate between the engines; each figure is a median.
 *
 * Run: node bench/translations.ts
 */
import { Pool } from 'undici';
import { cpuOf, median, startGateway, startProcess, stopAll } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '7');
const REQUESTS = Number(process.env['REQUESTS'] ?? '300');
/** Before the first round, so that V8 has compiled the code. */
const WARM_REQUESTS = 1_500;
const CONNECTIONS = 8;
const TEXT = 'a '.repeat(500);

const ENGINES = ['openai', 'anthropic', 'responses'] as const;
type Engine = (typeof ENGINES)[number];

interface Caller {
  readonly path: string;
  /** The engine of the same protocol. */
  readonly own: Engine;
  readonly body: object;
}

const CALLERS: readonly Caller[] = [
  {
    path: '/chat/completions',
    own: 'openai',
    body: { messages: [{ role: 'user', content: TEXT }] },
  },
  {
    path: '/messages',
    own: 'anthropic',
    body: { max_tokens: 1_024, messages: [{ role: 'user', content: TEXT }] },
  },
  { path: '/responses', own: 'responses', body: { input: TEXT, store: false } },
];

const upstream = await startProcess('./protocol-upstream.ts');
const gateway = await startGateway(upstream, {
  env: {
    BENCH_ENGINES: ENGINES.map(
      (name) => `, ${name}: { protocol: ${name}, url: ${upstream.url} }`,
    ).join(''),
    BENCH_MODEL_LINES: ENGINES.map(
      (name) =>
        `  - { id: ${name}, type: text, context: 131072, maxCompletionTokens: 1024, price: { input: 0.05, output: 0.2 }, replicas: [{ engine: ${name}, model: upstream-model }] }`,
    ).join('\n'),
  },
});
const base = new URL(gateway.url);
const pool = new Pool(base.origin, { connections: CONNECTIONS });

async function send({ path, body }: Caller, model: Engine, stream: boolean): Promise<void> {
  const { statusCode, body: answer } = await pool.request({
    path: base.pathname + path,
    method: 'POST',
    headers: { ...gateway.headers, 'content-type': 'application/json' },
    body: JSON.stringify({ model, stream, ...body }),
  });
  const text = await answer.text();
  if (statusCode !== 200)
    throw new Error(`${path} on ${model}: ${statusCode} ${text.slice(0, 300)}`);
}

/** CPU time of one request, in microseconds. */
async function measure(count: number, request: () => Promise<void>): Promise<number> {
  const before = cpuOf(gateway.pid);
  let left = count;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await request();
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
  return (cpuOf(gateway.pid) - before) / count;
}

try {
  for (const stream of [false, true]) {
    console.log(stream ? '\nstreams of 64 words' : 'JSON of 64 words');
    for (const caller of CALLERS) {
      const cases = ENGINES.map((engine) => {
        return { engine, figures: [] as number[], request: () => send(caller, engine, stream) };
      });
      for (const { request } of cases) await measure(WARM_REQUESTS, request);
      for (let round = 0; round < ROUNDS; round += 1) {
        for (const { figures, request } of cases) figures.push(await measure(REQUESTS, request));
      }
      const own = median(cases.find(({ engine }) => engine === caller.own)?.figures ?? []);
      for (const { engine, figures } of cases) {
        const each = median(figures);
        const kind =
          engine === caller.own ? 'passed' : `translated: ${(own / each).toFixed(2)} of it`;
        console.log(
          `  ${caller.path} on ${engine}`.padEnd(40),
          `${each.toFixed(0)} µs`.padStart(9),
          kind,
        );
      }
    }
  }
} finally {
  await pool.close();
  await stopAll();
}
