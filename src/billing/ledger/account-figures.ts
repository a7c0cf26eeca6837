/** Reads balances, spending and cap usage of many accounts at once. */
import { dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import { type Queryable, placesFrom } from '../../db/db.ts';
import { type CapPeriod, periodStartMs } from '../rules.ts';
import { NET_DIEM, NET_USD } from './usage-sums.ts';

export interface AccountFigures {
  /** Posted USD, including what open requests hold. */
  readonly balanceNano: Nano;
  /** Charged since 00:00 UTC minus refunds, daily credit included. */
  readonly spentTodayNano: Nano;
}

/** Returns the figures of these accounts; accounts without ledger rows are omitted. */
export async function accountFigures(
  store: Queryable,
  accountIds: readonly string[],
  nowMs: number,
): Promise<ReadonlyMap<string, AccountFigures>> {
  const rows = await store.query<{ id: string; balance_nano: bigint; spent: bigint }>(
    `SELECT id, balance_nano, (SELECT CAST(COALESCE(sum(${NET_USD} + ${NET_DIEM}), 0) AS BIGINT)
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

export interface CapUse {
  readonly id: string;
  readonly accountId: string;
  /** The budget and the tag value that the cap belongs to; `undefined` for the cap of a key. */
  readonly budgetId: string | undefined;
  readonly tagValue: string | undefined;
  readonly period: CapPeriod;
  /** 0 for LIFETIME. */
  readonly periodStartMs: number;
  readonly usdLimitNano: Nano | undefined;
  readonly diemLimitNano: Nano | undefined;
  /** Whole percent of the USD limit or the daily-credit limit, whichever is used more. */
  readonly percent: number;
}

interface CapRow {
  readonly id: string;
  readonly account_id: string;
  readonly budget_id: string | null;
  readonly tag_value: string | null;
  readonly period: CapPeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
  readonly usd_spent_nano: bigint;
  readonly diem_spent_nano: bigint;
}

/** Selects the caps with an id above a given one that are used by at least a given percentage. */
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
      SELECT id, account_id, budget_id, tag_value, period, period_start_ms, usd_limit_nano,
        diem_limit_nano, usd_spent_nano, diem_spent_nano FROM ledger_allowance
      WHERE account_id = ${account} AND id > ${after} AND (
        (usd_limit_nano > 0 AND usd_spent_nano * 100 >= usd_limit_nano * ${percent}) OR
        (diem_limit_nano > 0 AND diem_spent_nano * 100 >= diem_limit_nano * ${percent}))
      ORDER BY id LIMIT ${most}) AS caps_${at}`;
  });
  const rows = await store.query<CapRow>(
    parts.join(' UNION ALL '),
    of.flatMap(({ accountId, afterId, leastPercent }) => [accountId, afterId, leastPercent]),
  );
  return rows.map((row) => ({
    ...useOf(row),
    isCurrent: Number(row.period_start_ms) >= periodStartMs(row.period, nowMs),
  }));
}

function useOf(row: CapRow): CapUse {
  const { usd_limit_nano: usd, diem_limit_nano: diem } = row;
  return {
    id: row.id,
    accountId: row.account_id,
    budgetId: row.budget_id ?? undefined,
    tagValue: row.tag_value ?? undefined,
    period: row.period,
    periodStartMs: Number(row.period_start_ms),
    usdLimitNano: usd === null ? undefined : nano(usd),
    diemLimitNano: diem === null ? undefined : nano(diem),
    percent: Math.max(percentOf(row.usd_spent_nano, usd), percentOf(row.diem_spent_nano, diem)),
  };
}

function percentOf(spentNano: bigint, limitNano: bigint | null): number {
  return limitNano === null || limitNano === 0n ? 0 : Number((spentNano * 100n) / limitNano);
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
