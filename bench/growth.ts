/**
 * Reports and pages of receipts with many receipts: times the first response of each report and of
 * each filter of the lists of requests.
 *
 * Run: node bench/growth.ts. ROWS=10000000 for more, DATABASE=postgres for PostgreSQL, ONLY=text for
 * the paths that contain the text, FOLDER=path to use the SQLite file of an earlier run again.
 */
import { addReportDays } from '../src/billing/ledger/ledger.ts';
import { openStores } from '../src/server/stores.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { startPostgres } from '../test/databases/postgres.ts';
import { DAYS, fillReceipts } from '../test/support/many-receipts.ts';
import { childrenOf, cpuOfAll, median, startGateway, stopAll, temporaryFolder } from './harness.ts';

const ROWS = Number(process.env['ROWS'] ?? '1000000');
const ONLY = process.env['ONLY'] ?? '';
const IS_POSTGRES = process.env['DATABASE'] === 'postgres';
const ROUNDS = Number(process.env['ROUNDS'] ?? '7');
const DAY_MS = 86_400_000;

const PAIRS = [
  'account=acct_3',
  'account=acct_700',
  'key=key_3_0',
  'model=model-5',
  'engine=engine-2',
  'kind=embeddings',
  'kind=image',
  'status=failed',
  'status=expired',
  'minUsd=0.09',
  'minUsd=5',
  'tag=team&tagValue=team-7',
  'tag=team&tagValue=none',
  'account=acct_3&model=model-5',
  'account=acct_3&status=failed',
  'account=acct_3&engine=engine-2',
  'model=model-5&status=failed',
  'model=model-5&engine=engine-1',
  'engine=engine-2&status=failed',
  'model=model-5&kind=embeddings',
  'model=none',
  'engine=none',
  'key=none',
];

/** Paths below `/admin`; the default range of all of them is 30 days. */
function pathsFrom(day: string): string[] {
  const groups = ['day', 'model', 'engine', 'account', 'key', 'tag'];
  const all = `from=${day}`;
  return [
    ...groups.map((by) => `usage?by=${by}&limit=20`),
    ...groups.map((by) => `usage?by=${by}&limit=20&${all}`),
    `usage?by=account&model=model-5&limit=20&${all}`,
    `usage?by=account&engine=engine-2&limit=20&${all}`,
    `usage?by=model&account=acct_3&${all}`,
    `usage?by=key&account=acct_3&${all}`,
    `revenue?by=model&${all}`,
    `revenue?by=engine&${all}`,
    'requests',
    ...PAIRS.map((filter) => `requests?${filter}`),
    ...PAIRS.slice(0, 8).map((filter) => `requests?${filter}&${all}`),
  ];
}

const FOLDER = process.env['FOLDER'];
const folder = FOLDER ?? temporaryFolder();
const postgres = IS_POSTGRES ? await startPostgres() : undefined;
const databaseUrl = postgres?.url('postgres') ?? `sqlite:${folder}/farebox.db`;

async function prepare(): Promise<string> {
  const loaded = await loadConfig({
    env: { FAREBOX_DATA: folder },
    cwd: folder,
    readFile: async () => `database: ${JSON.stringify(databaseUrl)}`,
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  const parts = { config: loaded.config, clock: systemClock(), ids: systemIds(), log: silentLog };
  const stores = await openStores(parts);
  const account = await stores.identity.createAccount('bench', 'staff');
  await stores.store.transaction((tx) => stores.identity.makeOperator(account.id, tx));
  const { secret } = await stores.identity.createKey({
    accountId: account.id,
    kind: 'ADMIN',
    description: 'bench',
    expiresMs: undefined,
    limitPeriod: 'EPOCH',
    usdLimitNano: undefined,
    diemLimitNano: undefined,
    modelPrivacy: 'ALL',
    models: undefined,
    limits: {},
  });
  const [row] = await stores.store.query('SELECT 1 FROM ledger_usage LIMIT 1');
  if (row === undefined) await fillReceipts(stores.store, ROWS);
  const from = performance.now();
  const { clock, log } = parts;
  while (!(await addReportDays({ store: stores.store, clock, log })));
  console.log(`past days added in ${((performance.now() - from) / 1_000).toFixed(1)} s`);
  await stores.close();
  return secret;
}

try {
  const secret = await prepare();
  const farebox = await startGateway(
    { url: 'http://127.0.0.1:9' },
    { env: { FAREBOX_DATA: folder, BENCH_DATABASE: databaseUrl } },
  );
  const headers = { authorization: `Bearer ${secret}` };
  const firstDay = new Date(Date.now() - (DAYS - 1) * DAY_MS).toISOString().slice(0, 10);
  console.log(`\n${ROWS} receipts of ${DAYS} days, ${IS_POSTGRES ? 'PostgreSQL' : 'SQLite'}`);
  console.log(`${'path'.padEnd(68)} rows   first ms  median ms   CPU ms`);
  let slowest = 0;
  for (const path of pathsFrom(firstDay).filter((one) => one.includes(ONLY))) {
    const times: number[] = [];
    const cpuBefore = cpuOfAll([farebox.pid, ...childrenOf(farebox.pid)]);
    let rows = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      const from = performance.now();
      const response = await fetch(`${farebox.url}/admin/${path}`, { headers });
      const text = await response.text();
      times.push(performance.now() - from);
      if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
      rows = (JSON.parse(text) as { data: unknown[] }).data.length;
    }
    const middle = median(times);
    const cpuMs =
      (cpuOfAll([farebox.pid, ...childrenOf(farebox.pid)]) - cpuBefore) / 1_000 / ROUNDS;
    slowest = Math.max(slowest, middle);
    console.log(
      `${path.padEnd(68)} ${String(rows).padStart(4)} ${(times[0] ?? 0).toFixed(1).padStart(10)} ${middle.toFixed(1).padStart(10)} ${cpuMs.toFixed(1).padStart(8)}`,
    );
  }
  console.log(`slowest median: ${slowest.toFixed(1)} ms`);
} finally {
  await stopAll();
  await postgres?.close();
}
