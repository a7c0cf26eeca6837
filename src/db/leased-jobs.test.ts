import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { onEachStore, storeFixture } from '../../test/databases/stores.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { type Clock, HOUR_MS, SECOND_MS, systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { JobWorker, LONGEST_PAUSE_MS, LeasedTable, NO_LEASE, type Store } from './db.ts';
import { StoreUnavailable } from './failures.ts';

const LEASE_MS = 60_000;
const MIGRATIONS = [
  {
    id: 'test-0001',
    up: `
CREATE TABLE job (
  id TEXT PRIMARY KEY,
  due_ms BIGINT NOT NULL,
  lease_owner TEXT NOT NULL DEFAULT '',
  lease_until_ms BIGINT NOT NULL DEFAULT 0
);
`,
  },
];

interface TestJob {
  readonly id: string;
}

function tableOf(store: Store, clock: Clock, owner = 'process') {
  return new LeasedTable<TestJob>({
    store,
    table: 'job',
    columns: 'id',
    jobOf: (row) => ({ id: String(row['id']) }),
    open: 'due_ms > 0',
    owner,
    leaseMs: LEASE_MS,
    clock,
    log: silentLog,
  });
}

onEachStore('job worker', (fixture) => {
  test('a due row that its run releases before the end runs again at the end', async () => {
    const store = await fixture.open(MIGRATIONS);
    const clock = systemClock();
    const table = tableOf(store, clock);
    await store.query(`INSERT INTO job (id, due_ms) VALUES ('one', 1)`);
    const end = Promise.withResolvers<undefined>();
    let runs = 0;
    let claims = 0;
    const worker = new JobWorker<TestJob>({
      name: 'test',
      claim: async (running) => {
        const claimed = await table.claim(8, running);
        claims += 1;
        return claimed;
      },
      run: async ({ id }) => {
        runs += 1;
        if (runs > 1) return void (await store.query('UPDATE job SET due_ms = 0'));
        await table.rest(id);
        await end.promise;
      },
      clock,
      log: silentLog,
    });
    worker.start();
    const isReleased = `SELECT id FROM job WHERE ${NO_LEASE.replace(',', ' AND')}`;
    await until(async () => runs === 1 && (await store.query(isReleased)).length === 1);
    const before = claims;
    worker.nudge();
    await until(() => claims > before);
    end.resolve(undefined);
    await until(() => runs === 2);
    await worker.stop();
    assert.equal(runs, 2);
  });
});

test('an outage of the database is one warning of each worker', async () => {
  const lines: LogLine[] = [];
  let isAway = true;
  let claims = 0;
  const worker = new JobWorker<TestJob>({
    name: 'test',
    claim: async () => {
      claims += 1;
      if (isAway) throw new StoreUnavailable('away');
      return [];
    },
    run: async () => undefined,
    clock: systemClock(),
    log: memoryLog(lines),
  });
  const claimed = async (): Promise<void> => {
    const before = claims;
    worker.nudge();
    await until(() => claims > before, 'that the worker claims');
  };
  worker.start();
  await until(() => claims === 1, 'the first claim');
  await claimed();
  await claimed();
  isAway = false;
  await claimed();
  isAway = true;
  await claimed();
  await worker.stop();
  const warning = { worker: 'test', job: undefined, reason: 'away' };
  assert.deepEqual(
    lines.map(({ fields }) => fields),
    [warning, warning],
  );
});

describe('a clock that was set back', () => {
  const fixture = storeFixture('sqlite');

  test('delays a job by at most its longest pause', async () => {
    const clock = new TestClock();
    const store = await fixture.open(MIGRATIONS);
    const table = tableOf(store, clock);
    const isDue = async (): Promise<boolean> => (await table.due(1)).length === 1;
    await store.query(`INSERT INTO job (id, due_ms) VALUES ('one', 1)`);
    await table.take('one');
    await table.rest('one', LONGEST_PAUSE_MS);
    assert.equal(await isDue(), false);
    clock.setWallBack(SECOND_MS);
    assert.equal((await table.claim(1)).length, 1);
    await table.rest('one', SECOND_MS);
    clock.setWallBack(LONGEST_PAUSE_MS - SECOND_MS);
    assert.equal(await isDue(), false);
    clock.advance(LONGEST_PAUSE_MS);
    assert.equal(await isDue(), true);
  });

  test('does not lengthen a lease that its process could not release', async () => {
    const clock = new TestClock();
    const store = await fixture.open(MIGRATIONS);
    const [table, other] = [tableOf(store, clock), tableOf(store, clock, 'other')];
    await store.query(`INSERT INTO job (id, due_ms) VALUES ('one', 1)`);
    await table.take('one');
    assert.deepEqual(await table.due(1), []);
    clock.setWallBack(HOUR_MS);
    assert.equal((await table.due(1)).length, 1);
    assert.deepEqual(await other.claim(1), []);
    assert.equal((await table.claim(1)).length, 1);
    assert.deepEqual(await table.claim(1), []);
    clock.advance(LEASE_MS);
    assert.equal((await other.claim(1)).length, 1);
  });
});

/** Only processes that share a database have different clocks. */
describe('processes with different clocks', () => {
  const fixture = storeFixture('postgres');
  const HOUR_AHEAD = new TestClock(Date.now() + HOUR_MS);
  const HOUR_BEHIND = new TestClock(Date.now() - HOUR_MS);

  async function tables() {
    const store = await fixture.open(MIGRATIONS);
    await store.query(`INSERT INTO job (id, due_ms) VALUES ('one', $1)`, [HOUR_MS]);
    return {
      ahead: tableOf(store, HOUR_AHEAD, 'ahead'),
      behind: tableOf(store, HOUR_BEHIND, 'behind'),
      /** The time between the claim or the release of the row and now becomes longer by `LEASE_MS`. */
      wait: () =>
        store.query('UPDATE job SET lease_until_ms = lease_until_ms - $1, due_ms = due_ms - $1', [
          LEASE_MS,
        ]),
    };
  }

  test('a lease ends at the same time for all of them', async () => {
    const { ahead, behind, wait } = await tables();
    const turns = [ahead, behind, ahead];
    for (const [turn, table] of turns.entries()) {
      const other = turns[turn + 1] ?? behind;
      await wait();
      assert.equal((await table.claim(1)).length, 1);
      assert.deepEqual(await other.claim(1), []);
      await table.extendLease('one');
      assert.equal(await other.take('one'), undefined);
    }
    await wait();
    assert.ok((await behind.take('one')) !== undefined);
    assert.equal(await ahead.take('one'), undefined);
  });

  test('a job is due at the same time for all of them', async () => {
    const { ahead, behind, wait } = await tables();
    for (const table of [ahead, behind]) {
      assert.equal((await table.claim(1)).length, 1);
      await table.rest('one', LEASE_MS);
      for (const any of [ahead, behind]) assert.deepEqual(await any.due(1), []);
      await wait();
      for (const any of [ahead, behind]) assert.equal((await any.due(1)).length, 1);
    }
  });
});
