/**
 * Faults that leases must survive. Each scenario starts its own PostgreSQL and real processes, and
 * compares the responses with the books. Used by a short test and by `bench/lease-faults.ts`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import { startCutProxy } from '../databases/cut-proxy.ts';
import { startPostgres } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import type { FareboxProcess } from './farebox-process.ts';
import { DEAD_AFTER_MS, type Fixture, deadHaveNothing, proven, statuses } from './lease-books.ts';
import { caps } from './lease-caps.ts';
import { underKeys } from './lease-keys.ts';
import {
  PATIENCE_MS,
  ProcessFixture,
  type Question,
  type Seen,
  THINKING,
  ask,
  burst,
  count,
  keepAsking,
  readBooks,
  soon,
} from './process-fixture.ts';

const clock = systemClock();
/** With more rounds there are too many responses to validate against the OpenAPI document. */
const CHECKED_ROUNDS = 5;

/** Callers of a process that can be another one in a moment. */
function callers(
  fixture: Fixture,
  secret: string,
  first: FareboxProcess | undefined,
  question: () => Question = () => ({ secret }),
) {
  const at = { process: first };
  const seen: Seen[] = [];
  const stop = keepAsking(() => at.process, question, seen, fixture.pauseMs);
  fixture.ends.push(stop);
  return { at, seen, stop };
}

async function exact({ servers, database }: Fixture, processes: number): Promise<string> {
  const all = await Promise.all(
    Array.from({ length: processes }, () => servers.start({ database, creditUsd: '0.01' })),
  );
  const secret = all.map((one) => one.secret).find((one) => one !== undefined) ?? '';
  const seen = await burst(all, secret, 5_000, processes > 2 ? 8 : 24);
  const served = count(seen, ({ status }) => status === 200);
  assert.deepEqual([served, count(seen, ({ status }) => status === 402)], [1_000, 4_000]);
  for (const farebox of all) assert.equal(await servers.end(farebox), 0);
  return `${statuses(seen)}; ${await proven(database, seen)}`;
}

/** One process has leased the credit, and another one under load needs it. */
async function recall({ servers, database, ends }: Fixture): Promise<string> {
  const settings = { database, creditUsd: '0.01' };
  const first = await servers.start(settings);
  const second = await servers.start(settings);
  const secret = first.secret ?? '';
  const pool = new Pool(new URL(first.url).origin, { connections: 1 });
  ends.push(() => pool.close());
  assert.equal((await ask(pool, { secret })).status, 200);
  const seen = await burst([second], secret, 1_500, 24);
  const served = count(seen, ({ status }) => status === 200);
  assert.deepEqual([served, count(seen, ({ status }) => status === 402)], [999, 501]);
  const slowest = Math.max(...seen.map(({ tookMs }) => tookMs));
  return `${statuses(seen)}, the slowest ${Math.round(slowest)} ms; ${await proven(database, seen)}`;
}

/** Suspends the process that has leased the credit, for less than the dead-after time, during a recall. */
async function recallStopped(fixture: Fixture): Promise<string> {
  const { servers, database } = fixture;
  const settings = { database, creditUsd: '0.01' };
  const [first, second] = [await servers.start(settings), await servers.start(settings)];
  const secret = first.secret ?? '';
  const before = await burst([first], secret, 10, 2);
  first.child.kill('SIGSTOP');
  const one = callers(fixture, secret, second);
  await clock.sleep(STOPPED_MS);
  const whileStopped = [...one.seen];
  first.child.kill('SIGCONT');
  const all = (): Seen[] => [...before, ...one.seen];
  await soon('all is sold', PATIENCE_MS, async () => {
    return count(all(), ({ status }) => status === 402) > 0 ? true : undefined;
  });
  await one.stop();
  assert.equal(
    count(whileStopped, ({ status }) => status === 402),
    0,
  );
  assert.equal(
    count(all(), ({ status }) => status === 200),
    1_000,
  );
  for (const farebox of [first, second]) assert.equal(await servers.end(farebox), 0);
  return `${statuses(whileStopped)} while stopped, ${statuses(all())} in all; ${await proven(database, all())}`;
}

const STOPPED_MS = 8_000;

async function kill(fixture: Fixture, rounds: number): Promise<string> {
  const { servers, database } = fixture;
  const settings = { database, isNervous: true, isUnchecked: true };
  const first = await servers.start(settings);
  const secret = first.secret ?? '';
  const steady = callers(fixture, secret, first);
  const killed = callers(fixture, secret, undefined);
  let least = Number.POSITIVE_INFINITY;
  for (let round = 1; round <= rounds; round += 1) {
    const victim = await servers.start(settings);
    killed.at.process = victim;
    const before = killed.seen.length;
    await clock.sleep(200 + (round % 7) * 40);
    killed.at.process = undefined;
    await servers.end(victim, 'SIGKILL');
    least = Math.min(least, killed.seen.length - before);
    // The books are whole in the middle of it, whatever is under way.
    if (round % 10 === 0) await readBooks(database);
  }
  await steady.stop();
  await killed.stop();
  assert.ok(least >= 0 && count(killed.seen, ({ status }) => status === 200) > rounds);
  const all = [...steady.seen, ...killed.seen];
  return `killed ${rounds} times: ${statuses(all)}; ${await proven(database, all)}`;
}

async function stopped(fixture: Fixture, rounds: number): Promise<string> {
  const { servers, database } = fixture;
  const settings = { database, isNervous: true, isUnchecked: rounds > CHECKED_ROUNDS };
  const first = await servers.start(settings);
  const second = await servers.start(settings);
  const secret = first.secret ?? '';
  const one = callers(fixture, secret, first);
  const other = callers(fixture, secret, second);
  for (let round = 0; round < rounds; round += 1) {
    await clock.sleep(700);
    second.child.kill('SIGSTOP');
    await clock.sleep(3 * DEAD_AFTER_MS);
    second.child.kill('SIGCONT');
    const from = other.seen.length;
    await soon('it serves again', PATIENCE_MS, async () => {
      return count(other.seen.slice(from), ({ status }) => status === 200) > 30 ? true : undefined;
    });
  }
  await one.stop();
  await other.stop();
  const late = second.output().match(/Settled after the lease/g)?.length ?? 0;
  const reborn = second.output().match(/considered this one dead/g)?.length ?? 0;
  assert.ok(reborn >= 1, 'it was taken for dead');
  const all = [...one.seen, ...other.seen];
  return `taken for dead ${reborn} times, ${late} late settles: ${statuses(all)}; ${await proven(database, all)}`;
}

async function cut(fixture: Fixture): Promise<string> {
  const { servers, postgres, database } = fixture;
  const proxy = await startCutProxy(postgres.socketPath);
  fixture.ends.push(() => proxy.close());
  const first = await servers.start({ database: proxy.url('postgres'), isNervous: true });
  const second = await servers.start({ database, isNervous: true });
  const secret = first.secret ?? '';
  const far = callers(fixture, secret, first);
  const near = callers(fixture, secret, second);
  for (const ms of [400, 3 * DEAD_AFTER_MS]) {
    await clock.sleep(700);
    proxy.cut();
    await clock.sleep(ms);
    proxy.mend();
    const from = far.seen.length;
    await soon('it serves again', PATIENCE_MS, async () => {
      return count(far.seen.slice(from), ({ status }) => status === 200) > 30 ? true : undefined;
    });
  }
  await far.stop();
  await near.stop();
  for (const farebox of [first, second]) assert.equal(await servers.end(farebox), 0);
  const all = [...far.seen, ...near.seen];
  return `${statuses(all)}; ${await proven(database, all)}`;
}

/** Every reply of the database takes two seconds for a while. */
async function slow(fixture: Fixture): Promise<string> {
  const { servers, postgres, ends, database } = fixture;
  const proxy = await startCutProxy(postgres.socketPath);
  ends.push(() => proxy.close());
  const settings = { database: proxy.url('postgres'), isUnchecked: true, replySeconds: 5 };
  const both = [await servers.start(settings), await servers.start(settings)];
  const secret = both[0]?.secret ?? '';
  let keys = 0;
  const keyed = (): Question => ({ secret, key: `key-${(keys += 1)}` });
  const all = both.flatMap((one) => [
    callers(fixture, secret, one),
    callers(fixture, secret, one, keyed),
    callers(fixture, secret, one, keyed),
  ]);
  await clock.sleep(1_000);
  proxy.slow(SLOW_MS);
  const before = all.map(({ seen }) => seen.length);
  await clock.sleep(SLOW_FOR_MS);
  const during = all.flatMap(({ seen }, at) => seen.slice(before[at]));
  const isHonest = ({ status }: Seen): boolean => [200, 429, 503].includes(status);
  assert.deepEqual(
    during.filter((one) => !isHonest(one)),
    [],
  );
  proxy.slow(0);
  const from = all.map(({ seen }) => seen.length);
  await soon('all serve again', PATIENCE_MS, async () => {
    const served = all.map(({ seen }, at) =>
      count(seen.slice(from[at]), ({ status }) => status === 200),
    );
    return served.every((some) => some > 100) ? true : undefined;
  });
  for (const { stop } of all) await stop();
  const lost = both.map((one) => one.output().match(/The database is unreachable/g)?.length ?? 0);
  // Unserved requests have waited; a lost database would reject thousands immediately.
  const served = count(during, ({ status }) => status === 200);
  const refused = count(during, ({ status }) => status === 503);
  assert.ok(served > 0 && refused < MOST_REFUSED, statuses(during));
  for (const farebox of both) assert.equal(await servers.end(farebox), 0);
  const seen = all.flatMap((one) => one.seen);
  return `lost ${lost.join(' and ')} times, ${statuses(during)} while slow, ${statuses(seen)} in all; ${await proven(database, seen)}`;
}

const SLOW_MS = 2_000;
const SLOW_FOR_MS = 20_000;
/** More than all callers together, each of which waits for some five seconds. */
const MOST_REFUSED = 500;

async function database(fixture: Fixture, rounds: number): Promise<string> {
  const { servers, postgres } = fixture;
  const isUnchecked = rounds > CHECKED_ROUNDS;
  const settings = { database: fixture.database, isNervous: true, isUnchecked };
  const first = await servers.start(settings);
  const second = await servers.start(settings);
  const secret = first.secret ?? '';
  const both = [callers(fixture, secret, first), callers(fixture, secret, second)];
  for (let round = 0; round < rounds; round += 1) {
    await clock.sleep(700);
    await postgres.stop('SIGKILL');
    await clock.sleep(500);
    await postgres.start();
    const from = both.map(({ seen }) => seen.length);
    await soon('both serve again', PATIENCE_MS, async () => {
      const served = both.map(({ seen }, at) =>
        count(seen.slice(from[at]), ({ status }) => status === 200),
      );
      return served.every((some) => some > 30) ? true : undefined;
    });
  }
  for (const { stop } of both) await stop();
  for (const farebox of [first, second]) assert.equal(await servers.end(farebox), 0);
  const all = both.flatMap(({ seen }) => seen);
  return `killed and started ${rounds} times: ${statuses(all)}; ${await proven(fixture.database, all)}`;
}

/** The primary dies permanently, and the synchronous standby takes over. */
async function standby(fixture: Fixture): Promise<string> {
  const { servers, ends } = fixture;
  const primary = await startPostgres({ flush: true });
  ends.push(() => primary.close());
  await primary.stop();
  const follower = await startPostgres({ flush: true, follows: primary });
  ends.push(() => follower.close());
  await primary.start(['synchronous_standby_names=*']);
  await soon('the standby follows', PATIENCE_MS, async () => {
    const store = await openTestStore(primary.url('postgres'));
    const rows = await store.query(
      "SELECT 1 AS one FROM pg_stat_replication WHERE sync_state = 'sync'",
    );
    await store.close();
    return rows.length > 0 ? true : undefined;
  });
  const proxies = [
    await startCutProxy(primary.socketPath),
    await startCutProxy(follower.socketPath),
  ];
  for (const proxy of proxies) ends.push(() => proxy.close());
  const [one, two] = proxies.map((proxy) => proxy.url('postgres'));
  const hosts = (one ?? '').replace(/\/postgres$/, `,${new URL(two ?? '').host}/postgres`);
  const settings = { database: hosts, isNervous: true, cluster: `, readReplicas: ["${two}"]` };
  const first = await servers.start(settings);
  const second = await servers.start(settings);
  const secret = first.secret ?? '';
  const both = [callers(fixture, secret, first), callers(fixture, secret, second)];
  await clock.sleep(3_000);
  await primary.stop('SIGKILL');
  await clock.sleep(300);
  const lostMs = performance.now();
  const store = await openTestStore(follower.url('postgres'));
  await store.query('SELECT pg_promote()');
  await store.close();
  const from = both.map(({ seen }) => seen.length);
  await soon('both serve again', PATIENCE_MS, async () => {
    const served = both.map(({ seen }, at) =>
      count(seen.slice(from[at]), ({ status }) => status === 200),
    );
    return served.every((some) => some > 100) ? true : undefined;
  });
  const backMs = Math.round(performance.now() - lostMs);
  for (const { stop } of both) await stop();
  for (const farebox of [first, second]) assert.equal(await servers.end(farebox), 0);
  const all = both.flatMap(({ seen }) => seen);
  const books = await proven(follower.url('postgres'), all);
  return `served again ${backMs} ms after the promotion: ${statuses(all)}; ${books}`;
}

/** The version before beside this one, and then this one in its place. */
async function upgrade(fixture: Fixture): Promise<string> {
  const { servers, database } = fixture;
  const program = process.env['OLD'] ?? assert.fail('OLD names the main.ts of the version before');
  const settings = { database, isNervous: true };
  const first = await servers.start({ ...settings, program });
  const secret = first.secret ?? '';
  const one = callers(fixture, secret, first);
  const other = callers(fixture, secret, undefined);
  await clock.sleep(500);
  const second = await servers.start(settings);
  other.at.process = second;
  await clock.sleep(3_000);
  await readBooks(database);
  // The version before is alone, and gives back what the dead one had leased.
  other.at.process = undefined;
  await servers.end(second, 'SIGKILL');
  await clock.sleep(3 * DEAD_AFTER_MS);
  await deadHaveNothing(database);
  await readBooks(database);
  const third = await servers.start(settings);
  other.at.process = third;
  await clock.sleep(1_500);
  one.at.process = third;
  assert.equal(await servers.end(first), 0);
  await clock.sleep(1_500);
  await one.stop();
  await other.stop();
  const all = [...one.seen, ...other.seen];
  const failed = count(all, ({ status }) => status !== 200);
  assert.equal(failed, 0, statuses(all));
  return `${statuses(all)}; ${await proven(database, all)}`;
}

/** PgBouncer in transaction mode, without and with a way past it. */
async function pooler(fixture: Fixture): Promise<string> {
  const { servers, postgres, ends, database } = fixture;
  const program = process.env['PGBOUNCER'] ?? 'pgbouncer';
  const folder = mkdtempSync(join(tmpdir(), 'farebox-pgbouncer-'));
  ends.push(async () => rmSync(folder, { recursive: true, force: true }));
  const port = 20_000 + (process.pid % 10_000);
  const ini = join(folder, 'pgbouncer.ini');
  writeFileSync(join(folder, 'users.txt'), '"postgres" ""\n');
  writeFileSync(
    ini,
    `[databases]
postgres = host=${postgres.folder} dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
auth_file = ${folder}/users.txt
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout
`,
  );
  const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  chmodSync(folder, 0o755);
  if ('uid' in nobody) chownSync(folder, 65_534, 65_534);
  const child = spawn(program, [ini], { ...nobody, stdio: 'ignore' });
  ends.push(async () => child.kill('SIGKILL'));
  await clock.sleep(500);
  const pooled = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const deaf = await servers.start({ database: pooled });
  const secret = deaf.secret ?? '';
  const unheard = await burst([deaf], secret, 500);
  assert.equal(
    count(unheard, ({ status }) => status === 200),
    500,
  );
  assert.match(deaf.output(), /Notifications of the database are not delivered/);
  const cluster = `, directDatabase: ${JSON.stringify(postgres.url('postgres'))}`;
  const direct = await servers.start({ database: pooled, cluster });
  const heard = await burst([direct, deaf], secret, 2_000);
  assert.equal(
    count(heard, ({ status }) => status === 200),
    2_000,
  );
  assert.doesNotMatch(direct.output(), /are not delivered/);
  for (const farebox of [deaf, direct]) assert.equal(await servers.end(farebox), 0);
  const said = /does not keep prepared statements/.test(deaf.output()) ? 'unprepared, ' : '';
  return `${said}${statuses([...unheard, ...heard])}; ${await proven(database, [...unheard, ...heard])}`;
}

/** By name, for as many rounds as `rounds` says where there are rounds. */
export const SCENARIOS: Readonly<
  Record<string, (fixture: Fixture, rounds: number) => Promise<string>>
> = {
  'exact-2': (fixture) => exact(fixture, 2),
  'exact-8': (fixture) => exact(fixture, 8),
  recall,
  'recall-stopped': recallStopped,
  kill,
  'caps-2': (fixture, rounds) => caps(fixture, rounds, 2),
  'caps-4': (fixture, rounds) => caps(fixture, rounds, 4),
  stopped,
  keys: underKeys,
  cut,
  slow,
  database,
  standby,
  upgrade,
  pooler,
};

/** Runs one scenario on a PostgreSQL of its own; says what was seen. */
export async function runScenario(name: string, rounds: number, pauseMs = 0): Promise<string> {
  const scenario = SCENARIOS[name];
  assert.ok(scenario !== undefined, `There is no scenario ${name}`);
  const servers = await ProcessFixture.open();
  if (pauseMs > 0) servers.upstream.otherwise = THINKING;
  const postgres = await startPostgres();
  const ends: (() => Promise<unknown>)[] = [];
  const fixture = { servers, postgres, database: postgres.url('postgres'), ends, pauseMs };
  try {
    return await scenario(fixture, rounds);
  } finally {
    for (const end of ends.toReversed()) await end();
    await servers.close();
    await postgres.close();
  }
}
