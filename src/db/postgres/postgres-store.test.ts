import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CutProxy, startCutProxy } from '../../../test/databases/cut-proxy.ts';
import { type TestPostgres, startPostgres } from '../../../test/databases/postgres.ts';
import { type LogLine, memoryLog } from '../../../test/support/memory-log.ts';
import { until } from '../../../test/support/until.ts';
import { SECOND_MS, systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { ReadTooLong, StoreUnavailable } from '../failures.ts';
import { MAX_READ_MS } from '../read-turns.ts';
import { type PostgresOptions, PostgresStore, serversOf } from './postgres-store.ts';

const REPLY_TIMEOUT_MS = 1_000;
/** Far above the delays of a busy machine, and below network timeouts of minutes. */
const IN_TIME_MS = 20_000;
const SLOW_REPLY_TIMEOUT_MS = 8_000;
/** The statement timeout and this together are seconds below the reply timeout. */
const SLOW_MS = 1_000;
/** Longer than a probe may take with a short reply timeout. */
const SLOW_PROBE_MS = 2_200;
const PAUSE = new Int32Array(new SharedArrayBuffer(4));

describe('`PostgresStore` with an unreachable database', () => {
  let postgres: TestPostgres;
  let first: CutProxy;
  let second: CutProxy;
  const stores: PostgresStore[] = [];

  before(async () => {
    postgres = await startPostgres();
    first = await startCutProxy(postgres.socketPath);
    second = await startCutProxy(postgres.socketPath);
  });
  after(async () => {
    await first.close();
    await second.close();
    for (const store of stores) await store.close();
    await postgres.close();
  });

  function open(
    url: string,
    maxConnections = 4,
    replyTimeoutMs = REPLY_TIMEOUT_MS,
    others: Partial<PostgresOptions> = {},
  ): PostgresStore {
    const parts = { clock: systemClock(), ids: systemIds(), log: silentLog, ...others };
    const store = new PostgresStore({ ...parts, url, maxConnections, replyTimeoutMs });
    stores.push(store);
    return store;
  }

  async function timed(work: () => Promise<unknown>): Promise<{ error: unknown; tookMs: number }> {
    const startedMs = performance.now();
    const error = await work().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    return { error, tookMs: performance.now() - startedMs };
  }

  async function back(store: PostgresStore): Promise<void> {
    await until(() => store.unavailable() === undefined, 'that the database comes back');
  }

  test('a network partition is detected within the reply timeout, then calls fail at once, then they recover', async () => {
    const store = open(first.url('postgres'));
    await store.query('SELECT 1 AS one');
    first.cut();
    const noticed = await Promise.all(
      // More calls than connections: waiting for a connection is bounded too.
      Array.from({ length: 20 }, () => timed(() => store.query('SELECT 1 AS one'))),
    );
    for (const { error, tookMs } of noticed) {
      assert.ok(error instanceof StoreUnavailable);
      assert.ok(tookMs < IN_TIME_MS, `${tookMs} ms`);
    }
    let refusal: unknown;
    store.query('SELECT 1 AS one').catch((error: unknown) => (refusal = error));
    await new Promise(setImmediate);
    assert.ok(refusal instanceof StoreUnavailable, 'it is not refused at once');
    first.mend();
    await back(store);
    assert.deepEqual([...(await store.query('SELECT 1 AS one'))], [{ one: 1n }]);
  });

  test('the second server of the URL is used if the first one is down', async () => {
    const [one, two] = [first.url('postgres'), second.url('postgres')];
    const both = one.replace(/\/postgres$/, `,${new URL(two).host}/postgres`);
    assert.deepEqual(serversOf(both), [one, two]);
    const store = open(both);
    await store.migrate([]);
    first.cut();
    second.cut();
    await assert.rejects(store.query('SELECT 1 AS one'), StoreUnavailable);
    await assert.rejects(open(both).migrate([]), /No server of the database accepts writes/);
    second.mend();
    await back(store);
    await store.query('SELECT 1 AS one');
    first.mend();
  });

  test('a statement timeout fails that call alone and does not mark the database as unreachable', async () => {
    const store = open(postgres.url('postgres'), 2);
    const slow = await timed(() => store.query('SELECT pg_sleep(60)'));
    assert.ok(slow.error instanceof StoreUnavailable);
    assert.ok(slow.tookMs < IN_TIME_MS, `${slow.tookMs} ms`);
    assert.equal(store.unavailable(), undefined);
    await store.query('SELECT 1 AS one');
  });

  test('writes do not wait for a migration that waits for a long read', async () => {
    const old = open(postgres.url('postgres'), 4, SLOW_REPLY_TIMEOUT_MS);
    const next = open(postgres.url('postgres'));
    const made = { id: 'sample-0001', up: 'CREATE TABLE sample_moved (id BIGINT)' };
    await old.migrate([made]);
    const added = { id: 'sample-0002', up: 'ALTER TABLE sample_moved ADD COLUMN size BIGINT' };
    let migrating: Promise<void> | undefined;
    const reading = old.transaction(
      async (tx) => {
        await tx.query('SELECT id FROM sample_moved');
        migrating = next.migrate([made, added]);
        await sleep(SLOW_MS / 2);
        await old.query('INSERT INTO sample_moved (id) VALUES (1)');
      },
      { isSnapshot: true, timeoutMs: IN_TIME_MS },
    );
    try {
      await reading;
    } finally {
      await migrating;
    }
    assert.deepEqual(
      [...(await next.query('SELECT id, size FROM sample_moved'))],
      [{ id: 1n, size: null }],
    );
    await next.query('DROP TABLE sample_moved');
    await next.query('DELETE FROM store_migration');
  });

  test('a `lock_timeout` of the role repeats a write, and a change of a table is still not repeated', async () => {
    const admin = open(postgres.url('postgres'), 2, SLOW_REPLY_TIMEOUT_MS);
    await admin.query('CREATE TABLE sample_locked (id BIGINT)');
    await admin.query('INSERT INTO sample_locked (id) VALUES (1)');
    const options = encodeURIComponent('-c lock_timeout=100');
    const store = open(`${postgres.url('postgres')}&options=${options}`);
    let writing: Promise<unknown> | undefined;
    let runs = 0;
    await admin.transaction(async (tx) => {
      await tx.query('UPDATE sample_locked SET id = 2');
      const changing = store.transaction(
        async (other) => {
          runs += 1;
          await other.query('ALTER TABLE sample_locked ADD COLUMN size BIGINT');
        },
        { limitsLockWait: true },
      );
      await assert.rejects(changing, /lock timeout/);
      writing = store.query('UPDATE sample_locked SET id = id + 1 RETURNING id');
      await sleep(200);
    });
    assert.deepEqual(await writing, [{ id: 3n }]);
    assert.equal(runs, 1);
    await admin.query('DROP TABLE sample_locked');
  });

  test('a timeout in the pool fails that call alone and does not mark the database as unreachable', async () => {
    const store = open(postgres.url('postgres'), 1);
    const slow = store.transaction(async (tx) => {
      for (let time = 0; time < 12; time += 1) {
        await tx.query('SELECT pg_sleep($1::float)', [(0.1 * REPLY_TIMEOUT_MS) / SECOND_MS]);
      }
    });
    const waited = await timed(() => store.query('SELECT 1 AS one'));
    assert.ok(waited.error instanceof StoreUnavailable);
    assert.match(waited.error.message, /became free/);
    assert.equal(store.unavailable(), undefined);
    assert.equal(store.losses, 0);
    await slow;
  });

  test('a slow database is not marked as unreachable, and probes accept its slow replies', async () => {
    const store = open(first.url('postgres'), 2, SLOW_REPLY_TIMEOUT_MS);
    await store.query('CREATE TABLE slow (id int)');
    const notices = await store.listen(() => undefined);
    assert.equal(notices.areDelivered, true);
    const quick = open(postgres.url('postgres'), 1, 10 * SLOW_REPLY_TIMEOUT_MS);
    first.slow(SLOW_MS);
    await quick.transaction(async (tx) => {
      await tx.query('LOCK TABLE slow');
      // The server cancels it, and the error arrives late.
      const waiting = await timed(() => store.query('SELECT * FROM slow'));
      assert.ok(waiting.error instanceof StoreUnavailable);
      assert.match(waiting.error.message, /statement timeout/);
    });
    assert.equal(store.losses, 0);
    assert.equal(notices.areDelivered, true);
    const [row] = await store.query<{ pid: bigint }>('SELECT pg_backend_pid() AS pid');
    first.slow(SLOW_PROBE_MS);
    await quick.query('SELECT pg_terminate_backend($1::int)', [row?.pid ?? 0n]);
    while (store.losses === 0) await systemClock().sleep(20);
    await back(store);
    first.slow(0);
    await store.query('SELECT 1 AS one');
    await quick.query('DROP TABLE slow');
  });

  test('a transaction with `timeoutMs` may exceed the reply timeout', async () => {
    const store = open(postgres.url('postgres'));
    await store.transaction((tx) => tx.query('SELECT pg_sleep(1.3)'), { timeoutMs: 30_000 });
    assert.equal(store.unavailable(), undefined);
  });

  test('an overview read may exceed the reply timeout up to its own limit', async () => {
    const store = open(postgres.url('postgres'));
    const sleep = (seconds: number) => () =>
      store.readerFor('a').query('SELECT pg_sleep($1::float)', [seconds]);
    assert.equal((await timed(sleep(1.3))).error, undefined);
    const { error, tookMs } = await timed(sleep(60));
    assert.ok(error instanceof ReadTooLong, String(error));
    assert.ok(tookMs < MAX_READ_MS + IN_TIME_MS, `${tookMs} ms`);
    assert.equal(store.unavailable(), undefined);
  });

  test('overview reads take turns and leave connections for other calls', async () => {
    const store = open(postgres.url('postgres'), 4);
    const ended: string[] = [];
    const read = async (caller: string) => {
      await store.readerFor(caller).query('SELECT pg_sleep(0.1)');
      ended.push(caller);
    };
    const heavy = Array.from({ length: 17 }, () => read('heavy'));
    const light = read('light');
    await assert.rejects(read('heavy'), StoreUnavailable);
    await store.query('SELECT 1 AS one');
    assert.ok(ended.length < heavy.length / 2, `${ended.length} overviews went before`);
    await Promise.all([...heavy, light]);
    assert.equal(ended.indexOf('light'), 2, 'after the one that ran and one of the other');
  });

  test('a connection lost during a transaction fails that transaction alone', async () => {
    const store = open(postgres.url('postgres'));
    const failed = await timed(() =>
      store.transaction(async (tx) => {
        const [row] = await tx.query<{ pid: bigint }>('SELECT pg_backend_pid() AS pid');
        await store.query('SELECT pg_terminate_backend($1::int)', [row?.pid ?? 0n]);
        await systemClock().sleep(50);
        await tx.query('SELECT 1 AS one');
      }),
    );
    assert.ok(failed.error instanceof StoreUnavailable);
    await back(store);
    await store.query('SELECT 1 AS one');
  });

  test('the loss of one connection is followed by a probe at once', async () => {
    const clock = { ...systemClock(), every: () => () => undefined };
    const store = open(postgres.url('postgres'), 4, REPLY_TIMEOUT_MS, { clock });
    const [row] = await store.query<{ pid: bigint }>('SELECT pg_backend_pid() AS pid');
    const other = open(postgres.url('postgres'));
    await other.query('SELECT pg_terminate_backend($1::int)', [row?.pid ?? 0n]);
    await until(() => store.losses === 1, 'that the loss is detected');
    await back(store);
    await store.query('SELECT 1 AS one');
  });

  test('the log has each reason for which the database stays unreachable', async () => {
    const admin = open(postgres.url('postgres'));
    await admin.query('CREATE ROLE moved LOGIN');
    const lines: LogLine[] = [];
    const url = postgres.url('postgres').replace('postgres@', 'moved@');
    const store = open(url, 2, REPLY_TIMEOUT_MS, { log: memoryLog(lines) });
    const [row] = await store.query<{ pid: bigint }>('SELECT pg_backend_pid() AS pid');
    await admin.query('ALTER ROLE moved NOLOGIN');
    await admin.query('SELECT pg_terminate_backend($1::int)', [row?.pid ?? 0n]);
    const cause = 'role "moved" is not permitted to log in';
    const reason = `No server of the database accepts writes: ${cause}`;
    await until(() => store.unavailable() === reason, 'that the reason changes');
    await systemClock().sleep(1_200); // further probes
    const reasons = lines.filter(({ level }) => level === 'error').map(({ fields }) => fields);
    const first = 'terminating connection due to administrator command';
    assert.deepEqual(reasons, [{ reason: first }, { reason }]);
    await admin.query('ALTER ROLE moved LOGIN');
    await back(store);
    await store.close();
    await admin.query('DROP ROLE moved');
  });

  test('a further connection that the server rejects fails that call alone', async () => {
    const admin = open(postgres.url('postgres'));
    await admin.query('CREATE ROLE barred LOGIN');
    const store = open(postgres.url('postgres').replace('postgres@', 'barred@'), 2);
    await store.transaction(async (tx) => {
      await tx.query('SELECT 1 AS one');
      await admin.query('ALTER ROLE barred NOLOGIN');
      const { error } = await timed(() => store.query('SELECT 2 AS two'));
      assert.ok(error instanceof StoreUnavailable, String(error));
      await tx.query('SELECT 3 AS three');
    });
    assert.equal(store.unavailable(), undefined);
    await store.close();
    await admin.query('DROP ROLE barred');
  });

  test('a transaction that the database has ended while the process was paused runs again', async () => {
    const store = open(first.url('postgres'));
    let runs = 0;
    const rows = await store.transaction(async (tx) => {
      runs += 1;
      await tx.query('SELECT 1 AS one');
      if (runs === 1) Atomics.wait(PAUSE, 0, 0, 2 * REPLY_TIMEOUT_MS);
      return await tx.query('SELECT 2 AS two');
    });
    assert.deepEqual(rows, [{ two: 2n }]);
    assert.equal(runs, 2);
    assert.equal(store.unavailable(), undefined);
  });
});
