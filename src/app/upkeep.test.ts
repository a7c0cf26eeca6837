import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { DAY_MS, MINUTE_MS, dayOf } from '../kernel/clock.ts';
import { systemIds } from '../kernel/ids.ts';
import { silentLog } from '../kernel/log.ts';
import { TestClock } from '../kernel/test-clock.ts';
import { LimitLog } from '../limits/limits.ts';
import { Upkeep } from './upkeep.ts';

for (const dialect of ['sqlite', 'postgres'] as const) {
  test(`one of two processes does the shared chores, and both do their own (${dialect})`, async () => {
    const databaseUrl = dialect === 'postgres' ? await emptyPostgresDatabase() : undefined;
    const app = await startTestApp(databaseUrl === undefined ? {} : { databaseUrl });
    const { office } = app.app;
    const clock = new TestClock(Date.now());
    const ids = systemIds();
    const limitLog = new LimitLog({ store: office.store, clock, ids });
    const done: string[] = [];
    const keeper = (name: string): Upkeep =>
      new Upkeep({
        config: () => app.config,
        office,
        limitLog,
        chores: [async () => done.push(`own ${name}`)],
        sharedChores: [
          async () => {
            throw new Error('A chore that fails stops nobody');
          },
          async () => done.push('shared'),
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

  test(`old refusals go and young ones stay (${dialect})`, async () => {
    const databaseUrl = dialect === 'postgres' ? await emptyPostgresDatabase() : undefined;
    const app = await startTestApp(databaseUrl === undefined ? {} : { databaseUrl });
    const clock = new TestClock(Date.now());
    const parts = { store: app.app.office.store, clock, ids: systemIds() };
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
