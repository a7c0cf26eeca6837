/** What accounts have and spend at a moment, and how far their caps are used: for many at once. */
import { dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import { type AllowancePeriod, periodStartMs } from './hold-plan.ts';

export interface AccountFigures {
  /** Posted USD; what open requests hold is not taken off. */
  readonly balanceNano: Nano;
  /** Charged since 00:00 UTC, daily credit included. */
  readonly spentTodayNano: Nano;
}

/** Of each of these accounts; one that never had money is missing. */
export async function accountFigures(
  store: Queryable,
  accountIds: readonly string[],
  nowMs: number,
): Promise<ReadonlyMap<string, AccountFigures>> {
  const rows = await store.query<{ id: string; balance_nano: bigint; spent: bigint }>(
    `SELECT id, balance_nano, (SELECT CAST(COALESCE(sum(usd_nano + diem_nano), 0) AS BIGINT)
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

/** How far a cap is used in the period that runs. */
export interface CapUse {
  readonly id: string;
  readonly accountId: string;
  readonly period: AllowancePeriod;
  /** 0 for LIFETIME. */
  readonly periodStartMs: number;
  /** Whole percent of the limit in USD or in daily credit, of that which is further used. */
  readonly percent: number;
}

interface CapRow {
  readonly id: string;
  readonly account_id: string;
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
  readonly usd_spent_nano: bigint;
  readonly diem_spent_nano: bigint;
}

/** The caps of these accounts that are used by at least so many percent; a limit of 0 is none. */
export async function usedCaps(
  store: Queryable,
  accountIds: readonly string[],
  leastPercent: number,
  nowMs: number,
): Promise<readonly CapUse[]> {
  const rows = await store.query<CapRow>(
    `SELECT id, account_id, period, period_start_ms, usd_limit_nano, diem_limit_nano,
       usd_spent_nano, diem_spent_nano FROM ledger_allowance
     WHERE account_id IN (${placesFrom(2, accountIds)}) AND (
       (usd_limit_nano > 0 AND usd_spent_nano * 100 >= usd_limit_nano * $1) OR
       (diem_limit_nano > 0 AND diem_spent_nano * 100 >= diem_limit_nano * $1))`,
    [leastPercent, ...accountIds],
  );
  return rows
    .filter((row) => Number(row.period_start_ms) >= periodStartMs(row.period, nowMs))
    .map((row) => ({
      id: row.id,
      accountId: row.account_id,
      period: row.period,
      periodStartMs: Number(row.period_start_ms),
      percent: Math.max(
        percentOf(row.usd_spent_nano, row.usd_limit_nano),
        percentOf(row.diem_spent_nano, row.diem_limit_nano),
      ),
    }));
}

function percentOf(spentNano: bigint, limitNano: bigint | null): number {
  return limitNano === null || limitNano === 0n ? 0 : Number((spentNano * 100n) / limitNano);
}

function placesFrom(first: number, values: readonly unknown[]): string {
  return values.map((_value, at) => `$${first + at}`).join(', ');
}
