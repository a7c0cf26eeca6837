/** Several processes that lease from one database sell exactly what the balance covers. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, afterEach, before, describe, test } from 'node:test';
import { lossy } from '../../../../test/databases/lossy-store.ts';
import { emptyPostgresDatabase } from '../../../../test/databases/postgres.ts';
import { openTestStore } from '../../../../test/databases/stores.ts';
import { type LogLine, memoryLog } from '../../../../test/support/memory-log.ts';
import { bill } from '../../../../test/support/test-ledger.ts';
import { type Clock, DAY_MS, systemClock } from '../../../core/clock.ts';
import { systemIds } from '../../../core/ids.ts';
import { type Nano, ZERO, nano, usdToNano } from '../../../core/money.ts';
import { type Store, StoreUnavailable, openStore } from '../../../db/db.ts';
import {
  type Hold,
  type HoldResult,
  LEDGER_MIGRATIONS,
  Ledger,
  cappedSpending,
} from '../ledger.ts';
import { until } from '../../../../test/support/until.ts';
import { SettleJournal } from './settle-journal.ts';

const PRICE = usdToNano('0.00001');
const DEAD_AFTER_MS = 1_200;
/** With this dead-after time a process renews its epoch so rarely that the test sees no renewal. */
const LIVES_ON_MS = 60_000;
/** Longer than notifications take on a busy machine. */
const RECALL_SEEN_MS = 1_500;

interface CapIds {
  readonly capIds?: readonly string[];
}

interface Process {
  readonly ledger: Ledger;
  readonly store: Store;
  readonly skew: { ms: number };
  readonly stopped: { is: boolean };
}

/** Real time with a per-process offset, and timers that can be stopped. */
function clockOf(skew: { ms: number }, stopped: { is: boolean }): Clock {
  const real = systemClock();
  return {
    ...real,
    nowMs: () => real.nowMs() + skew.ms,
    every: (ms, work) => real.every(ms, () => void (stopped.is || work())),
  };
}

describe('leases of several processes', () => {
  const opened: Process[] = [];
  const lines: LogLine[] = [];
  let url: string;

  before(async () => {
    url = await emptyPostgresDatabase();
    const store = await openTestStore(url);
    await store.migrate(LEDGER_MIGRATIONS);
    await store.close();
  });
  // A process of an earlier test would close the epochs of the next test, at a time of its own.
  afterEach(async () => {
    for (const { ledger, store } of opened.splice(0)) {
      await ledger.stop();
      await store.close();
    }
  });

  async function begin(epochDeadAfterMs = LIVES_ON_MS): Promise<Process> {
    return beginWith(await openTestStore(url), epochDeadAfterMs);
  }

  async function beginWith(
    store: Store,
    epochDeadAfterMs = LIVES_ON_MS,
    journal: { readonly journalFolder?: string } = {},
  ): Promise<Process> {
    const [skew, stopped] = [{ ms: 0 }, { is: false }];
    const parts = { clock: clockOf(skew, stopped), ids: systemIds(), log: memoryLog(lines) };
    const ledger = new Ledger({ ...parts, ...journal, store, epochDeadAfterMs });
    await ledger.start();
    const process = { ledger, store, skew, stopped };
    opened.push(process);
    return process;
  }

  let accounts = 0;
  async function fund({ ledger, store }: Process, amountNano: Nano): Promise<string> {
    const accountId = `account-${(accounts += 1)}`;
    const from = 'house:operator-credit';
    const credit = { accountId, amountNano, from, kind: 'CREDIT', id: `for-${accountId}` } as const;
    await store.transaction((tx) => ledger.creditIn(tx, credit));
    return accountId;
  }

  let requests = 0;
  function holdRequest(accountId: string, maxNano: Nano = PRICE, caps: CapIds = {}) {
    const requestId = `r-${(requests += 1)}`;
    return { requestId, accountId, minNano: maxNano, maxNano, floorNano: ZERO, ...caps };
  }

  async function setCap(
    { ledger, store }: Process,
    accountId: string,
    id: string,
    limit: bigint,
  ): Promise<void> {
    const cap = { id, accountId, period: 'EPOCH', diemLimitNano: undefined } as const;
    const budgetId = /key|cap/.test(id) ? undefined : id;
    const counts = { counts: { keyIds: [] }, budgetId };
    await store.transaction((tx) =>
      ledger.setCap(tx, { ...cap, ...counts, usdLimitNano: nano(limit * PRICE) }),
    );
  }

  async function held(
    { ledger }: Process,
    accountId: string,
    maxNano = PRICE,
    caps: CapIds = {},
  ): Promise<Hold> {
    const answer = await ledger.holds.place(holdRequest(accountId, maxNano, caps));
    assert.ok(
      answer.ok,
      JSON.stringify(answer, (_, value) => String(value)),
    );
    return answer.hold;
  }

  /** Makes two requests: an account gets a lease only with its second one. */
  async function comeBack(process: Process, accountId: string): Promise<void> {
    for (let time = 0; time < 2; time += 1) await settled(process, await held(process, accountId));
  }

  const settled = ({ ledger }: Process, hold: Hold, costNano: Nano = hold.grantedNano) => {
    const { accountId, requestId } = hold;
    return ledger.holds.settle(bill(systemClock(), requestId, costNano, { accountId }), hold);
  };

  /** Runs one request to its end; retries while credit is held, as `CreditWaits` does. */
  async function buy(process: Process, accountId: string, caps: CapIds = {}) {
    for (;;) {
      const answer: HoldResult = await process.ledger.holds.place(
        holdRequest(accountId, PRICE, caps),
      );
      if (answer.ok) {
        await settled(process, answer.hold);
        return 'sold';
      }
      if ('budgetId' in answer) return answer.budgetId ?? answer.reason;
      if (answer.reason !== 'held') return answer.reason;
      await systemClock().sleep(5);
    }
  }

  async function buyAll(
    processes: readonly Process[],
    accountId: string,
    count: number,
    capsOf: readonly CapIds[] = [{}],
  ): Promise<Record<string, number>> {
    const tally: Record<string, number> = {};
    let sent = 0;
    const caller = async (process: Process, caps: CapIds | undefined): Promise<void> => {
      while (sent < count) {
        sent += 1;
        const became = await buy(process, accountId, caps);
        tally[became] = (tally[became] ?? 0) + 1;
      }
    };
    const callers = processes.flatMap((process) =>
      Array.from({ length: 12 }, (_, at) => caller(process, capsOf[at % capsOf.length])),
    );
    await Promise.all(callers);
    return tally;
  }

  async function assertClean({ ledger }: Process): Promise<void> {
    assert.deepEqual((await ledger.audit()).differences, []);
  }

  async function leased({ store }: Process, accountId: string): Promise<bigint> {
    const [row] = await store.query<{ total: bigint }>(
      `SELECT COALESCE(sum(usd_nano + daily_nano), 0) AS total FROM ledger_hold WHERE account_id = $1`,
      [accountId],
    );
    return row?.total ?? 0n;
  }

  /**
   * Counts the statements of a process from now on, without its notification checks. Give the
   * process a long dead-after time, or renewals of its epoch are counted too.
   */
  function countCalls(t: TestContext, { store }: Process) {
    const transactions = t.mock.method(store, 'transaction').mock;
    const statements = t.mock.method(store, 'query').mock;
    return () => ({
      transactions: transactions.callCount(),
      statements: statements.calls.filter(({ arguments: [sql] }) => !sql.includes('pg_notify'))
        .length,
    });
  }

  async function soon(what: string, look: () => Promise<boolean>): Promise<void> {
    for (let at = 0; at < 400; at += 1) {
      if (await look()) return;
      await systemClock().sleep(25);
    }
    assert.fail(what);
  }

  for (const count of [2, 8]) {
    test(`money for 400 requests serves exactly 400 of 1,200 through ${count} processes`, async () => {
      const processes = await Promise.all(Array.from({ length: count }, begin));
      const [first] = processes as [Process];
      const accountId = await fund(first, nano(400n * PRICE));
      assert.deepEqual(await buyAll(processes, accountId, 1_200), { sold: 400, balance: 800 });
      assert.equal((await first.ledger.balances(accountId)).usdNano, 0n);
      await assertClean(first);
      for (const { ledger } of processes) await ledger.stop();
    });
  }

  test('a cap for 200 requests serves exactly 200 of 600 through two processes', async () => {
    const [first, second] = [await begin(), await begin()];
    const accountId = await fund(first, usdToNano('1'));
    await setCap(first, accountId, 'capped', 200n);
    assert.deepEqual(await buyAll([first, second], accountId, 600, [{ capIds: ['capped'] }]), {
      sold: 200,
      'cap-usd': 400,
    });
    await assertClean(first);
  });

  for (const count of [2, 8]) {
    test(`a budget that keys and users share serves exactly what it covers through ${count} processes`, async () => {
      const processes = await Promise.all(Array.from({ length: count }, begin));
      const [first] = processes as [Process];
      const accountId = await fund(first, usdToNano('1'));
      const [all, user] = [`all-${count}`, `user-${count}`];
      await setCap(first, accountId, all, 300n);
      await setCap(first, accountId, user, 100n);
      await setCap(first, accountId, `key-${count}`, 250n);
      const keyed = { capIds: [`key-${count}`, all] };
      const ofUser = { capIds: [all, user] };
      assert.deepEqual(await buyAll(processes, accountId, 200, [ofUser]), {
        sold: 100,
        [user]: 100,
      });
      assert.deepEqual(await buyAll(processes, accountId, 600, [keyed, { capIds: [all] }]), {
        sold: 200,
        [all]: 400,
      });
      assert.equal((await first.ledger.balances(accountId)).usdNano, usdToNano('1') - 300n * PRICE);
      await assertClean(first);
      for (const { ledger } of processes) await ledger.stop();
    });
  }

  test('a lowered cap or budget applies to existing leases', async () => {
    const [first, second] = [await begin(), await begin()];
    const both = [first, second];
    const accountId = await fund(first, usdToNano('1'));
    await setCap(first, accountId, 'key', 10_000n);
    await setCap(first, accountId, 'budget', 10_000n);
    const caps = [{ capIds: ['key', 'budget'] }];
    assert.deepEqual(await buyAll(both, accountId, 60, caps), { sold: 60 });
    assert.ok((await leased(first, accountId)) > 100n * PRICE);
    await setCap(second, accountId, 'key', 80n);
    assert.deepEqual(await buyAll(both, accountId, 60, caps), { sold: 20, 'cap-usd': 40 });
    await setCap(second, accountId, 'key', 10_000n);
    // After a recall the processes lease nothing for a moment.
    await soon('it is leased', async () => {
      assert.deepEqual(await buyAll(both, accountId, 2, caps), { sold: 2 });
      return (await leased(first, accountId)) > 100n * PRICE;
    });
    const { usdNano } = await first.ledger.balances(accountId);
    const sold = (usdToNano('1') - usdNano) / PRICE;
    await second.store.transaction((tx) =>
      second.ledger.setBudgetLimit(tx, accountId, 'budget', nano((sold + 7n) * PRICE)),
    );
    assert.deepEqual(await buyAll(both, accountId, 30, caps), { sold: 7, budget: 23 });
    await assertClean(first);
  });

  test('a process that leases while a cap is lowered returns its lease', async (t) => {
    const [owner, late] = [await begin(LIVES_ON_MS), await begin(LIVES_ON_MS)];
    const accountId = await fund(owner, usdToNano('1'));
    await setCap(owner, accountId, 'shrunk-key', 10_000n);
    const caps = { capIds: ['shrunk-key'] };
    assert.equal(await buy(owner, accountId, caps), 'sold');
    assert.equal(await buy(owner, accountId, caps), 'sold');
    const recall = owner.ledger.holds.recall.bind(owner.ledger.holds);
    t.mock.method(owner.ledger.holds, 'recall', async (id: string) => {
      await recall(id);
      for (let time = 0; time < 2; time += 1) await buy(late, id, caps);
    });
    await setCap(owner, accountId, 'shrunk-key', 10n);
    await soon('it is given back', async () => (await leased(late, accountId)) === 0n);
    const sold = await buyAll([owner, late], accountId, 20, [caps]);
    assert.deepEqual(sold, { sold: 6, 'cap-usd': 14 });
    await assertClean(owner);
  });

  test('a lease of a budget ends with its period', async () => {
    const [first, second] = [await begin(), await begin()];
    const accountId = await fund(first, usdToNano('1'));
    await setCap(first, accountId, 'daily', 100n);
    const caps = { capIds: ['daily'] };
    for (let at = 0; at < 3; at += 1) assert.equal(await buy(first, accountId, caps), 'sold');
    const late = await first.ledger.holds.place(holdRequest(accountId, PRICE, caps));
    assert.ok(late.ok);
    // One clock is ahead: for the other process the period has not begun yet.
    second.skew.ms = DAY_MS;
    assert.deepEqual(await buyAll([second], accountId, 40, [caps]), { sold: 40 });
    await first.ledger.holds.recall(accountId);
    assert.deepEqual(await buyAll([first], accountId, 20, [caps]), { sold: 20 });
    await assertClean(first);
    await settled(first, late.hold);
    first.skew.ms = DAY_MS;
    assert.deepEqual(await buyAll([first, second], accountId, 60, [caps]), { sold: 40, daily: 20 });
    await assertClean(first);
    for (const { skew } of [first, second]) skew.ms = 0;
  });

  test('a lease that was granted before midnight and arrives after it ends with its day', async (t) => {
    const process = await begin(LIVES_ON_MS);
    const accountId = await fund(process, usdToNano('1'));
    await setCap(process, accountId, 'midnight-key', 100n);
    const caps = { capIds: ['midnight-key'] };
    assert.equal(await buy(process, accountId, caps), 'sold');
    const transaction = process.store.transaction.bind(process.store);
    const granting = t.mock.method(process.store, 'transaction', async (...of: unknown[]) => {
      const granted = await Reflect.apply(transaction, undefined, of);
      process.skew.ms = DAY_MS;
      return granted;
    });
    const before = await held(process, accountId, PRICE, caps);
    granting.mock.restore();
    await settled(process, before);
    const sold = await buyAll([process], accountId, 120, [caps]);
    assert.deepEqual(sold, { sold: 100, 'cap-usd': 20 });
    await assertClean(process);
    process.skew.ms = 0;
  });

  test('requests that a lease covers send no statement to the database', async (t) => {
    const process = await begin(LIVES_ON_MS);
    const accountId = await fund(process, usdToNano('1'));
    await comeBack(process, accountId);
    const calls = countCalls(t, process);
    const holds = await Promise.all(Array.from({ length: 100 }, () => held(process, accountId)));
    assert.deepEqual(calls(), { transactions: 0, statements: 0 });
    await Promise.all(holds.map((hold) => settled(process, hold)));
    const { transactions, statements } = calls();
    assert.equal(statements, 0);
    assert.ok(transactions <= 2, 'the settles of a tick are one transaction');
    await assertClean(process);
  });

  test('a first request, a lease and its return are one transaction each', async (t) => {
    const process = await begin(LIVES_ON_MS);
    const accountId = await fund(process, usdToNano('1'));
    const calls = countCalls(t, process);
    const first = await held(process, accountId);
    assert.equal(await leased(process, accountId), PRICE, 'a hold of its own');
    const before = calls();
    const second = await held(process, accountId);
    assert.equal(calls().transactions - before.transactions, 1, 'the lease');
    assert.ok((await leased(process, accountId)) > 2n * PRICE);
    for (const hold of [first, second]) await settled(process, hold);
    // A lease of a busy account may be requested concurrently.
    await until(async () => {
      await process.ledger.holds.recall(accountId);
      return (await leased(process, accountId)) === 0n;
    }, 'that all of it is given back');
    await assertClean(process);
  });

  test('an unused lease of another process is recalled within the time limit', async () => {
    const [first, second] = [await begin(), await begin()];
    const accountId = await fund(first, usdToNano('1'));
    await comeBack(first, accountId);
    const open = await held(first, accountId);
    const inRows = await leased(first, accountId);
    assert.ok(inRows > PRICE);
    // Another process sees what is leased, but not how much of it is held.
    const funds = await second.ledger.funds(accountId);
    assert.deepEqual([funds.leasedUsdNano, funds.heldUsdNano], [inRows, 0n]);
    assert.equal((await first.ledger.funds(accountId)).heldUsdNano, PRICE);
    assert.ok((await second.ledger.openHolds()).leasedNano >= inRows);
    assert.ok((await second.ledger.audit()).leasedNano >= inRows);
    const startedMs = performance.now();
    const most = nano(usdToNano('1') - 3n * PRICE);
    const all = await second.ledger.holds.place({
      ...holdRequest(accountId, most),
      maxIsNamed: true,
    });
    assert.ok(all.ok && all.hold.grantedNano === most);
    assert.ok(performance.now() - startedMs < RECALL_SEEN_MS);
    assert.equal((await settled(first, open)).usdNano, PRICE);
    assert.equal((await settled(second, all.hold)).after.usdNano, 0n);
    assert.equal(await buy(first, accountId), 'balance');
    await assertClean(first);
  });

  test('`openHolds` counts the requests of this process and the jobs of all', async () => {
    const [first, second] = [await begin(), await begin()];
    const accountId = await fund(first, usdToNano('1'));
    const row = await held(first, accountId);
    const fromLease = await held(first, accountId);
    assert.ok((await leased(first, accountId)) > 2n * PRICE);
    const other = await held(second, accountId);
    const job = { ...holdRequest(accountId, nano(5n * PRICE)), lifetime: 'durable' } as const;
    const placed = await first.ledger.holds.place(job);
    assert.ok(placed.ok);
    const figures = async ({ ledger }: Process) => {
      const { count, amountNano, jobs } = await ledger.openHolds();
      return [count, amountNano, jobs.count, jobs.amountNano];
    };
    assert.deepEqual(await figures(first), [2, 2n * PRICE, 1, 5n * PRICE]);
    assert.deepEqual(await figures(second), [1, PRICE, 1, 5n * PRICE]);
    await Promise.all([settled(first, row), settled(first, fromLease), settled(second, other)]);
    const { usage, costNano } = bill(systemClock(), job.requestId, ZERO, { accountId });
    await first.store.transaction((tx) => first.ledger.settleIn(tx, { usage, costNano }));
    assert.deepEqual(await figures(first), [0, 0n, 0, 0n]);
    await assertClean(first);
  });

  test('a debit recalls leases, also by a command without notifications', async () => {
    const first = await begin();
    const accountId = await fund(first, usdToNano('1'));
    await comeBack(first, accountId);
    assert.ok((await leased(first, accountId)) > 0n);
    const store = await openTestStore(url);
    const command = new Ledger({
      store,
      clock: systemClock(),
      ids: systemIds(),
      log: memoryLog([]),
    });
    const amountNano = nano(usdToNano('1') - 2n * PRICE);
    const debit = { accountId, amountNano, to: 'house:operator-credit', kind: 'CREDIT' } as const;
    const left = await store.transaction((tx) => command.debitIn(tx, { ...debit, id: 'debit' }));
    assert.equal(left, 0n);
    await store.close();
    assert.equal(await buy(first, accountId), 'balance');
    await assertClean(first);
  });

  test('an account with a debt spends nothing of its lease but the holds that were open', async () => {
    const first = await begin(DEAD_AFTER_MS);
    const second = await begin(DEAD_AFTER_MS);
    const { ledger, store } = first;
    const accountId = await fund(first, nano(400n * PRICE));
    for (const process of [first, second]) await comeBack(process, accountId);
    const large = nano(20n * PRICE);
    const open = [
      [first, await held(first, accountId, large)],
      [second, await held(second, accountId, large)],
    ] as const;
    const reversal = {
      accountId,
      amountNano: nano(400n * PRICE),
      to: 'house:top-up:base',
    } as const;
    await store.transaction((tx) => ledger.reverseIn(tx, { ...reversal, id: `of-${accountId}` }));
    const debt = async () => (await ledger.funds(accountId)).debtNano;
    assert.equal(await debt(), 44n * PRICE);
    for (const [process, hold] of open) {
      await settled(process, hold, PRICE);
      assert.equal(await buy(process, accountId), 'balance');
    }
    await soon('the rest of the leases is released', async () => !(await leased(first, accountId)));
    await ledger.collectDebts();
    assert.equal(await debt(), 6n * PRICE);
    await assertClean(first);
  });

  test('a hold that is released after a failed settle leaves nothing to an account with a debt', async () => {
    const first = await begin(DEAD_AFTER_MS);
    const { ledger, store } = first;
    const accountId = await fund(first, nano(400n * PRICE));
    await comeBack(first, accountId);
    const open = await held(first, accountId, nano(20n * PRICE));
    const amounts = { amountNano: nano(400n * PRICE), to: 'house:top-up:base' } as const;
    await store.transaction((tx) =>
      ledger.reverseIn(tx, { accountId, ...amounts, id: `of-${accountId}` }),
    );
    ledger.holds.release(open);
    assert.equal(await buy(first, accountId), 'balance');
    await soon('the rest of the lease is released', async () => !(await leased(first, accountId)));
    await assertClean(first);
  });

  test('a lease serves no request above a cap that was lowered while holds were open', async () => {
    const first = await begin();
    const accountId = await fund(first, usdToNano('1'));
    const caps = { capIds: ['cap-lowered'] };
    await setCap(first, accountId, 'cap-lowered', 400n);
    for (let time = 0; time < 2; time += 1)
      await settled(first, await held(first, accountId, PRICE, caps), PRICE);
    const open = await held(first, accountId, nano(20n * PRICE), caps);
    await setCap(first, accountId, 'cap-lowered', 1n);
    await settled(first, open, PRICE);
    assert.equal(await buy(first, accountId, caps), 'cap-usd');
  });

  test('a process without notifications leases nothing and still serves requests', async () => {
    // Notifications stay within their database.
    const directUrl = url.replace(/\/[^/?]*(\?|$)/, '/postgres$1');
    const log: LogLine[] = [];
    const parts = { clock: systemClock(), ids: systemIds(), log: memoryLog(log) };
    const store = await openStore({ url, directUrl, ...parts });
    const ledger = new Ledger({ ...parts, store, epochDeadAfterMs: DEAD_AFTER_MS });
    await ledger.start();
    const unnotified = { ledger, store, skew: { ms: 0 }, stopped: { is: false } };
    opened.push(unnotified);
    assert.match(log[0]?.message ?? '', /Notifications of the database are not delivered/);
    const other = await begin();
    const accountId = await fund(unnotified, nano(60n * PRICE));
    const open = await held(unnotified, accountId);
    assert.equal(await leased(unnotified, accountId), PRICE, 'its own hold, and no more');
    await settled(unnotified, open);
    assert.deepEqual(await buyAll([unnotified, other], accountId, 100), { sold: 59, balance: 41 });
    await assertClean(unnotified);
  });

  test('leased daily credit is spent before USD and ends with its day', async () => {
    const [first, second] = [await begin(), await begin()];
    const accountId = await fund(first, usdToNano('1'));
    await first.ledger.setDailyAllocation(accountId, nano(300n * PRICE));
    assert.deepEqual(await buyAll([first, second], accountId, 300), { sold: 300 });
    const { usdNano, diemNano } = await first.ledger.balances(accountId);
    assert.deepEqual([usdNano, diemNano], [usdToNano('1'), 0n]);
    assert.deepEqual(await buyAll([first, second], accountId, 20), { sold: 20 });
    assert.equal((await first.ledger.balances(accountId)).usdNano, usdToNano('1') - 20n * PRICE);
    await assertClean(first);
    const late = await held(first, accountId);
    for (const { skew } of [first, second]) skew.ms = DAY_MS;
    const early = await held(first, accountId);
    assert.deepEqual([late.dailyNano, early.dailyNano], [0n, PRICE]);
    await settled(first, late);
    await settled(first, early);
    assert.deepEqual(await buyAll([first, second], accountId, 100), { sold: 100 });
    const next = await first.ledger.balances(accountId);
    assert.equal(next.diemNano, nano(199n * PRICE));
    assert.equal(next.usdNano, usdToNano('1') - 21n * PRICE);
    await assertClean(first);
    for (const { skew } of [first, second]) skew.ms = 0;
  });

  test('processes with clocks of different days spend a daily cap once', async () => {
    const [behind, ahead] = [await begin(), await begin()];
    const accountId = await fund(behind, usdToNano('1'));
    await setCap(behind, accountId, 'clock-key', 10n);
    await setCap(behind, accountId, 'clock', 15n);
    ahead.skew.ms = DAY_MS;
    const [key, budget] = [{ capIds: ['clock-key'] }, { capIds: ['clock'] }];
    for (const caps of [key, budget]) {
      assert.deepEqual(await buyAll([ahead], accountId, 8, [caps]), { sold: 8 });
    }
    assert.deepEqual(await buyAll([behind, ahead], accountId, 20, [key]), {
      sold: 2,
      'cap-usd': 18,
    });
    assert.deepEqual(await buyAll([behind, ahead], accountId, 20, [budget]), {
      sold: 7,
      clock: 13,
    });
    await assertClean(behind);
    for (const { ledger } of [behind, ahead]) await ledger.stop();
  });

  test('a settle whose reply was lost is repeated, although it has used up its lease', async () => {
    const { store, lose } = lossy(await openTestStore(url));
    const process = await beginWith(store);
    const accountId = await fund(process, usdToNano('1'));
    await comeBack(process, accountId);
    const hold = await held(process, accountId);
    await process.ledger.holds.recall(accountId);
    assert.equal(await leased(process, accountId), BigInt(PRICE));
    lose('transaction');
    await assert.rejects(settled(process, hold), StoreUnavailable);
    assert.equal((await settled(process, hold)).fresh, false);
    await process.ledger.stop();
    await assertClean(process);
  });

  test('a settle whose reply was lost is repeated if the journal does not take it', async (t) => {
    const journalFolder = mkdtempSync(join(tmpdir(), 'farebox-leases-'));
    t.after(() => rmSync(journalFolder, { recursive: true }));
    const { store, lose } = lossy(await openTestStore(url));
    const process = await beginWith(store, LIVES_ON_MS, { journalFolder });
    const accountId = await fund(process, usdToNano('1'));
    const hold = await held(process, accountId);
    const full = new Error('no space left on device');
    t.mock.method(SettleJournal.prototype, 'add', () => Promise.reject(full));
    lose('transaction');
    assert.equal((await settled(process, hold)).usdNano, PRICE);
    await process.ledger.stop();
    await assertClean(process);
  });

  test('a hold counts in the period of the same time of all its caps', async () => {
    const [behind, ahead] = [await begin(), await begin()];
    const accountId = await fund(behind, usdToNano('1'));
    const [key, budget] = [{ capIds: ['period-key'] }, { capIds: ['period'] }];
    await setCap(behind, accountId, 'period-key', 10n);
    await setCap(behind, accountId, 'period', 10n);
    ahead.skew.ms = DAY_MS;
    assert.equal(await buy(ahead, accountId, budget), 'sold');
    const both = { capIds: [...key.capIds, ...budget.capIds] };
    const hold = await held(behind, accountId, PRICE, both);
    assert.equal(await buy(ahead, accountId, key), 'sold');
    await settled(behind, hold, PRICE);
    for (const { ledger } of [behind, ahead]) await ledger.stop();
    await assertClean(behind);
  });

  test('processes with clocks of different days spend daily credit once', async () => {
    const [behind, ahead] = [await begin(), await begin()];
    const accountId = await fund(behind, nano(PRICE));
    await buy(behind, accountId);
    await behind.ledger.setDailyAllocation(accountId, nano(10n * PRICE));
    ahead.skew.ms = DAY_MS;
    assert.deepEqual(await buyAll([ahead], accountId, 8), { sold: 8 });
    assert.deepEqual(await buyAll([behind, ahead], accountId, 30), { sold: 2, balance: 28 });
    await assertClean(behind);
    for (const { ledger } of [behind, ahead]) await ledger.stop();
  });

  test('a changed daily allocation applies to existing leases', async () => {
    const [first, second] = [await begin(), await begin()];
    const fundAndLease = async (allocation: bigint): Promise<string> => {
      const accountId = await fund(first, usdToNano('1'));
      if (allocation > 0n) {
        await second.ledger.setDailyAllocation(accountId, nano(allocation * PRICE));
      }
      await soon('it is leased', async () => {
        await buy(first, accountId);
        return (await leased(first, accountId)) > 100n * PRICE;
      });
      return accountId;
    };
    const lowered = await fundAndLease(10_000n);
    const spent = 10_000n - (await first.ledger.balances(lowered)).diemNano / PRICE;
    await second.ledger.setDailyAllocation(lowered, nano((spent + 8n) * PRICE));
    assert.deepEqual(await buyAll([first], lowered, 20), { sold: 20 });
    const after = await first.ledger.balances(lowered);
    assert.deepEqual([after.diemNano, after.usdNano], [0n, usdToNano('1') - 12n * PRICE]);

    const raised = await fundAndLease(0n);
    const before = await first.ledger.balances(raised);
    await second.ledger.setDailyAllocation(raised, nano(20n * PRICE));
    assert.deepEqual(await buyAll([first], raised, 20), { sold: 20 });
    const { diemNano, usdNano } = await first.ledger.balances(raised);
    assert.deepEqual([diemNano, usdNano], [0n, before.usdNano]);
    await assertClean(first);
  });

  test('a process that was suspended beyond its death gets a new epoch, and its settles count once', async () => {
    const linesBefore = lines.length;
    const [first, second] = [await begin(), await begin(DEAD_AFTER_MS)];
    const accountId = await fund(first, usdToNano('1'));
    await setCap(first, accountId, 'late-key', 1_000n);
    await setCap(first, accountId, 'late', 1_000n);
    const caps = { capIds: ['late-key', 'late'] };
    const ofCap = (): Promise<Hold> => held(first, accountId, PRICE, caps);
    for (let at = 0; at < 2; at += 1) await settled(first, await ofCap(), PRICE);
    const open = [await ofCap(), await ofCap()];
    first.stopped.is = true;
    await soon('the lease is given back', async () => (await leased(second, accountId)) === 0n);
    // Half of the money is spent elsewhere; the rest pays for one of the two.
    const rest = nano(usdToNano('1') - 3n * PRICE);
    const spent = await second.ledger.holds.place({
      ...holdRequest(accountId, rest),
      maxIsNamed: true,
    });
    assert.ok(spent.ok);
    await settled(second, spent.hold);
    first.stopped.is = false;
    const late = await Promise.all(open.map((hold) => settled(first, hold, PRICE)));
    const taken = new Set<bigint>(late.map(({ usdNano }) => usdNano));
    assert.deepEqual(taken, new Set([0n, PRICE]));
    assert.ok(late.every(({ fresh }) => fresh));
    assert.equal((await second.ledger.balances(accountId)).usdNano, 0n);
    const again = await Promise.all(open.map((hold) => settled(first, hold, PRICE)));
    assert.ok(again.every(({ fresh }) => !fresh));
    await assertClean(second);
    const counted = await cappedSpending(second.store, ['late-key', 'late'], Date.now());
    for (const { usdNano } of counted.values()) assert.equal(usdNano, 3n * PRICE);
    assert.equal(counted.size, 2);
    const lateLines = lines
      .slice(linesBefore)
      .filter(({ message }) => message.includes('lease of its process'));
    assert.equal(lateLines.length, 2);
    const other = await fund(second, usdToNano('1'));
    await soon('it sells again', async () => (await buy(first, other)) === 'sold');
    await assertClean(second);
  });

  test('a process whose epoch is being closed continues without its old leases', async () => {
    const [process, other] = [await begin(DEAD_AFTER_MS), await begin()];
    const accountId = await fund(process, nano(10_000n * PRICE));
    await comeBack(process, accountId);
    process.stopped.is = true;
    const most = nano(9n * ((10_000n * PRICE - (await leased(process, accountId))) / 10n));
    const hold = await held(other, accountId, most);
    // The first of the two steps that close an epoch; the rows of its leases still exist.
    const isOfAccount =
      '(SELECT epoch_id FROM ledger_hold WHERE account_id = $1 AND usd_nano < $2)';
    await other.store.query(`DELETE FROM ledger_epoch WHERE id IN ${isOfAccount}`, [
      accountId,
      most,
    ]);
    await systemClock().sleep(DEAD_AFTER_MS);
    for (let time = 0; time < 3; time += 1) {
      await settled(process, await held(process, accountId));
      await process.ledger.holds.recall(accountId);
      await assertClean(process);
    }
    await settled(other, hold);
    for (const { ledger } of [process, other]) await ledger.stop();
  });

  test('idle leases are returned after a round, and all leases at the stop', async () => {
    const [first, second] = [await begin(DEAD_AFTER_MS), await begin(DEAD_AFTER_MS)];
    const accountId = await fund(first, usdToNano('1'));
    await comeBack(first, accountId);
    await comeBack(second, accountId);
    assert.ok((await leased(first, accountId)) > 0n);
    await second.ledger.stop();
    await soon('idle leases are given back', async () => (await leased(first, accountId)) === 0n);
    const rows = await first.store.query(
      'SELECT request_id FROM ledger_hold WHERE account_id = $1 AND usd_nano > 0',
      [accountId],
    );
    assert.deepEqual([...rows], []);
    await assertClean(first);
  });
});
