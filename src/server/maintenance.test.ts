import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type TestApp, startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { type Clock, DAY_MS, MINUTE_MS, dayOf } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { FailureLog } from '../observability/failure-log.ts';
import { LimitLog } from '../billing/limits/limits.ts';
import { Maintenance } from './maintenance.ts';

for (const dialect of ['sqlite', 'postgres'] as const) {
  test(`one of two processes runs the leader jobs, and both run their own (${dialect})`, async () => {
    const databaseUrl = dialect === 'postgres' ? await emptyPostgresDatabase() : undefined;
    const app = await startTestApp(databaseUrl === undefined ? {} : { databaseUrl });
    const { stores } = app.app;
    const clock = new TestClock(Date.now());
    const ids = systemIds();
    const limitLog = new LimitLog({ store: stores.store, clock });
    const failureLog = new FailureLog({ store: stores.store, clock });
    const done: string[] = [];
    const keeper = (name: string): Maintenance =>
      new Maintenance({
        config: { current: app.config },
        stores,
        limitLog,
        failureLog,
        windows: { prune: async () => undefined },
        features: [
          {
            perProcessJob: async () => done.push(`own ${name}`),
            leaderJob: async () => {
              throw new Error('A job that fails stops nobody');
            },
          },
          { leaderJob: async () => done.push('shared') },
        ],
        clock,
        ids,
        log: silentLog,
      });
    const keepers = [keeper('first'), keeper('second')];
    for (const one of keepers) await one.start();
    clock.advance(MINUTE_MS);
    for (const one of keepers) await one.stop();
    assert.deepEqual(done.toSorted(), ['own first', 'own second', 'shared']);
    await app.stop();
  });

  test(`rows of the limit log are deleted after their retention (${dialect})`, async () => {
    const databaseUrl = dialect === 'postgres' ? await emptyPostgresDatabase() : undefined;
    const app = await startTestApp(databaseUrl === undefined ? {} : { databaseUrl });
    const clock = new TestClock(Date.now());
    const parts = { store: app.app.stores.store, clock, ids: systemIds() };
    const limitLog = new LimitLog(parts);
    const hit = { accountId: 'a', keyId: 'k', modelId: 'm', tier: 'paid', type: 'RPM' } as const;
    limitLog.add(hit);
    await limitLog.flush();
    clock.advance(3 * DAY_MS);
    limitLog.add(hit);
    assert.equal((await limitLog.last('a')).length, 2);
    await limitLog.dropDaysBefore(dayOf(clock.nowMs()) - 1);
    assert.equal((await limitLog.last('a')).length, 1);
    await app.stop();
  });
}

test('a server starts while a long read delays the partitions of the next days', async () => {
  const app = await startTestApp({ databaseUrl: await emptyPostgresDatabase() });
  const { stores } = app.app;
  const clock = new TestClock(Date.now() + 30 * DAY_MS);
  const maintenance = maintenanceOf(app, clock);
  await stores.store.transaction(
    async (tx) => {
      await tx.query('SELECT count(*) AS rows FROM ledger_usage');
      await maintenance.start();
    },
    { isSnapshot: true, timeoutMs: MINUTE_MS },
  );
  await maintenance.stop();
  await app.stop();
});

test('a server whose clock is years ahead deletes no row before its time', async () => {
  const app = await startTestApp({ databaseUrl: await emptyPostgresDatabase() });
  await maintenanceOf(app, new TestClock(Date.now() + 1_000 * DAY_MS)).days();
  const { usageDays, postingDays } = app.config.retention;
  const kept = await app.app.stores.store.query<{ rows_of: string; day: bigint }>(
    'SELECT rows_of, day FROM ledger_kept_from ORDER BY rows_of',
  );
  const today = dayOf(Date.now());
  assert.deepEqual(
    kept.map(({ rows_of: of, day }) => [of, Number(day)]),
    [
      ['postings', today - postingDays],
      ['usage', today - usageDays],
    ],
  );
  await app.stop();
});

test('retention runs once an hour, and again in the next minute after a failure', async (t) => {
  const app = await startTestApp();
  const { stores } = app.app;
  const clock = new TestClock(Date.now());
  let isFailing = true;
  const dropping = t.mock.method(stores.ledger, 'dropOld', async () => {
    if (isFailing) throw new Error('A long read has a lock');
    return 0;
  });
  const lines: LogLine[] = [];
  const maintenance = maintenanceOf(app, clock, memoryLog(lines));
  const runsAfter = async (minutes: number): Promise<number> => {
    for (let at = 0; at < minutes; at += 1) {
      await maintenance.start();
      clock.advance(MINUTE_MS);
      await maintenance.stop();
    }
    return dropping.mock.callCount();
  };
  assert.equal(await runsAfter(2), 2);
  // The stack names the job.
  assert.match(String(lines[0]?.fields['stack']), /A long read has a lock\n.*\bdays\b/s);
  isFailing = false;
  assert.equal(await runsAfter(60), 3);
  assert.equal(await runsAfter(1), 4);
  await app.stop();
});

function maintenanceOf(
  { app: { stores }, config }: TestApp,
  clock: Clock,
  log = silentLog,
): Maintenance {
  return new Maintenance({
    config: { current: config },
    stores,
    limitLog: new LimitLog({ store: stores.store, clock }),
    failureLog: new FailureLog({ store: stores.store, clock }),
    windows: { prune: async () => undefined },
    features: [],
    clock,
    ids: systemIds(),
    log,
  });
}
