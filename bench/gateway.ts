/** A server with all features enabled in front of the upstream, with credit for the whole run. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { startApp } from '../src/server/server.ts';
import { welcomeOwner } from '../src/server/stores.ts';
import { logWriter } from '../src/observability/log-writer.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { nano } from '../src/core/money.ts';

/** Additional models of the configuration. */
function moreModels(count: number): string {
  const line = (at: number): string =>
    `  - { id: other-${at}, type: text, context: 8192, price: { input: 0.05, output: 0.2 }, replicas: [{ engine: bench, model: other-${at} }] }`;
  return Array.from({ length: count }, (_, at) => line(at)).join('\n');
}

const upstream = process.argv[2] ?? '';
const database = process.env['BENCH_DATABASE'];
const yaml = `
listen: { host: 127.0.0.1, port: ${process.env['BENCH_PORT'] ?? '0'} }
${database === undefined ? '' : `database: ${JSON.stringify(database)}`}
embedded: { enabled: false }
discovery: { enabled: false }
engines: { bench: { url: ${upstream}, maxConnections: 4096, concurrency: 4096 }${process.env['BENCH_ENGINES'] ?? ''} }
models:
  - id: bench-model
    type: text
    context: ${process.env['BENCH_CONTEXT'] ?? '131072'}
    maxCompletionTokens: 1024
    traits: [default]
    price: { input: 0.05, output: 0.2 }
    replicas: [{ engine: bench, model: upstream-model }]
${moreModels(Number(process.env['BENCH_MODELS'] ?? '0'))}
${process.env['BENCH_MODEL_LINES'] ?? ''}
limits:
  starterCreditUsd: 1000000
  keyConcurrency: 100000
  guard: { failures: ${process.env['BENCH_FAILURES'] ?? '20'} }
  plans: { paid: &wide { text: { XS: { requestsPerMinute: 100000000, tokensPerMinute: 100000000000 }, S: { requestsPerMinute: 100000000, tokensPerMinute: 100000000000 }, M: { requestsPerMinute: 100000000, tokensPerMinute: 100000000000 }, L: { requestsPerMinute: 100000000, tokensPerMinute: 100000000000 } } }, staff: *wide }
${process.env['BENCH_YAML'] ?? ''}
`;
const loaded = await loadConfig({
  env: process.env,
  cwd: process.cwd(),
  readFile: async () => yaml,
});
if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
let lines = 0;
const app = await startApp({
  config: loaded.config,
  clock: systemClock(),
  ids: systemIds(),
  // Log lines are formatted but not written.
  log: logWriter({
    level: 'info',
    pretty: false,
    clock: systemClock(),
    write: () => void (lines += 1),
  }),
  version: '00000000.000000',
});
const owner = await welcomeOwner(app.stores, loaded.config);
const first = await app.stores.identity.oldestAccount();
if (first === undefined) throw new Error('No account');
let secret = owner?.secret;
if (secret === undefined) {
  const made = await app.stores.identity.createKey({
    accountId: first.id,
    kind: 'INFERENCE',
    description: 'bench',
    expiresMs: undefined,
    limitPeriod: 'EPOCH',
    usdLimitNano: undefined,
    diemLimitNano: undefined,
    modelPrivacy: 'ALL',
    models: undefined,
    limits: {},
  });
  secret = made.secret;
}
for (const wallet of (process.env['BENCH_WALLETS'] ?? '').split(',').filter(Boolean)) {
  await app.stores.store.transaction((tx) =>
    app.stores.ledger.creditIn(tx, {
      accountId: `wallet:${wallet}`,
      amountNano: nano(1_000_000_000_000_000n),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: `bench-${wallet}`,
    }),
  );
}
const delays = monitorEventLoopDelay({ resolution: 1 });
process.on('message', (message) => {
  if (message === 'delays-from-here') {
    delays.enable();
    delays.reset();
  }
  if (message === 'delays') {
    process.send?.({ p99Ms: delays.percentile(99) / 1e6, maxMs: delays.max / 1e6 });
  }
});
process.on('disconnect', () => process.exit(0));
// Shuts down, for a profiler, or to use the database afterwards.
process.on('SIGUSR2', () => process.exit(0));
process.send?.({ url: `${app.address}/api/v1`, key: secret });
