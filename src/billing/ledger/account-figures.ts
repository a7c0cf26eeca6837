/** Reads balances, spending and cap usage of many accounts at once. */
import * as z from 'zod';
import { dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import { type Queryable, Whole, maybe, placesFrom, rowShape } from '../../db/db.ts';
import { LIMIT_PERIODS } from '../../identity/identity.ts';
import { periodStartMs } from '../rules.ts';
import { NET_DIEM, NET_USD, total } from './usage-sums.ts';

export interface AccountFigures {
  /** Posted USD, including what open requests hold. */
  readonly balanceNano: Nano;
  /** Charged since 00:00 UTC minus refunds, daily credit included. */
  readonly spentTodayNano: Nano;
}

export async function accountFigures(
  store: Queryable,
  accountIds: readonly string[],
  nowMs: number,
): Promise<ReadonlyMap<string, AccountFigures>> {
  const rows = await store.query<{ id: string; balance_nano: bigint; spent: bigint }>(
    `SELECT id, balance_nano, (SELECT ${total(`${NET_USD} + ${NET_DIEM}`)}
       FROM ledger_usage_day WHERE account_id = ledger_account.id AND day = $1) AS spent
     FROM ledger_account WHERE id IN (${placesFrom(2, accountIds)})`,
    [dayOf(nowMs), ...accountIds],
  );
  return new Map(
    rows.map((row) => [
      row.id,
      { balanceNano: nano(row.balance_nano), spentTodayNano: nano(row.spent) },
    ]),
  );
}

const Amount = z.bigint().transform(nano);
const Cap = rowShape({
  id: z.string(),
  accountId: z.string(),
  /** The budget and the tag value that the cap belongs to; `undefined` for the cap of a key. */
  budgetId: maybe(z.string()),
  tagValue: maybe(z.string()),
  period: z.enum(LIMIT_PERIODS),
  /** 0 for LIFETIME. */
  periodStartMs: Whole,
  usdLimitNano: maybe(Amount),
  diemLimitNano: maybe(Amount),
  usdSpentNano: Amount,
  diemSpentNano: Amount,
});

export interface CapUse extends ReturnType<typeof Cap.parse> {
  /** Whole percent of the USD limit or the daily-credit limit, whichever is used more. */
  readonly percent: number;
}

interface CapsOf {
  readonly accountId: string;
  readonly afterId: string;
  readonly leastPercent: number;
}

/**
 * Returns, for each account, the first `most` caps used by at least the given percentage, ordered
 * by id. A limit of 0 counts as no limit. `most` bounds the read per account, since an account can
 * have a cap for each of its end users. `isCurrent` is `false` for a cap whose period has ended.
 */
export async function usedCaps(
  store: Queryable,
  of: readonly CapsOf[],
  most: number,
  nowMs: number,
): Promise<(CapUse & { readonly isCurrent: boolean })[]> {
  const parts = of.map((_one, at) => {
    const [account, after, percent] = [1, 2, 3].map((place) => `$${at * 3 + place}`);
    return `SELECT * FROM (
      SELECT ${Cap.columns} FROM ledger_allowance
      WHERE account_id = ${account} AND id > ${after} AND (
        (usd_limit_nano > 0 AND usd_spent_nano * 100 >= usd_limit_nano * ${percent}) OR
        (diem_limit_nano > 0 AND diem_spent_nano * 100 >= diem_limit_nano * ${percent}))
      ORDER BY id LIMIT ${most}) AS caps_${at}`;
  });
  const rows = await store.query(
    parts.join(' UNION ALL '),
    of.flatMap(({ accountId, afterId, leastPercent }) => [accountId, afterId, leastPercent]),
  );
  return rows.map(Cap.parse).map((cap) => {
    const percents = [
      percentOf(cap.usdSpentNano, cap.usdLimitNano),
      percentOf(cap.diemSpentNano, cap.diemLimitNano),
    ];
    const isCurrent = cap.periodStartMs >= periodStartMs(cap.period, nowMs);
    return { ...cap, percent: Math.max(...percents), isCurrent };
  });
}

function percentOf(spentNano: bigint, limitNano: bigint | undefined): number {
  return limitNano === undefined || limitNano === 0n ? 0 : Number((spentNano * 100n) / limitNano);
}

export async function walletAccounts(
  tx: Queryable,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<{ readonly id: string; readonly wallet: string; readonly createdMs: number }[]> {
  const rows = await tx.query<{ id: string; created_ms: bigint }>(
    `SELECT id, created_ms FROM ledger_account WHERE id LIKE 'wallet:%' AND id > $1
     ORDER BY id LIMIT $2`,
    [after, limit],
  );
  return rows.map(({ id, created_ms: createdMs }) => ({
    id,
    wallet: id.slice('wallet:'.length),
    createdMs: Number(createdMs),
  }));
}
