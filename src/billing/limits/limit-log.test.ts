/** How many rows rejections create, and which of them are shown. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { MINUTE_MS, dayOf, isoTime } from '../../core/clock.ts';
import type { Store } from '../../db/db.ts';
import { MAX_ROWS_OF_ACCOUNT } from './limit-log.ts';
import { LIMITS_MIGRATIONS, LimitLog } from './limits.ts';

const HIT = { accountId: 'a', keyId: 'k', modelId: 'm', tier: 'paid', type: 'RPM' } as const;

onEachStore('the log of rejections', (fixture) => {
  async function open() {
    const store = await fixture.open(LIMITS_MIGRATIONS);
    const clock = new TestClock();
    const [log, other] = [new LimitLog({ store, clock }), new LimitLog({ store, clock })];
    await log.prepareDays(dayOf(clock.nowMs()), dayOf(clock.nowMs()) + 2);
    return { store, clock, log, other };
  }
  const rowsOf = async (store: Store): Promise<number> => {
    const [row] = await store.query<{ total: bigint }>('SELECT count(*) AS total FROM limits_log');
    return Number(row?.total);
  };

  test('rejections of a minute are one row, also from several processes and flushes', async () => {
    const { store, clock, log, other } = await open();
    for (let at = 0; at < 2_000; at += 1) {
      (at % 2 === 0 ? log : other).add(HIT);
      if (at % 500 === 0) await Promise.all([log.flush(), other.flush()]);
    }
    await Promise.all([log.flush(), other.flush()]);
    assert.equal(await rowsOf(store), 1);
    const [row] = await store.query<{ hits: bigint }>('SELECT hits FROM limits_log');
    assert.equal(row?.hits, 2_000n);
    clock.advance(MINUTE_MS);
    log.add(HIT);
    await log.flush();
    assert.equal(await rowsOf(store), 2);
  });

  test('`last` returns 50 rejections, newest first, each with the last time of its minute', async () => {
    const { clock, log } = await open();
    const startMs = clock.nowMs();
    for (let at = 0; at < 60; at += 1) {
      log.add({ ...HIT, keyId: 'first' });
      clock.advance(100);
    }
    for (let at = 0; at < 3; at += 1) log.add({ ...HIT, keyId: 'second', type: 'TPM' });
    clock.advance(MINUTE_MS);
    log.add(HIT);
    const all = await log.last('a');
    assert.equal(all.length, 50);
    assert.deepEqual(
      all
        .slice(0, 5)
        .map(({ keyId, type, createdMs }) => `${keyId} ${type} ${createdMs - startMs}`),
      ['k RPM 66000', ...Array.from({ length: 3 }, () => 'second TPM 6000'), 'first RPM 5900'],
    );
    assert.equal((await log.last('a', 'second')).length, 3);
    assert.deepEqual(await log.last('b'), []);
  });

  test('an account adds a bounded number of rows per day, and other accounts can still add theirs', async () => {
    const { store, clock, log } = await open();
    for (let at = 0; at < MAX_ROWS_OF_ACCOUNT + 500; at += 1) {
      log.add({ ...HIT, keyId: `key${at}` });
      if (at % 500 === 0) await log.flush();
    }
    log.add({ ...HIT, accountId: 'other' });
    await log.flush();
    assert.equal(await rowsOf(store), MAX_ROWS_OF_ACCOUNT + 1);
    clock.advance(24 * 60 * MINUTE_MS);
    log.add(HIT);
    await log.flush();
    assert.equal(await rowsOf(store), MAX_ROWS_OF_ACCOUNT + 2, isoTime(clock.nowMs()));
  });

  test('`last` includes rows of versions that wrote one row per rejection', async () => {
    const { store, clock, log } = await open();
    await store.query(
      `INSERT INTO limits_log (id, account_id, key_id, model_id, tier, type, created_ms)
       VALUES ('old', 'a', 'k', 'm', 'paid', 'RPD', $1)`,
      [clock.nowMs()],
    );
    clock.advance(10);
    log.add(HIT);
    assert.deepEqual(
      (await log.last('a')).map(({ type }) => type),
      ['RPM', 'RPD'],
    );
  });
});
