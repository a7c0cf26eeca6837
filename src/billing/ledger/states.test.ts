/**
 * Rows kept in memory between holds and settles, on a random walk: settles interleave with credits,
 * debits, new limits, jobs and refunds of this process and of another one on the same file, and
 * with failing bodies and commits. After each step every balance equals the sum of its postings.
 * `TEST_SEED` repeats a walk.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { storeFixture } from '../../../test/databases/stores.ts';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { ZERO, nano } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import { type Hold, LEDGER_MIGRATIONS, Ledger } from './ledger.ts';

const STEPS = 500;
const MOST_OPEN = 24;
const ACCOUNTS = ['plain', 'capped', 'budget', 'daily'];
const CREDIT = nano(1_000_000n);
const CREDITED = { from: 'house:operator-credit', kind: 'CREDIT' } as const;
/** An insert here violates a deferred constraint at the commit, which undoes the whole group. */
const ORPHANS = `CREATE TABLE walk_parent (id TEXT PRIMARY KEY);
CREATE TABLE walk_orphan (id TEXT REFERENCES walk_parent (id) DEFERRABLE INITIALLY DEFERRED);`;

async function again<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Error && error.message.includes('FOREIGN KEY'))) throw error;
    }
  }
}

interface Open {
  readonly ledger: Ledger;
  readonly hold: Hold;
}

test('after each step the balance equals its postings, and a hold uses it', async (t) => {
  const seed = Number(process.env['TEST_SEED'] ?? 1 + (Date.now() % 1_000_000));
  t.diagnostic(`TEST_SEED=${seed}`);
  const ids = seededIds(seed);
  const upTo = (most: number): number => Math.floor(ids.fraction() * most);
  const one = <T>(of: readonly T[]): T => of[upTo(of.length)] as T; // never called with an empty list
  const fixture = storeFixture('sqlite');
  const url = await fixture.freshUrl();
  const migrations = [...LEDGER_MIGRATIONS, { id: 'walk-0001', up: ORPHANS }];
  const store = await fixture.open(migrations, url);
  const otherStore = await fixture.open(migrations, url);
  const clock = new TestClock();
  const ledgerOn = (on: Store): Ledger =>
    new Ledger({ store: on, clock, ids: systemIds(), log: silentLog });
  const server = ledgerOn(store);
  // The first two share a connection, but the second keeps its own rows.
  const ledgers = [server, server, ledgerOn(store)];
  const beside = ledgerOn(otherStore);

  let names = 0;
  const name = (kind: string): string => `${kind}-${(names += 1)}`;
  const open: Open[] = [];
  const settled: string[] = [];
  let under: Promise<unknown>[] = [];
  let charged = 0n;

  const capsOf = (accountId: string) => {
    if (accountId === 'capped') return { capIds: ['key-capped'] };
    return accountId === 'budget' ? { capIds: ['key-budget', 'all'] } : {};
  };
  async function setCap(ledger: Ledger, on: Store, id: string, accountId: string, limit: number) {
    const usdLimitNano = nano(limit);
    const cap = { id, accountId, period: 'EPOCH', usdLimitNano, diemLimitNano: undefined } as const;
    await again(() => on.transaction((tx) => ledger.setCap(tx, cap)));
  }
  async function place(lifetime: 'process' | 'durable' = 'process'): Promise<Open | undefined> {
    const ledger = one(ledgers);
    const accountId = lifetime === 'durable' ? 'plain' : one(ACCOUNTS);
    const minNano = nano(upTo(400));
    const sizes = { minNano, maxNano: nano(minNano + BigInt(upTo(1_500)) + 1n), floorNano: ZERO };
    const request = { requestId: name('r'), accountId, ...sizes, ...capsOf(accountId), lifetime };
    const answer = await ledger.holds.place(request);
    return answer.ok ? { ledger, hold: answer.hold } : undefined;
  }
  const takeOpen = (): Open | undefined => open.splice(upTo(open.length), 1)[0];
  const billOf = ({ hold }: Open, requestId = hold.requestId) => {
    const costNano = nano((hold.grantedNano * BigInt(upTo(11))) / 10n);
    const keyId = `key-${hold.accountId}`;
    return bill(clock, requestId, costNano, { accountId: hold.accountId, keyId });
  };
  async function settle(one: Open): Promise<void> {
    const bill = billOf(one);
    const { usdNano, diemNano } = await again(() => one.ledger.holds.settle(bill, one.hold));
    charged += usdNano + diemNano;
    settled.push(one.hold.requestId);
  }
  /** Settles under the id of an existing receipt, which rolls back its whole transaction. */
  async function settleTwice(one: Open, requestId: string): Promise<void> {
    await assert.rejects(
      one.ledger.holds.settle(billOf(one, requestId), one.hold),
      /UNIQUE|FOREIGN KEY/,
    );
    one.ledger.holds.release(one.hold);
  }
  async function job(): Promise<void> {
    const placed = await again(() => place('durable'));
    if (placed === undefined) return;
    const { costNano, usage } = billOf(placed);
    const running = { costNano, usage: { ...usage, status: 'running' } } as const;
    const { usdNano, diemNano } = await again(() =>
      store.transaction((tx) => server.settleIn(tx, running)),
    );
    if (upTo(2) === 0) charged += usdNano + diemNano;
    else assert.ok(await again(() => store.transaction((tx) => server.refundIn(tx, usage))));
  }
  function move(ledger: Ledger, most: number): Promise<unknown> {
    const direction = one(['credit', 'debit'] as const);
    const amountNano = nano(upTo(most) + 1);
    const moved = { direction, accountId: one(ACCOUNTS), amountNano, reference: name('m') };
    return again(() => ledger.moveOnce(moved));
  }
  async function undone(orphan: boolean): Promise<void> {
    const credit = { accountId: one(ACCOUNTS), amountNano: CREDIT, id: name('undone') };
    const failing = store.transaction(async (tx) => {
      await server.creditIn(tx, { ...credit, ...CREDITED });
      if (!orphan) throw new Error('It is undone');
      await tx.query('INSERT INTO walk_orphan (id) VALUES ($1)', ['nobody']);
    });
    await assert.rejects(failing, orphan ? /FOREIGN KEY/ : /It is undone|FOREIGN KEY/);
  }

  async function check(looks = upTo(4) === 0): Promise<void> {
    const rows = await store.query<{ id: string; stored: bigint; posted: bigint }>(
      `SELECT a.id, a.balance_nano AS stored, (SELECT coalesce(sum(CASE
         WHEN credit_account = a.id THEN amount_nano WHEN debit_account = a.id THEN -amount_nano
         ELSE 0 END), 0) FROM ledger_transfer WHERE account_id = a.id) AS posted
       FROM ledger_account a`,
    );
    for (const { id, stored, posted } of rows)
      assert.equal(stored, posted, `${id} TEST_SEED=${seed}`);
    const today = dayOf(clock.nowMs());
    const caps = await store.query<{ id: string; stored: bigint; used: bigint }>(
      `SELECT w.id, w.usd_spent_nano AS stored, (SELECT coalesce(sum(usd_nano), 0) FROM ledger_usage u
         WHERE u.account_id = w.account_id AND u.day = $1) AS used
       FROM ledger_allowance w WHERE w.period_start_ms = $2`,
      [today, today * DAY_MS],
    );
    for (const { id, stored, used } of caps) assert.equal(stored, used, `${id} TEST_SEED=${seed}`);
    // A hold may not see the change of another process until a settle has read it.
    if (!looks) return;
    for (const accountId of ACCOUNTS) {
      const ledger = one(ledgers);
      const sizes = { minNano: ZERO, maxNano: ZERO, floorNano: ZERO };
      const answer = await ledger.holds.place({ requestId: name('look'), accountId, ...sizes });
      assert.ok(answer.ok);
      ledger.holds.release(answer.hold);
      const { usdNano, diemNano } = await ledger.balances(accountId);
      assert.deepEqual(answer.hold.before, { usdNano, diemNano }, `${accountId} TEST_SEED=${seed}`);
    }
  }

  for (const accountId of ACCOUNTS) {
    const credit = { direction: 'credit', accountId, amountNano: CREDIT } as const;
    await server.moveOnce({ ...credit, reference: accountId });
  }
  await server.setDailyAllocation('daily', nano(50_000n));
  await setCap(server, store, 'key-capped', 'capped', 200_000);
  await setCap(server, store, 'key-budget', 'budget', 300_000);
  await setCap(server, store, 'all', 'budget', 200_000);
  for (let step = 0; step < STEPS; step += 1) {
    for (let more = upTo(4); more >= 0; more -= 1) {
      const dice = upTo(100);
      const ending = dice >= 40 && dice < 75 ? takeOpen() : undefined;
      if (dice < 40 && open.length < MOST_OPEN) {
        const placed = await place();
        if (placed !== undefined) open.push(placed);
      } else if (ending !== undefined) {
        const before = settled[0];
        if (dice < 68) under.push(settle(ending));
        else if (dice < 72 && before !== undefined) under.push(settleTwice(ending, before));
        else ending.ledger.holds.release(ending.hold);
      } else if (dice < 78) under.push(move(server, 20_000));
      else if (dice < 84) under.push(move(beside, 20_000));
      else if (dice < 86) under.push(job());
      else if (dice < 89) under.push(undone(false));
      else if (dice < 91) under.push(undone(true));
      else if (dice < 93) {
        const [ledger, on] = one([[server, store] as const, [beside, otherStore] as const]);
        under.push(setCap(ledger, on, 'all', 'budget', 100_000 + upTo(200_000)));
      } else if (dice < 95) {
        const [ledger, allocation] = [one([server, beside]), nano(upTo(50_000))];
        under.push(again(() => ledger.setDailyAllocation('daily', allocation)));
      }
    }
    await Promise.all(under);
    under = [];
    await check();
    if (upTo(40) > 0) continue;
    assert.deepEqual((await server.audit()).differences, [], `TEST_SEED=${seed}`);
    for (const ending of open.splice(0)) await settle(ending);
    settled.length = 0;
    clock.advance(DAY_MS / 2);
    await check(true);
  }
  for (const ending of open) await settle(ending);
  const { differences, openHolds, revenueNano } = await beside.audit();
  assert.deepEqual([differences, openHolds], [[], 0], `TEST_SEED=${seed}`);
  assert.equal(revenueNano, charged, `TEST_SEED=${seed}`);
});

describe('cached rows', () => {
  const fixture = storeFixture('sqlite');
  const sizes = { minNano: nano(600n), maxNano: nano(600n), floorNano: ZERO };

  async function start() {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new Ledger({ store, clock, ids: systemIds(), log: silentLog });
    const credit = (tx: Queryable, id: string) =>
      ledger.creditIn(tx, { ...CREDITED, accountId: 'a', id, amountNano: nano(1_000n) });
    await store.transaction((tx) => credit(tx, 'first'));
    const place = async (requestId: string, accountId = 'a'): Promise<Hold> => {
      const answer = await ledger.holds.place({ requestId, accountId, ...sizes });
      assert.ok(answer.ok);
      return answer.hold;
    };
    const settle = (hold: Hold, { requestId, accountId } = hold) =>
      ledger.holds.settle(bill(clock, requestId, nano(600n), { accountId }), hold);
    return { store, clock, ledger, credit, place, settle };
  }

  test('do not include writes of an open transaction', async () => {
    const { store, ledger, credit, place } = await start();
    await store.transaction(async (tx) => {
      await credit(tx, 'second');
      const hold = await place('within');
      assert.equal(hold.before.usdNano, 1_000n);
      ledger.holds.release(hold);
    });
    assert.equal((await place('after')).before.usdNano, 2_000n);
  });

  test('do not include a settle that the database rejects, alone or in a batch', async () => {
    const { store, ledger, credit, place, settle } = await start();
    await store.transaction((tx) => credit(tx, 'second'));
    assert.equal((await settle(await place('first'))).after.usdNano, 1_400n);
    for (const others of [0, 1]) {
      const hold = await place('twice');
      const beside = others > 0 && store.transaction((tx) => tx.query('SELECT 1'));
      await assert.rejects(settle(hold, { ...hold, requestId: 'first' }), /UNIQUE/);
      await beside;
      ledger.holds.release(hold);
      const next = await place('next');
      assert.equal(next.before.usdNano, 1_400n);
      ledger.holds.release(next);
    }
    assert.deepEqual((await ledger.audit()).differences, []);
  });

  test('are read again on the next day', async () => {
    const { clock, ledger, place, settle } = await start();
    await ledger.setDailyAllocation('daily', nano(1_000n));
    assert.equal((await settle(await place('first', 'daily'))).after.diemNano, 400n);
    clock.advance(DAY_MS);
    assert.equal((await settle(await place('second', 'daily'))).after.diemNano, 400n);
    const third = await ledger.holds.place({ requestId: 'third', accountId: 'daily', ...sizes });
    assert.equal(third.ok, false);
    assert.equal((await ledger.balances('daily')).diemNano, 400n);
  });
});
