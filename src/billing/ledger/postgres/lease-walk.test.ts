/**
 * Leases on a random walk: processes hold, settle, release, recall leases, are considered dead
 * while they run, end, lose replies and have clocks of other days, while accounts are credited and
 * debited and caps change. Operations overlap freely. `TEST_SEED` repeats a walk.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lossy } from '../../../../test/databases/lossy-store.ts';
import { emptyPostgresDatabase } from '../../../../test/databases/postgres.ts';
import { openTestStore } from '../../../../test/databases/stores.ts';
import { seededIds } from '../../../../test/support/seeded-ids.ts';
import { bill } from '../../../../test/support/test-ledger.ts';
import { DAY_MS, HOUR_MS, systemClock } from '../../../core/clock.ts';
import { systemIds } from '../../../core/ids.ts';
import { silentLog } from '../../../core/log.ts';
import { type Nano, ZERO, nano } from '../../../core/money.ts';
import { type Store, StoreUnavailable } from '../../../db/db.ts';
import { type Hold, LEDGER_MIGRATIONS, Ledger } from '../ledger.ts';

const PROCESSES = 3;
const STEPS = 400;
const MOST_OPEN = 60;
const ACCOUNTS = ['plain', 'capped', 'budget', 'daily'];
const CREDIT = nano(400_000n);

interface Process {
  ledger: Ledger;
  id: string;
  readonly store: Store;
  readonly lose: (text: string) => void;
  readonly skew: { ms: number };
}

interface Open {
  readonly process: Process;
  /** The ledger that placed the hold; its process may have been replaced since. */
  readonly ledger: Ledger;
  readonly hold: Hold;
}

test('a random walk of operations charges each settle once and leaves no hold', async () => {
  const seed = Number(process.env['TEST_SEED'] ?? 1 + (Date.now() % 1_000_000));
  const ids = seededIds(seed);
  const upTo = (most: number): number => Math.floor(ids.fraction() * most);
  const one = <T>(of: readonly T[]): T => of[upTo(of.length)] as T; // never called with an empty list
  const url = await emptyPostgresDatabase();
  const books = await openTestStore(url);
  await books.migrate(LEDGER_MIGRATIONS);

  let begun = 0;
  async function start(process: Pick<Process, 'store' | 'skew'>) {
    const processId = `p${(begun += 1)}`;
    const real = systemClock();
    const clock = { ...real, nowMs: () => real.nowMs() + process.skew.ms };
    const parts = { clock, ids: systemIds(), log: silentLog, epochDeadAfterMs: HOUR_MS };
    const ledger = new Ledger({ ...parts, store: process.store, processId });
    await ledger.start();
    return { ledger, id: processId };
  }
  const processes: Process[] = [];
  const stores: Store[] = [];
  for (let at = 0; at < PROCESSES; at += 1) {
    const base = await openTestStore(url);
    stores.push(base);
    const parts = { ...lossy(base), skew: { ms: 0 } };
    processes.push({ ...parts, ...(await start(parts)) });
  }
  const first = processes[0] as Process; // there is at least one
  const credited = new Map<string, bigint>();
  const charged = new Map<string, bigint>();
  const open: Open[] = [];
  const under: Promise<unknown>[] = [];
  let requests = 0;

  async function credit(accountId: string, amountNano: Nano): Promise<void> {
    const id = `credit-${(requests += 1)}`;
    const from = 'house:operator-credit';
    await books.transaction((tx) =>
      first.ledger.creditIn(tx, { accountId, amountNano, from, kind: 'CREDIT', id }),
    );
    credited.set(accountId, (credited.get(accountId) ?? 0n) + amountNano);
  }
  async function debit(process: Process, accountId: string): Promise<void> {
    const amountNano = nano(upTo(20_000) + 1);
    const to = {
      to: 'house:operator-credit',
      kind: 'CREDIT',
      id: `debit-${(requests += 1)}`,
    } as const;
    const left = await books.transaction((tx) =>
      process.ledger.debitIn(tx, { accountId, amountNano, ...to }),
    );
    if (left !== undefined) credited.set(accountId, (credited.get(accountId) ?? 0n) - amountNano);
  }
  const capsOf = (accountId: string) => {
    if (accountId === 'capped') return { capIds: ['key'] };
    return accountId === 'budget' ? { capIds: ['budget-key', 'all'] } : {};
  };
  async function setCap(process: Process, id: string, accountId: string, limit: number) {
    const cap = { id, accountId, period: 'EPOCH', diemLimitNano: undefined } as const;
    const counts = { counts: { keyIds: [] }, budgetId: id === 'all' ? id : undefined };
    await books.transaction((tx) =>
      process.ledger.setCap(tx, { ...cap, ...counts, usdLimitNano: nano(limit) }),
    );
  }
  async function place(process: Process): Promise<void> {
    const accountId = one(ACCOUNTS);
    const minNano = nano(upTo(400));
    const maxNano = nano(minNano + BigInt(upTo(1_500)) + 1n);
    const requestId = `r-${(requests += 1)}`;
    const { ledger } = process;
    const request = {
      requestId,
      accountId,
      minNano,
      maxNano,
      floorNano: ZERO,
      ...capsOf(accountId),
    };
    const answer = await ledger.holds.place(request);
    if (answer.ok) open.push({ process, ledger, hold: answer.hold });
  }
  /** Retries until the result is known, as a caller with a journal does. */
  async function settle({ process, ledger, hold }: Open): Promise<void> {
    const { requestId, accountId, grantedNano } = hold;
    const costNano = nano((grantedNano * BigInt(upTo(11))) / 10n);
    const clock = { nowMs: () => Date.now() + process.skew.ms };
    const request = bill(clock, requestId, costNano, { accountId });
    for (;;) {
      try {
        const { usdNano, diemNano } = await ledger.holds.settle(request, hold);
        assert.ok(usdNano + diemNano <= costNano);
        charged.set(requestId, usdNano + diemNano);
        return;
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
      }
    }
  }
  const lost = (error: unknown): void =>
    assert.ok(error instanceof StoreUnavailable, String(error));
  const doing = (work: Promise<unknown>): void => void under.push(work.catch(lost));
  const takeOpen = (): Open | undefined => open.splice(upTo(open.length), 1)[0];

  for (const accountId of ACCOUNTS) await credit(accountId, CREDIT);
  await first.ledger.setDailyAllocation('daily', nano(50_000n));
  await setCap(first, 'key', 'capped', 200_000);
  await setCap(first, 'budget-key', 'budget', 300_000);
  await setCap(first, 'all', 'budget', 200_000);
  for (let step = 0; step < STEPS; step += 1) {
    const process = one(processes);
    const dice = upTo(100);
    if (dice < 50 && open.length < MOST_OPEN) doing(place(process));
    else if (dice < 80) {
      const ending = takeOpen();
      if (ending !== undefined) doing(settle(ending));
    } else if (dice < 85) {
      const ending = takeOpen();
      ending?.ledger.holds.release(ending.hold);
    } else if (dice < 88) doing(credit(one(ACCOUNTS), nano(upTo(5_000) + 1)));
    else if (dice < 91) doing(debit(process, one(ACCOUNTS)));
    else if (dice < 93) doing(Promise.resolve(process.ledger.holds.recall(one(ACCOUNTS))));
    else if (dice < 95) process.lose('transaction');
    else if (dice < 97) doing(setCap(process, 'all', 'budget', 100_000 + upTo(200_000)));
    else if (dice < 98) doing(one(processes).ledger.holds.processEnded(process.id));
    else if (dice < 99) {
      await process.ledger.stop();
      Object.assign(process, await start(process));
    } else process.skew.ms += DAY_MS / 2;
    // Lets running operations overlap with new ones at different points.
    if (upTo(4) === 0) await new Promise((resolve) => setTimeout(resolve, upTo(4)));
    if (upTo(60) === 0) await Promise.all(under.splice(0));
  }
  await Promise.all(under);
  for (const ending of open) await settle(ending);
  for (const { ledger } of processes) await ledger.stop();
  // Rows of a closed epoch, or of a lost reply, are found by a later process.
  const clock = { ...systemClock(), nowMs: () => Date.now() + STEPS * DAY_MS };
  const parts = { clock, ids: systemIds(), log: silentLog, epochDeadAfterMs: 300 };
  const heir = new Ledger({ ...parts, store: books });
  await heir.start();
  for (let look = 0; look < 200; look += 1) {
    if ((await books.query('SELECT 1 AS one FROM ledger_hold')).length === 0) break;
    await clock.sleep(25);
  }
  await heir.stop();

  const { differences, openHolds, leasedNano } = await first.ledger.audit();
  assert.deepEqual([differences, openHolds, leasedNano], [[], 0, 0n], `TEST_SEED=${seed}`);
  const receipts = await books.query<{ id: string; nano: bigint }>(
    'SELECT request_id AS id, usd_nano + diem_nano AS nano FROM ledger_usage ORDER BY request_id',
  );
  const expected = [...charged].map(([id, cost]) => ({ id, nano: cost }));
  assert.deepEqual(
    receipts.map(({ id, nano: cost }) => `${id} ${cost}`),
    expected.map(({ id, nano: cost }) => `${id} ${cost}`).toSorted(),
    `TEST_SEED=${seed}`,
  );
  for (const accountId of ACCOUNTS) {
    const { usdNano } = await first.ledger.balances(accountId);
    const [row] = await books.query<{ usd: bigint }>(
      'SELECT coalesce(sum(usd_nano), 0) AS usd FROM ledger_usage WHERE account_id = $1',
      [accountId],
    );
    assert.equal(usdNano, (credited.get(accountId) ?? 0n) - (row?.usd ?? 0n), `TEST_SEED=${seed}`);
  }
  for (const store of [...stores, books]) await store.close();
});
