/**
 * Chats on SQLite and on PostgreSQL that flushes to disk, with one, two and four processes, in one
 * run; once with many accounts and once with a single one, whose row is then the place where all
 * meet. Then what a chat costs: CPU of Farebox and of PostgreSQL, and the statements that PostgreSQL
 * was sent, so that the cost of one more process can be read off where all share the machine's cores.
 * Run: node bench/chat-databases.ts
 */
import { execFileSync } from 'node:child_process';
import { startPostgres } from '../test/databases/postgres.ts';
import { type FareboxProcess, removeFolder, startFarebox } from '../test/e2e/farebox-process.ts';
import { openStores } from '../src/server/stores.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { usdToNano } from '../src/core/money.ts';
import {
  type Load,
  type Target,
  compare,
  cpuOf,
  report,
  runWindow,
  startProcess,
  stopAll,
} from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const ACCOUNTS = 64;
const CONNECTIONS = 64;
const WIDE = '{ requestsPerMinute: 100000000, tokensPerMinute: 100000000000 }';

const upstream = await startProcess('./upstream.ts');
const bare = await startProcess('./bare-proxy.ts', { args: [upstream.url] });
const postgres = await startPostgres({ flush: true });
await postgres.stop();
await postgres.start(['shared_preload_libraries=pg_stat_statements']);
const running: FareboxProcess[] = [];

function yamlOf(database: string): string {
  return `listen: { host: 127.0.0.1, port: 0 }
database: ${JSON.stringify(database)}
embedded: { enabled: false }
discovery: { enabled: false }
engines: { bench: { url: ${upstream.url} } }
models:
  - { id: bench-model, type: text, context: 131072, maxCompletionTokens: 1024, traits: [default], price: { input: 0.05, output: 0.2 }, replicas: [{ engine: bench, model: upstream-model }] }
limits:
  keyConcurrency: 100000
  plans: { staff: { text: { XS: ${WIDE}, S: ${WIDE}, M: ${WIDE}, L: ${WIDE} } } }
`;
}

async function gateway(name: string, database: string, args: readonly string[]): Promise<Target> {
  const yaml = yamlOf(database);
  const farebox = await startFarebox({ yaml, args, quiet: true, uncheckedAnswers: true });
  running.push(farebox);
  const pid = farebox.child.pid ?? 0;
  const keys = await makeKeys(yaml, farebox.folder);
  return { name, url: farebox.url, pid, pids: childrenOf(pid), keys };
}

async function makeKeys(yaml: string, folder: string): Promise<string[]> {
  const loaded = await loadConfig({ env: {}, cwd: folder, readFile: async () => yaml });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  const parts = { config: loaded.config, clock: systemClock(), ids: systemIds(), log: silentLog };
  const stores = await openStores(parts);
  const keys: string[] = [];
  for (let at = 0; at < ACCOUNTS; at += 1) {
    const account = await stores.identity.createAccount(`bench ${at}`, 'staff');
    await stores.store.transaction((tx) =>
      stores.ledger.creditIn(tx, {
        accountId: account.id,
        amountNano: usdToNano('100000'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: `bench-${account.id}`,
      }),
    );
    const { secret } = await stores.identity.createKey({
      accountId: account.id,
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
    keys.push(secret);
  }
  await stores.close();
  return keys;
}

function childrenOf(pid: number): number[] {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid=']).toString().split('\n');
  const pairs = lines.map((line) => line.trim().split(/\s+/).map(Number));
  return pairs.filter(([, parent]) => parent === pid).flatMap(([child]) => child ?? []);
}

async function database(name: string): Promise<string> {
  await ask(`CREATE DATABASE ${name}`);
  return postgres.url(name);
}

async function ask(sql: string): Promise<readonly Record<string, unknown>[]> {
  const { default: pg } = await import('pg');
  const admin = new pg.Client({ connectionString: postgres.url('postgres') });
  await admin.connect();
  const { rows } = await admin.query<Record<string, unknown>>(sql);
  await admin.end();
  return rows;
}

/** What PostgreSQL was sent, BEGIN and COMMIT included: at least as many as round trips. */
async function statementsOf(database: string): Promise<number> {
  const [row] = await ask(
    `SELECT sum(s.calls) AS calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
     WHERE d.datname = '${database}'`,
  );
  return Number(row?.['calls'] ?? 0);
}

/** Bytes of its write-ahead log since the beginning. */
async function logOf(): Promise<number> {
  const [row] = await ask(`SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS bytes`);
  return Number(row?.['bytes'] ?? 0);
}

/** CPU of each of its processes so far, in microseconds. */
function cpuOfPostgres(): ReadonlyMap<number, number> {
  const pid = postgres.pid() ?? 0;
  return new Map([pid, ...childrenOf(pid)].map((one) => [one, cpuOf(one)]));
}

function cpuSince(before: ReadonlyMap<number, number>): number {
  let sum = 0;
  for (const [pid, cpu] of cpuOfPostgres()) sum += cpu - (before.get(pid) ?? 0);
  return sum;
}

const COST_WINDOW_MS = 3_000;

/** Median-free: one long window each, since CPU and counts add up. */
async function reportCost(title: string, targets: readonly Target[], load: Load): Promise<void> {
  console.log(`\n${title}`);
  console.log(
    'target                     chats   Farebox µs   PostgreSQL µs   statements/100   log bytes',
  );
  for (const [index, target] of targets.entries()) {
    const name = NAMES[index];
    const [cpu, log] = [cpuOfPostgres(), await logOf()];
    const sent = name === undefined ? 0 : await statementsOf(name);
    const figures = await runWindow(target, { ...load, windowMs: COST_WINDOW_MS });
    const chats = Math.round((figures.perSecond * COST_WINDOW_MS) / 1_000);
    const isPostgres = name !== undefined;
    const added = isPostgres ? cpuSince(cpu) / chats : 0;
    const statements = isPostgres ? ((await statementsOf(name)) - sent) / (chats / 100) : 0;
    console.log(
      target.name.padEnd(24) +
        String(chats).padStart(8) +
        figures.cpuMicroseconds.toFixed(0).padStart(13) +
        (isPostgres ? added.toFixed(0) : '-').padStart(16) +
        (isPostgres ? statements.toFixed(1) : '-').padStart(17) +
        (isPostgres ? (((await logOf()) - log) / chats).toFixed(0) : '-').padStart(12),
    );
  }
}

/** The databases of the targets, where they are on PostgreSQL. */
const NAMES = [undefined, 'one', 'two', 'four'];

const body = Buffer.from(
  JSON.stringify({
    model: 'bench-model',
    messages: [{ role: 'user', content: 'a '.repeat(500) }],
  }),
);
try {
  await ask('CREATE EXTENSION pg_stat_statements');
  const targets = [
    { name: 'bare undici proxy', ...bare },
    await gateway('SQLite', 'sqlite:./farebox.db', []),
    await gateway('PostgreSQL', await database('one'), []),
    await gateway('PostgreSQL, 2 workers', await database('two'), ['--workers', '2']),
    await gateway('PostgreSQL, 4 workers', await database('four'), ['--workers', '4']),
  ];
  const load = { path: '/chat/completions', connections: CONNECTIONS, windowMs: 1_000, body };
  report(`chat JSON, ${ACCOUNTS} accounts`, await compare(targets, load, ROUNDS));
  const single = targets.map(({ keys, ...target }) => {
    return keys === undefined ? target : { ...target, keys: keys.slice(0, 1) };
  });
  report('chat JSON, one account', await compare(single, load, ROUNDS));
  await reportCost(`cost of a chat, ${ACCOUNTS} accounts`, targets.slice(1), load);
  await reportCost('cost of a chat, one account', single.slice(1), load);
  const quiet = { ...load, connections: 1 };
  report('chat JSON, one caller at a time', await compare(targets, quiet, ROUNDS));
} finally {
  for (const farebox of running) {
    await farebox.stop();
    removeFolder(farebox);
  }
  await stopAll();
  await postgres.close();
}
