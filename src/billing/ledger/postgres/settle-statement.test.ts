/** A settle that comes alone leaves behind what it would leave among others, and several all or nothing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyPostgresDatabase } from '../../../../test/databases/postgres.ts';
import { openTestStore } from '../../../../test/databases/stores.ts';
import { seededIds } from '../../../../test/support/seeded-ids.ts';
import { bill } from '../../../../test/support/test-ledger.ts';
import { HOUR_MS, systemClock } from '../../../core/clock.ts';
import { systemIds } from '../../../core/ids.ts';
import { silentLog } from '../../../core/log.ts';
import { ZERO, nano, usdToNano } from '../../../core/money.ts';
import { isUniqueViolation } from '../../../db/db.ts';
import { LEDGER_MIGRATIONS, Ledger } from '../ledger.ts';
import type { UsageStatus } from '../records.ts';
import type { LeasedHold } from './lease.ts';
import type { LeaseSettle } from './settle-item.ts';
import { settleFromLeases } from './settle-statement.ts';

/** All that means something in the literal of a record or of an array. */
const REPLICA = String.raw`"a" \b\, {c} (d), NULL 'é' 😀` + '\n';
const STATUSES: readonly UsageStatus[] = ['completed', 'aborted', 'failed', 'expired'];

test('a settle alone is as one of many', async () => {
  const store = await openTestStore(await emptyPostgresDatabase());
  await store.migrate(LEDGER_MIGRATIONS);
  const clock = { ...systemClock(), nowMs: () => 1_795_000_000_000 };
  // Nothing is given back meanwhile.
  const parts = { clock, ids: systemIds(), log: silentLog, epochDeadAfterMs: HOUR_MS };
  const ledger = new Ledger({ ...parts, store });
  await ledger.start();
  const seed = Number(process.env['TEST_SEED'] ?? 1 + (Date.now() % 1_000_000));
  const ids = seededIds(seed);
  const upTo = (most: number): number => Math.floor(ids.fraction() * most);

  async function held(accountId: string, requestId: string): Promise<LeasedHold> {
    const amounts = { minNano: nano(1_000n), maxNano: nano(1_000n), floorNano: ZERO };
    const answer = await ledger.holds.place({ requestId, accountId, ...amounts });
    assert.ok(answer.ok);
    return answer.hold as LeasedHold; // of PostgreSQL
  }
  function settleOf(hold: LeasedHold, cost: bigint, status: UsageStatus, hasMore: boolean) {
    const { accountId, requestId, lease, allowanceId, budgetIds } = hold;
    const { usage } = bill(clock, requestId, nano(cost), { accountId });
    const more = hasMore ? { replica: REPLICA, firstTokenMs: 3.6, extras: { searches: 2 } } : {};
    const settle: LeaseSettle = {
      request: { costNano: nano(cost), usage: { ...usage, ...more, status } },
      leaseId: lease?.id ?? requestId,
      allowanceId,
      budgetIds,
      isLast: lease === undefined,
      usdNano: cost,
      dailyNano: 0n,
      reservedNano: 1_000n,
    };
    return settle;
  }
  /** All that the ledger has of an account, without the names. */
  async function traceOf(accountId: string): Promise<unknown> {
    const tables: unknown[] = [];
    for (const [table, order] of [
      ['ledger_account', 'id'],
      ['ledger_hold', 'request_id'],
      ['ledger_usage', 'request_id'],
      ['ledger_transfer', 'id, part'],
      ['ledger_usage_day', 'model_id'],
    ] as const) {
      const column = table === 'ledger_account' ? 'id' : 'account_id';
      const rows = await store.query(
        `SELECT * FROM ${table} WHERE ${column} = $1 ORDER BY ${order}`,
        [accountId],
      );
      tables.push(rows);
    }
    const text = JSON.stringify(tables, (_, value) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    return JSON.parse(text.replaceAll(accountId, 'account').replaceAll(/lease:[\w-]+/g, 'lease'));
  }

  for (let round = 0; round < 4; round += 1) {
    const [alone, among, third] = ['alone', 'among', 'third'].map(
      (name) => `${name}-${round}-`,
    ) as [string, string, string];
    for (const accountId of [alone, among, third]) {
      const credit = {
        accountId,
        amountNano: usdToNano('1'),
        kind: 'CREDIT',
        id: accountId,
      } as const;
      await store.transaction((tx) =>
        ledger.creditIn(tx, { ...credit, from: 'house:operator-credit' }),
      );
    }
    const costs = Array.from({ length: 4 }, () => (upTo(4) === 0 ? 0n : BigInt(upTo(1_001))));
    const statuses = costs.map(() => STATUSES[upTo(4)] ?? 'completed');
    const hasMore = costs.map(() => upTo(2) === 0);
    // The first one is a row of its own, the others come out of a lease.
    for (let at = 0; at < costs.length; at += 1) {
      const settleFor = async (accountId: string): Promise<LeaseSettle> => {
        const hold = await held(accountId, `${accountId}${at}`);
        return settleOf(hold, costs[at] ?? 0n, statuses[at] ?? 'completed', hasMore[at] ?? false);
      };
      const [one, other] = [await settleFor(alone), await settleFor(among)];
      assert.equal(one.isLast, at === 0);
      const nowMs = clock.nowMs();
      const apart = await settleFromLeases(store, [one], nowMs);
      const beside = settleOf(await held(third, `${third}${at}`), 7n, 'completed', false);
      const together = await settleFromLeases(store, [beside, other], nowMs);
      const settled = apart.get(`${alone}${at}`);
      assert.ok(settled !== undefined, `seed ${seed}`);
      assert.deepEqual(settled, together.get(`${among}${at}`), `seed ${seed}`);
      assert.deepEqual(await traceOf(alone), await traceOf(among), `seed ${seed}, ${at}`);
      // The receipt is there: nothing is charged again, alone or among others.
      assert.equal((await settleFromLeases(store, [one], nowMs)).size, 0);
      if (at === 0) continue; // its row went with it
      const next = settleOf(await held(third, `${third}${at} next`), 7n, 'completed', false);
      await assert.rejects(settleFromLeases(store, [next, one, other], nowMs), isUniqueViolation);
      // Nothing of that was done; what comes out of a row that is gone is left out.
      const gone = settleOf(await held(third, `${third}${at} gone`), 7n, 'failed', true);
      const some = [{ ...gone, leaseId: 'lease:gone' }, next];
      const [left, ...none] = await settleFromLeases(store, some, nowMs);
      assert.deepEqual(none, []);
      assert.equal(left?.[0], next.request.usage.requestId);
      assert.equal(left?.[1].usdNano, 7n);
      assert.equal((await settleFromLeases(store, some.slice(0, 1), nowMs)).size, 0);
    }
  }
  assert.deepEqual((await ledger.audit()).differences, []);
  await ledger.stop();
  await store.close();
});
