/**
 * Chats on SQLite and on PostgreSQL with one, two and four processes, with many accounts and with a
 * single one. Then the cost of a chat: CPU of Farebox and of PostgreSQL, and the statements, also
 * for keys with caps, accounts with a budget, and daily credit. At the end one caller at a time,
 * compared with a round trip and a flush alone.
 *
 * Run: node bench/chat-databases.ts. PARTS=rates,costs,alone,bounds,rest selects parts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { startPostgres } from '../test/databases/postgres.ts';
import { type FareboxProcess, removeFolder, startFarebox } from '../test/e2e/farebox-process.ts';
import { openStores } from '../src/server/stores.ts';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { usdToNano } from '../src/core/money.ts';
import { createBudget } from '../src/billing/budgets/budgets.ts';
import {
  type Load,
  type Target,
  chatBody,
  childrenOf,
  compare,
  cpuOf,
  cpuOfAll,
  median,
  report,
  runWindow,
  startProcess,
  stopAll,
  warmUp,
} from './harness.ts';

const PARTS = (process.env['PARTS'] ?? 'rates,costs,alone,bounds,rest').split(',');
const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const ACCOUNTS = 64;
const CONNECTIONS = 64;
const WEALTH = usdToNano('100000');
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

/** A target; `database` is set on PostgreSQL. */
interface Measured extends Target {
  readonly database?: string;
}

/** A target with its own keys, on the given PostgreSQL database, or on SQLite. */
async function gateway(
  name: string,
  database?: string,
  processes = 1,
  bounds: readonly Bound[] = ['nothing'],
): Promise<readonly Measured[]> {
  const yaml = yamlOf(database === undefined ? 'sqlite:./farebox.db' : postgres.url(database));
  const args = processes === 1 ? [] : ['--workers', String(processes)];
  const farebox = await startFarebox({ yaml, args, quiet: true, uncheckedResponses: true });
  running.push(farebox);
  const pid = farebox.child.pid ?? 0;
  const target = { name, url: farebox.url, pid, pids: childrenOf(pid), processes };
  const measured = database === undefined ? target : { ...target, database };
  const targets: Measured[] = [];
  for (const bound of bounds) {
    const keys = await makeKeys(yaml, farebox.folder, bound);
    targets.push({ ...measured, name: bound === 'nothing' ? name : `with ${bound}`, keys });
  }
  return targets;
}

/** Limits of a key or its account, in addition to the balance. */
type Bound = 'nothing' | 'cap' | 'budget' | 'daily credit';

async function makeKeys(yaml: string, folder: string, bound: Bound): Promise<string[]> {
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
        amountNano: WEALTH,
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: `bench-${account.id}`,
      }),
    );
    const { id: accountId } = account;
    if (bound === 'daily credit') await stores.ledger.setDailyAllocation(accountId, WEALTH);
    if (bound === 'budget') {
      const all = { tag: undefined, value: undefined, period: 'MONTH' } as const;
      await createBudget(stores, { ...all, accountId, usdLimitNano: WEALTH });
    }
    const limits = { usdLimitNano: bound === 'cap' ? WEALTH : undefined, diemLimitNano: undefined };
    const { key, secret } = await stores.identity.createKey({
      accountId,
      kind: 'INFERENCE',
      description: 'bench',
      expiresMs: undefined,
      limitPeriod: 'EPOCH',
      ...limits,
      modelPrivacy: 'ALL',
      models: undefined,
      limits: {},
    });
    if (bound === 'cap') {
      await stores.store.transaction((tx) =>
        stores.ledger.setCap(tx, { id: key.id, accountId, period: 'EPOCH', ...limits }),
      );
    }
    keys.push(secret);
  }
  await stores.close();
  return keys;
}

async function database(name: string): Promise<string> {
  await ask(`CREATE DATABASE ${name}`);
  return name;
}

async function ask(sql: string, name = 'postgres'): Promise<readonly Record<string, unknown>[]> {
  const { default: pg } = await import('pg');
  const admin = new pg.Client({ connectionString: postgres.url(name) });
  await admin.connect();
  const { rows } = await admin.query<Record<string, unknown>>(sql);
  await admin.end();
  return rows;
}

/** Purposes of statements, by a word in their text. Each statement is a round trip, as are BEGIN and COMMIT. */
const KINDS = {
  settles: /ledger_usage_day/,
  money: /ledger_hold|ledger_account/,
  windows: /limits_window/,
  notices: /pg_notify|LISTEN/,
  begins: /^(?:BEGIN|COMMIT|SET)/,
  others: /./,
} as const;
type Kind = keyof typeof KINDS;

/** Number of statements of each kind so far. */
async function statementsOf(database: string): Promise<ReadonlyMap<Kind, number>> {
  const rows = await ask(
    `SELECT s.query, s.calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
     WHERE d.datname = '${database}'`,
  );
  const sent = new Map<Kind, number>();
  for (const { query, calls } of rows) {
    for (const kind of Object.keys(KINDS) as Kind[]) {
      if (!KINDS[kind].test(String(query))) continue;
      sent.set(kind, (sent.get(kind) ?? 0) + Number(calls));
      break;
    }
  }
  return sent;
}

/** Bytes of the write-ahead log since the start of PostgreSQL. */
async function logOf(): Promise<number> {
  const [row] = await ask(`SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS bytes`);
  return Number(row?.['bytes'] ?? 0);
}

/** CPU time of each process of PostgreSQL so far, in microseconds. */
function cpuOfPostgres(): ReadonlyMap<number, number> {
  const pid = postgres.pid() ?? 0;
  return new Map([pid, ...childrenOf(pid)].map((one) => [one, cpuOf(one)]));
}

function cpuBetween(
  before: ReadonlyMap<number, number>,
  after: ReadonlyMap<number, number>,
): number {
  let sum = 0;
  for (const [pid, cpu] of after) sum += cpu - (before.get(pid) ?? 0);
  return sum;
}

const COST_WINDOW_MS = 3_000;

/** All callers have sent a first request by then, which is not measured. */
const LEAD_MS = 1_000;

interface CostSample {
  readonly chats: number;
  readonly cpu: ReadonlyMap<number, number>;
  readonly log: number;
  readonly sent: ReadonlyMap<Kind, number>;
}

async function sampleOf(name: string): Promise<CostSample> {
  const [row] = await ask('SELECT count(*) AS chats FROM ledger_usage', name);
  const sent = await statementsOf(name);
  return { chats: Number(row?.['chats']), cpu: cpuOfPostgres(), log: await logOf(), sent };
}

/** Measures one long window, because CPU time and counts add up. */
async function reportCost(
  title: string,
  targets: readonly Measured[],
  loadOf: (target: Measured) => Load,
): Promise<void> {
  console.log(`\n${title}; statements of 100 chats: all = settles + …`);
  console.log(
    'target                     chats   Farebox µs   PostgreSQL µs   log bytes   statements',
  );
  for (const target of targets) {
    const { database: name } = target;
    const window = runWindow(target, { ...loadOf(target), windowMs: LEAD_MS + COST_WINDOW_MS });
    await delay(LEAD_MS);
    const before = name === undefined ? undefined : await sampleOf(name);
    await delay(COST_WINDOW_MS - LEAD_MS / 2);
    const after = name === undefined ? undefined : await sampleOf(name);
    const figures = await window;
    const own = figures.cpuMicroseconds.toFixed(0).padStart(21);
    if (before === undefined || after === undefined) {
      console.log(target.name.padEnd(24) + own);
      continue;
    }
    const chats = after.chats - before.chats;
    const cpu = cpuBetween(before.cpu, after.cpu) / chats;
    const log = (after.log - before.log) / chats;
    const sent = [...after.sent].map(([kind, count]) => {
      return { kind, of100: (count - (before.sent.get(kind) ?? 0)) / (chats / 100) };
    });
    const all = sent.reduce((sum, { of100 }) => sum + of100, 0);
    const parts = sent
      .filter(({ of100 }) => of100 >= 0.05)
      .map(({ kind, of100 }) => `${of100.toFixed(1)} ${kind}`);
    console.log(
      target.name.padEnd(24) +
        String(chats).padStart(8) +
        own.slice(8) +
        cpu.toFixed(0).padStart(16) +
        log.toFixed(0).padStart(12) +
        `   ${all.toFixed(1)} = ${parts.join(' + ')}`,
    );
  }
}

/** Measures the round trip of a statement, and the time of a flush to disk. */
async function reportFlush(): Promise<void> {
  const { default: pg } = await import('pg');
  const client = new pg.Client({ connectionString: postgres.url('postgres') });
  await client.connect();
  await client.query('CREATE TABLE flushed (id int PRIMARY KEY, n int)');
  await client.query('INSERT INTO flushed VALUES (1, 0)');
  const timed = async (text: string): Promise<number> => {
    const took: number[] = [];
    for (let at = 0; at < FLUSHES; at += 1) {
      const from = performance.now();
      await client.query({ name: text, text });
      took.push(performance.now() - from);
    }
    return median(took);
  };
  const trip = await timed('SELECT n FROM flushed WHERE id = 1');
  const write = 'UPDATE flushed SET n = n + 1 WHERE id = 1';
  await client.query('SET synchronous_commit = off');
  const lazy = await timed(write);
  await client.query('SET synchronous_commit = on');
  const durable = await timed(write);
  await client.end();
  console.log(
    `\na round trip ${trip.toFixed(2)} ms, a flush ${(durable - lazy).toFixed(2)} ms (medians of ${FLUSHES})`,
  );
}

const FLUSHES = 300;

const REST_MS = 20_000;

/** Measures idle processes, after a short load that makes them lease. */
async function reportRest(load: Load): Promise<void> {
  console.log('\nat rest, a second: processes   Farebox ms   PostgreSQL ms   statements');
  for (const processes of [1, 2, 4]) {
    const name = await database(`rest${processes}`);
    const [target] = await gateway('at rest', name, processes);
    if (target === undefined) throw new Error('No target');
    await runWindow(target, { ...load, windowMs: 2_000 });
    await delay(3_000);
    const own = (): number => cpuOfAll([target.pid, ...(target.pids ?? [])]);
    const before = { sent: await statementsOf(name), cpu: cpuOfPostgres(), own: own() };
    await delay(REST_MS);
    const after = { sent: await statementsOf(name), cpu: cpuOfPostgres(), own: own() };
    const parts = [...after.sent].map(([kind, count]) => {
      return `${((count - (before.sent.get(kind) ?? 0)) / (REST_MS / 1_000)).toFixed(1)} ${kind}`;
    });
    const perSecond = (cpu: number): string => (cpu / REST_MS).toFixed(2);
    console.log(
      String(processes).padStart(26) +
        perSecond(after.own - before.own).padStart(13) +
        perSecond(cpuBetween(before.cpu, after.cpu)).padStart(16) +
        `   ${parts.join(' + ')}`,
    );
    await running.pop()?.stop();
  }
}

/** Measures one process with each kind of key, with many callers and with one. */
async function reportBounds(load: Load): Promise<void> {
  const bounds = ['nothing', 'cap', 'budget', 'daily credit'] as const;
  const targets = await gateway('without a bound', await database('bounds'), 1, bounds);
  await reportCost(`cost of a chat on PostgreSQL, ${ACCOUNTS} accounts`, targets, () => load);
  const alone = targets.map(({ keys = [], ...target }) => ({ ...target, keys: keys.slice(0, 1) }));
  await reportCost('the same, one caller', alone, () => ({ ...load, connections: 1 }));
}

function has(part: string): boolean {
  return PARTS.includes(part);
}

async function reportProcesses(load: Load): Promise<void> {
  const targets: Measured[] = [
    { name: 'bare undici proxy', ...bare },
    ...(await gateway('SQLite')),
    ...(await gateway('PostgreSQL', await database('one'))),
    ...(await gateway('PostgreSQL, 2 workers', await database('two'), 2)),
    ...(await gateway('PostgreSQL, 4 workers', await database('four'), 4)),
  ];
  if (has('rates')) report(`chat JSON, ${ACCOUNTS} accounts`, await compare(targets, load, ROUNDS));
  const single = targets.map(({ keys, ...target }) => {
    return keys === undefined ? target : { ...target, keys: keys.slice(0, 1) };
  });
  if (has('rates')) report('chat JSON, one account', await compare(single, load, ROUNDS));
  if (has('costs')) await reportCosts(targets.slice(1), single.slice(1), load);
  if (has('alone')) await reportAlone(targets.slice(0, 3), load);
}

async function reportCosts(
  targets: readonly Measured[],
  single: readonly Measured[],
  load: Load,
): Promise<void> {
  for (const target of targets) await warmUp(target, load);
  await reportCost(`cost of a chat, ${ACCOUNTS} accounts`, targets, () => load);
  await reportCost('cost of a chat, one account', single, () => load);
  await reportCost(
    `cost of a chat, ${ACCOUNTS} accounts, ${CONNECTIONS} callers for each process`,
    targets,
    ({ processes = 1 }) => ({ ...load, connections: CONNECTIONS * processes }),
  );
}

async function reportAlone(targets: readonly Measured[], load: Load): Promise<void> {
  const quiet = { ...load, connections: 1 };
  const lazy = await database('unflushed');
  await ask('ALTER DATABASE unflushed SET synchronous_commit = off');
  await reportFlush();
  const alone = [...targets, ...(await gateway('PostgreSQL, no flush', lazy))];
  report('chat JSON, one caller at a time', await compare(alone, quiet, ROUNDS));
}

const body = chatBody();
try {
  await ask('CREATE EXTENSION pg_stat_statements');
  const load = { path: '/chat/completions', connections: CONNECTIONS, windowMs: 1_000, body };
  if (has('rates') || has('costs') || has('alone')) await reportProcesses(load);
  if (has('bounds')) await reportBounds(load);
  if (has('rest')) await reportRest(load);
} finally {
  for (const farebox of running) {
    await farebox.stop();
    removeFolder(farebox);
  }
  await stopAll();
  await postgres.close();
}
