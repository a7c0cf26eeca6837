/**
 * What API keys have spent, read from the day rollups and from the caps: the last days, and the
 * running period of each key.
 */
import { dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import { type AllowancePeriod, periodStartMs } from './hold-plan.ts';

export interface Spending {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export const NOTHING_SPENT: Spending = { usdNano: nano(0n), diemNano: nano(0n) };

interface SumRow {
  readonly key_id: string;
  readonly usd: bigint | null;
  readonly diem: bigint | null;
}

/** What each key of an account spent since a day, that day included; silent keys are missing. */
export async function spendingSince(
  store: Queryable,
  accountId: string,
  fromDay: number,
): Promise<ReadonlyMap<string, Spending>> {
  const rows = await store.query<SumRow>(
    `SELECT key_id, CAST(sum(usd_nano) AS BIGINT) AS usd, CAST(sum(diem_nano) AS BIGINT) AS diem
     FROM ledger_usage_day WHERE account_id = $1 AND day >= $2 GROUP BY key_id`,
    [accountId, fromDay],
  );
  return new Map(rows.map((row) => [row.key_id, spendingOf(row.usd, row.diem)]));
}

/** What one key spent since a day, that day included. */
export async function keySpendingSince(
  store: Queryable,
  accountId: string,
  keyId: string,
  fromDay: number,
): Promise<Spending> {
  const [row] = await store.query<Omit<SumRow, 'key_id'>>(
    `SELECT CAST(sum(usd_nano) AS BIGINT) AS usd, CAST(sum(diem_nano) AS BIGINT) AS diem
     FROM ledger_usage_day WHERE account_id = $1 AND day >= $2 AND key_id = $3`,
    [accountId, fromDay, keyId],
  );
  return spendingOf(row?.usd, row?.diem);
}

interface CapRow {
  readonly id: string;
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_spent_nano: bigint;
  readonly diem_spent_nano: bigint;
}

/** What counts against the caps of an account's keys in the period that runs at `nowMs`. */
export async function cappedSpending(
  store: Queryable,
  accountId: string,
  nowMs: number,
): Promise<ReadonlyMap<string, Spending>> {
  const rows = await store.query<CapRow>(
    `SELECT id, period, period_start_ms, usd_spent_nano, diem_spent_nano FROM ledger_allowance
     WHERE account_id = $1 AND (usd_limit_nano IS NOT NULL OR diem_limit_nano IS NOT NULL)`,
    [accountId],
  );
  return new Map(
    rows.map((row) => {
      const isCurrent = Number(row.period_start_ms) >= periodStartMs(row.period, nowMs);
      return [
        row.id,
        isCurrent ? spendingOf(row.usd_spent_nano, row.diem_spent_nano) : NOTHING_SPENT,
      ];
    }),
  );
}

/** The first day of the period that runs at `nowMs`; 0 for LIFETIME. */
export function periodStartDay(period: AllowancePeriod, nowMs: number): number {
  return dayOf(periodStartMs(period, nowMs));
}

function spendingOf(usd: bigint | null | undefined, diem: bigint | null | undefined): Spending {
  return { usdNano: nano(usd ?? 0n), diemNano: nano(diem ?? 0n) };
}
