/**
 * Reports and pages of receipts with many receipts: fills a database directly with the receipts,
 * postings and day sums of 90 days, as the server writes them, and times the first response of each
 * report and of each filter of the lists of requests.
 *
 * Run: node bench/growth.ts. ROWS=10000000 for more, DATABASE=postgres for PostgreSQL, ONLY=text for
 * the paths that contain the text, FOLDER=path to use the SQLite file of an earlier run again.
 */
import { addReportDays } from '../src/billing/ledger/ledger.ts';
import { readFileSync } from 'node:fs';
import { openStores } from '../src/server/stores.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import type { Store } from '../src/db/db.ts';
import { startPostgres } from '../test/databases/postgres.ts';
import { cpuOf, median, startProcess, stopAll, temporaryFolder } from './harness.ts';

const ROWS = Number(process.env['ROWS'] ?? '1000000');
const ONLY = process.env['ONLY'] ?? '';
const IS_POSTGRES = process.env['DATABASE'] === 'postgres';
const ROUNDS = Number(process.env['ROUNDS'] ?? '7');
const STEP = 100_000;
const DAY_MS = 86_400_000;
const DAYS = 90;
/** Each with two keys; the first ones send most of the requests. */
const ACCOUNTS = 1_000;
const MODELS = 12;

/** A number below `below` that depends on the row, without a pattern in the order of rows. */
const spread = (prime: number, below: number) => `((i * ${prime}) % 1000003 % ${below})`;

/** Rows `i`, each with the columns of its receipt that several tables need. */
function rowsSql(sinceMs: number): string {
  const numbers = IS_POSTGRES
    ? 'SELECT generate_series($1::bigint, $2::bigint) AS i'
    : 'WITH RECURSIVE n(i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i < $2) SELECT i FROM n';
  const id = IS_POSTGRES
    ? `lpad(to_hex(at), 12, '0') || lpad(to_hex(i), 20, '0')`
    : `printf('%012x%020x', at, i)`;
  const stepMs = (DAYS * DAY_MS) / ROWS;
  const at = `CAST(${sinceMs} + i * ${stepMs} AS BIGINT)`;
  return `SELECT i, at, ${id} AS id, at / ${DAY_MS} AS day, 'acct_' || who AS account_id,
    'key_' || who || '_' || (i % 2) AS key_id, 'model-' || model AS model_id,
    'engine-' || ((model + i % 2) % 4) AS engine,
    CASE ${spread(611_953, 200)} WHEN 0 THEN 'failed' WHEN 1 THEN 'aborted' ELSE 'completed' END AS status,
    CASE ${spread(15_485_863, 20)} WHEN 0 THEN 'embeddings' ELSE 'chat' END AS kind,
    1000 + ${spread(32_452_843, 100_000)} * ${spread(49_979_687, 1_000)} AS usd,
    CASE WHEN ${spread(86_028_121, 5)} = 0
      THEN '{"team":"team-' || ${spread(67_867_967, 50)} || '"}' END AS metadata
    FROM (SELECT i, ${at} AS at, ${spread(104_395_301, MODELS)} AS model,
      ${spread(122_949_823, ACCOUNTS)} * ${spread(141_650_939, ACCOUNTS)} / ${ACCOUNTS} AS who
      FROM (${numbers}) numbers) facts`;
}

async function fill(store: Store): Promise<void> {
  const sinceMs = Date.now() - DAYS * DAY_MS;
  const rows = rowsSql(sinceMs);
  for (let from = 1; from <= ROWS; from += STEP) {
    const end = Math.min(ROWS, from + STEP - 1);
    const range = [BigInt(from), BigInt(end)];
    await store.transaction(
      async (tx) => {
        await tx.query(
          `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind, model_id,
           replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
           reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms,
           first_token_ms, status, metadata, cost_nano) SELECT id, day, at, account_id, key_id, kind,
           model_id, engine, 1, 200, 300, 0, 0, 0, 'engine', 'abcdefabcdef', usd, 0, 900, 100, status,
           metadata, usd / 2 FROM (${rows}) r`,
          range,
        );
        await tx.query(
          `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account, credit_account,
           amount_nano, balance_after_nano, kind, request_id, model_id, created_ms)
           SELECT id, 0, day, account_id, account_id, 'house:revenue', usd, 1000000, 'CHARGE', id,
           model_id, at FROM (${rows}) r`,
          range,
        );
      },
      { timeoutMs: 600_000, durable: false },
    );
    process.stderr.write(`\r${Math.round((100 * end) / ROWS)} % of ${ROWS} receipts`);
  }
  process.stderr.write('\n');
  const sums = `count(*), sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END), sum(prompt_tokens),
    sum(completion_tokens), sum(usd_nano), sum(diem_nano)`;
  const columns = 'requests, errors, prompt_tokens, completion_tokens, usd_nano, diem_nano';
  const tagKey = 'account_id, name, day, value, key_id, model_id';
  const value = IS_POSTGRES ? `metadata::json ->> 'team'` : `metadata ->> 'team'`;
  await store.transaction(
    async (tx) => {
      await tx.query(`INSERT INTO ledger_usage_day (day, model_id, engine, account_id, key_id,
        ${columns}, cost_nano) SELECT day, model_id, replica, account_id, key_id, ${sums},
        sum(cost_nano) FROM ledger_usage GROUP BY 1, 2, 3, 4, 5`);
      await tx.query(`INSERT INTO ledger_usage_tag (${tagKey}, ${columns}) SELECT account_id, 'team',
        day, ${value}, key_id, model_id, ${sums} FROM ledger_usage WHERE metadata IS NOT NULL
        GROUP BY 1, 2, 3, 4, 5, 6`);
      await tx.query(`INSERT INTO identity_account (id, name, plan, disabled, created_ms)
        SELECT account_id, 'customer ' || account_id, 'paid', 0, min(created_ms) FROM ledger_usage
        GROUP BY account_id`);
      await tx.query(`INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano,
        daily_day, daily_spent_nano, daily_held_nano, created_ms)
        SELECT account_id, 1000000, 0, 0, 0, 0, 0, min(created_ms) FROM ledger_usage
        GROUP BY account_id`);
      if (IS_POSTGRES) await tx.query('ANALYZE');
    },
    { timeoutMs: 600_000, durable: false },
  );
}

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
/** CPU time of a server and of the processes that it has started, in microseconds. */
function cpuOfAll(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ');
  return [pid, ...children.filter(Boolean).map(Number)].reduce((sum, one) => sum + cpuOf(one), 0);
}

const folder = FOLDER ?? temporaryFolder();
const postgres = IS_POSTGRES ? await startPostgres() : undefined;
const databaseUrl = postgres?.url('postgres') ?? `sqlite:${folder}/farebox.db`;
const BAD = 'no config';

async function prepare(): Promise<string> {
  const loaded = await loadConfig({
    env: { FAREBOX_DATA: folder },
    cwd: folder,
    readFile: async () => `database: ${JSON.stringify(databaseUrl)}`,
  });
  if (!loaded.ok) throw new Error(BAD, { cause: loaded.problems });
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
  if (row === undefined) await fill(stores.store);
  const from = performance.now();
  const { clock, log } = parts;
  while (!(await addReportDays({ store: stores.store, clock, log })));
  console.log(`past days added in ${((performance.now() - from) / 1_000).toFixed(1)} s`);
  await stores.close();
  return secret;
}

try {
  const secret = await prepare();
  const farebox = await startProcess('./gateway.ts', {
    args: ['http://127.0.0.1:9'],
    env: { FAREBOX_DATA: folder, BENCH_DATABASE: databaseUrl },
  });
  const headers = { authorization: `Bearer ${secret}` };
  const firstDay = new Date(Date.now() - (DAYS - 1) * DAY_MS).toISOString().slice(0, 10);
  console.log(`\n${ROWS} receipts of ${DAYS} days, ${IS_POSTGRES ? 'PostgreSQL' : 'SQLite'}`);
  console.log(`${'path'.padEnd(68)} rows   first ms  median ms   CPU ms`);
  let slowest = 0;
  for (const path of pathsFrom(firstDay).filter((one) => one.includes(ONLY))) {
    const times: number[] = [];
    const cpuBefore = cpuOfAll(farebox.pid);
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
    const cpuMs = (cpuOfAll(farebox.pid) - cpuBefore) / 1_000 / ROUNDS;
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
