/** The bounds of the failure log, and its behaviour while the database takes no writes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import type { Store } from '../db/db.ts';
import {
  FailureLog,
  type FailureRecord,
  OBSERVABILITY_MIGRATIONS,
  failureOf,
} from './failure-log.ts';

onEachStore('the failure log', (fixture) => {
  const ids = systemIds();
  const clock = new TestClock();

  function recordOf(accountId: string, more: Partial<FailureRecord> = {}): FailureRecord {
    return {
      requestId: ids.ordered(clock.nowMs()),
      createdMs: clock.nowMs(),
      accountId,
      keyId: 'k',
      route: 'POST /chat/completions',
      modelId: 'm',
      engine: 'rack1',
      status: 500,
      code: 'INFERENCE_FAILED',
      tookMs: 12,
      facts: { message: 'Failed \0 \u0000', cause: '', parameters: { model: 'm' }, tries: [] },
      prompt: undefined,
      ...more,
    };
  }

  test('a record is stored once, found by its id, and deleted after its time', async () => {
    const store = await fixture.open(OBSERVABILITY_MIGRATIONS);
    const log = new FailureLog({ store, clock });
    const record = recordOf('a');
    log.add('a', () => record);
    assert.deepEqual(log.find(record.requestId), record);
    await log.flush();
    log.add('a', () => ({ ...record, status: 200 }));
    await log.flush();
    assert.equal(log.find(record.requestId), undefined);
    const stored = await failureOf(store, record.requestId);
    assert.deepEqual([stored?.status, stored?.facts.parameters], [500, { model: 'm' }]);
    clock.advance(3 * DAY_MS);
    const later = recordOf('a');
    log.add('a', () => later);
    await log.flush();
    await log.dropBefore(clock.nowMs() - DAY_MS);
    assert.equal(await failureOf(store, record.requestId), undefined);
    assert.notEqual(await failureOf(store, later.requestId), undefined);
  });

  test('an account stores a bounded number of records a day, and others keep theirs', async () => {
    const store = await fixture.open(OBSERVABILITY_MIGRATIONS);
    const log = new FailureLog({ store, clock });
    let made = 0;
    for (let at = 0; at < 2_500; at += 1) {
      log.add('flood', () => {
        made += 1;
        return recordOf('flood');
      });
      if (at % 500 === 0) await log.flush();
    }
    assert.deepEqual([made, log.dropped], [2_000, 500]);
    await log.flush();
    const other = recordOf('other');
    log.add('other', () => other);
    await log.flush();
    assert.notEqual(await failureOf(store, other.requestId), undefined);
    const large = { message: 'x'.repeat(50_000), cause: '', parameters: {}, tries: [] };
    let stored = 0;
    for (let at = 0; at < 300; at += 1) {
      const record = recordOf('large', { facts: large });
      log.add('large', () => record);
      if (log.find(record.requestId) !== undefined) stored += 1;
      await log.flush();
    }
    assert.ok(stored < 170, `${stored} records of 50 KB`);
  });

  test('records wait in bounded memory while the database takes no writes', async () => {
    const store = await fixture.open(OBSERVABILITY_MIGRATIONS);
    let isFull = true;
    const full: Store = Object.create(store, {
      transaction: {
        value: (...of: Parameters<Store['transaction']>) =>
          isFull ? Promise.reject(new Error('disk full')) : store.transaction(...of),
      },
    });
    const log = new FailureLog({ store: full, clock });
    const first = recordOf('a');
    log.add('a', () => first);
    await log.flush();
    assert.equal(log.find(first.requestId), first, 'explained from memory');
    for (let at = 0; at < 2_100; at += 1) log.add(`b${at % 7}`, () => recordOf('b'));
    assert.equal(log.dropped, 101);
    isFull = false;
    await log.flush();
    assert.notEqual(await failureOf(store, first.requestId), undefined);
  });
});
