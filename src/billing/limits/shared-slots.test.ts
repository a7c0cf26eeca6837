/** Requests in flight of several processes: never more than the limit, and no slot is lost. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { emptyPostgresDatabase } from '../../../test/databases/postgres.ts';
import { openTestStore } from '../../../test/databases/stores.ts';
import { systemClock } from '../../core/clock.ts';
import { type Store, isShared } from '../../db/db.ts';
import { LIMITS_MIGRATIONS, SharedSlots } from './limits.ts';

describe('slots of several processes', () => {
  const opened: { slots: SharedSlots; store: Store }[] = [];
  let url: string;
  let holders = 0;

  before(async () => {
    url = await emptyPostgresDatabase();
  });
  after(async () => {
    for (const { slots, store } of opened) {
      await slots.close();
      await store.close();
    }
  });

  async function begin(processes: number): Promise<SharedSlots> {
    const store = await openTestStore(url);
    await store.migrate(LIMITS_MIGRATIONS);
    assert.ok(isShared(store));
    const holder = `p${(holders += 1)}`;
    const parts = { store, clock: systemClock(), processes: () => processes, holder };
    const slots = new SharedSlots(parts);
    await store.listen(() => undefined);
    opened.push({ slots, store });
    return slots;
  }

  test('60 requests through three processes with a limit of 10 all run, at most 10 at once', async () => {
    const all = await Promise.all(Array.from({ length: 3 }, () => begin(3)));
    let running = 0;
    let most = 0;
    let served = 0;
    const one = async (slots: SharedSlots): Promise<void> => {
      for (;;) {
        const leave = await slots.enter('busy', 10);
        if (leave === undefined) {
          await systemClock().sleep(5);
          continue;
        }
        running += 1;
        most = Math.max(most, running);
        await systemClock().sleep(2);
        running -= 1;
        served += 1;
        leave();
        return;
      }
    };
    await Promise.all(all.flatMap((slots) => Array.from({ length: 20 }, () => one(slots))));
    assert.deepEqual([served, most <= 10, most > 5], [60, true, true], `${most} ran at once`);
  });

  test('unused slots of another process are recalled', async () => {
    const [first, second] = [await begin(2), await begin(2)];
    const own = await first.enter('lone', 5);
    assert.ok(own !== undefined);
    const leaves = [];
    for (let at = 0; at < 4; at += 1) leaves.push(await second.enter('lone', 5));
    assert.ok(leaves.every((leave) => leave !== undefined));
    assert.equal(await second.enter('lone', 5), undefined);
    own();
    assert.ok((await second.enter('lone', 5)) !== undefined);
  });

  test('a request that waits while slots are returned does not fail if the return fails', async (t) => {
    const [first, second] = [await begin(2), await begin(2)];
    const { store } = opened.at(-2) ?? assert.fail('it was opened');
    const own = await first.enter('waited', 8);
    assert.ok(own !== undefined);
    const { promise: isCalled, resolve: call } = Promise.withResolvers<void>();
    const { promise: answer, reject: fail } = Promise.withResolvers<never>();
    const free = t.mock.method(store, 'transaction', () => {
      call();
      return answer;
    });
    // Requests all remaining slots, so the first process has to release what it does not use.
    const others = Array.from({ length: 7 }, () => second.enter('waited', 8));
    await isCalled;
    const waiting = first.enter('waited', 8);
    fail(new Error('The database broke the statement off'));
    free.mock.restore();
    const entered = await Promise.all([waiting, ...others]);
    assert.ok(entered.filter((leave) => leave !== undefined).length <= 7);
  });

  test('several slots are leased in one transaction', async (t) => {
    const slots = await begin(2);
    const { store } = opened.at(-1) ?? assert.fail('it was opened');
    const { mock } = t.mock.method(store, 'transaction');
    for (let at = 0; at < 3; at += 1) assert.ok(await slots.enter('one by one', 20));
    assert.equal(mock.callCount(), 1);
  });

  test('a single process sends nothing to the database', async (t) => {
    const slots = await begin(1);
    const { store } = opened.at(-1) ?? assert.fail('it was opened');
    const transactions = t.mock.method(store, 'transaction');
    const leave = slots.enter('alone', 1);
    assert.ok(leave !== undefined && !(leave instanceof Promise));
    assert.equal(slots.enter('alone', 1), undefined);
    leave();
    assert.ok(slots.enter('alone', 1) !== undefined);
    assert.equal(transactions.mock.callCount(), 0);
  });
});
