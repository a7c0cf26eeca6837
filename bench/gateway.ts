/** A farebox with everything on, in front of the upstream, with money for the whole run. */
import { startApp } from '../src/app.ts';
import { welcomeOwner } from '../src/app/office.ts';
import { pinoLog } from '../src/app/pino-log.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/kernel/clock.ts';
import { systemIds } from '../src/kernel/ids.ts';
import { nano } from '../src/kernel/money.ts';

const upstream = process.argv[2] ?? '';
const database = process.env['BENCH_DATABASE'];
const yaml = `
listen: { host: 127.0.0.1, port: ${process.env['BENCH_PORT'] ?? '0'} }
${database === undefined ? '' : `database: ${JSON.stringify(database)}`}
embedded: { enabled: false }
discovery: { enabled: false }
engines: { bench: { url: ${upstream} } }
models:
  - id: bench-model
    type: text
    context: 131072
    maxCompletionTokens: 1024
    traits: [default]
    price: { input: 0.05, output: 0.2 }
    replicas: [{ engine: bench, model: upstream-model }]
limits:
  starterCreditUsd: 1000000
  keyConcurrency: 100000
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
  // Every line is made and formatted; only the terminal is left out.
  log: pinoLog({ level: 'info', pretty: false, write: () => void (lines += 1) }),
  version: '00000000.000000',
});
const owner = await welcomeOwner(app.office, loaded.config);
const accounts = await app.office.identity.accounts();
const first = accounts[0];
if (first === undefined) throw new Error('No account');
let secret = owner?.secret;
if (secret === undefined) {
  const made = await app.office.identity.createKey({
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
  await app.office.store.transaction((tx) =>
    app.office.ledger.creditIn(tx, {
      accountId: `wallet:${wallet}`,
      amountNano: nano(1_000_000_000_000_000n),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: `bench-${wallet}`,
    }),
  );
}
process.send?.({ url: `${app.address}/api/v1`, key: secret });
process.on('disconnect', () => process.exit(0));
// A profiler asks for a clean end.
process.on('SIGUSR2', () => process.exit(0));
