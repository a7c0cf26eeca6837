import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { silentLog } from '../core/log.ts';
import { JobWorker, LeasedTable, NO_LEASE } from './db.ts';

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

onEachStore('job worker', (fixture) => {
  test('a due row that its run releases before the end runs again at the end', async () => {
    const store = await fixture.open(MIGRATIONS);
    const clock = new TestClock();
    const table = new LeasedTable({
      store,
      table: 'job',
      columns: 'id',
      jobOf: (row) => ({ id: String(row['id']) }),
      open: 'due_ms > 0',
      owner: 'process',
    });
    await store.query(`INSERT INTO job (id, due_ms) VALUES ('one', 1)`);
    const end = Promise.withResolvers<undefined>();
    let runs = 0;
    let claims = 0;
    const worker = new JobWorker<{ readonly id: string }>({
      name: 'test',
      claim: async (running) => {
        const claimed = await table.claim(clock.nowMs(), LEASE_MS, 8, running);
        claims += 1;
        return claimed;
      },
      run: async ({ id }) => {
        runs += 1;
        if (runs > 1) return await table.rest(id, 0);
        await table.rest(id, 1);
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
