/**
 * The rows that money moves on, inside a transaction: accounts and allowances are read once (locked
 * on PostgreSQL, accounts first, each in order of id, so that no two processes wait for each other),
 * changed in memory, and written once.
 */
import { assert } from '../../core/assert.ts';
import { dayOf } from '../../core/clock.ts';
import type { Dialect, Queryable, Statement } from '../../db/db.ts';
import { type AccountState, type AllowanceState, periodStartMs } from './hold-plan.ts';
import type { AllowancePeriod } from './hold-plan.ts';

export interface AccountRow {
  readonly balance_nano: bigint;
  readonly held_nano: bigint;
  readonly daily_allocation_nano: bigint;
  readonly daily_allocation_day: bigint | null;
  readonly daily_day: bigint;
  readonly daily_spent_nano: bigint;
  readonly daily_held_nano: bigint;
  readonly debt_nano: bigint;
}

export interface AllowanceRow {
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
  readonly usd_spent_nano: bigint;
  readonly usd_held_nano: bigint;
  readonly diem_spent_nano: bigint;
  readonly diem_held_nano: bigint;
}

export const SELECT_ACCOUNT = `SELECT balance_nano, held_nano, daily_allocation_nano,
  daily_allocation_day, daily_day, daily_spent_nano, daily_held_nano, debt_nano
  FROM ledger_account WHERE id = $1`;
const UPDATE_ACCOUNT = `UPDATE ledger_account SET balance_nano = $1, held_nano = $2, daily_day = $3,
  daily_spent_nano = $4, daily_held_nano = $5 WHERE id = $6`;
export const SELECT_ALLOWANCE = `SELECT period, period_start_ms, usd_limit_nano, diem_limit_nano,
  usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano FROM ledger_allowance WHERE id = $1`;
const UPDATE_ALLOWANCE = `UPDATE ledger_allowance SET period_start_ms = $1, usd_spent_nano = $2,
  usd_held_nano = $3, diem_spent_nano = $4, diem_held_nano = $5 WHERE id = $6`;

/** The daily credit of a day: of every day, unless the allocation names one. */
export function allocationOn(
  row: Pick<AccountRow, 'daily_allocation_nano' | 'daily_allocation_day'>,
  day: number,
): bigint {
  const only = row.daily_allocation_day;
  return only === null || Number(only) === day ? row.daily_allocation_nano : 0n;
}

/** An account on the day of `nowMs`: a new day begins with nothing spent and nothing held of it. */
export function accountOf(row: AccountRow, nowMs: number): AccountState {
  const today = dayOf(nowMs);
  const isCurrent = Number(row.daily_day) >= today;
  return {
    balanceNano: row.balance_nano,
    heldNano: row.held_nano,
    dailyAllocationNano: allocationOn(row, today),
    dailyDay: isCurrent ? Number(row.daily_day) : today,
    dailySpentNano: isCurrent ? row.daily_spent_nano : 0n,
    dailyHeldNano: isCurrent ? row.daily_held_nano : 0n,
    debtNano: row.debt_nano,
  };
}

/** The same of an allowance and its period. */
export function allowanceOf(row: AllowanceRow, nowMs: number): AllowanceState {
  const startMs = periodStartMs(row.period, nowMs);
  const isCurrent = Number(row.period_start_ms) >= startMs;
  return {
    period: row.period,
    periodStartMs: isCurrent ? Number(row.period_start_ms) : startMs,
    usdLimitNano: row.usd_limit_nano ?? undefined,
    diemLimitNano: row.diem_limit_nano ?? undefined,
    usdSpentNano: isCurrent ? row.usd_spent_nano : 0n,
    usdHeldNano: isCurrent ? row.usd_held_nano : 0n,
    diemSpentNano: isCurrent ? row.diem_spent_nano : 0n,
    diemHeldNano: isCurrent ? row.diem_held_nano : 0n,
  };
}

export class States {
  readonly #accounts = new Map<string, AccountState>();
  readonly #allowances = new Map<string, AllowanceState>();

  static async load(
    tx: Queryable,
    { dialect, nowMs }: { readonly dialect: Dialect; readonly nowMs: number },
    accountIds: readonly string[],
    allowanceIds: readonly string[],
  ): Promise<States> {
    const states = new States();
    const lock = dialect === 'postgres' ? ' FOR UPDATE' : '';
    for (const id of accountIds.toSorted()) {
      if (states.#accounts.has(id)) continue;
      const [row] = await tx.query<AccountRow>(SELECT_ACCOUNT + lock, [id]);
      if (row !== undefined) states.#accounts.set(id, accountOf(row, nowMs));
    }
    for (const id of allowanceIds.toSorted()) {
      if (states.#allowances.has(id)) continue;
      const [row] = await tx.query<AllowanceRow>(SELECT_ALLOWANCE + lock, [id]);
      if (row !== undefined) states.#allowances.set(id, allowanceOf(row, nowMs));
    }
    return states;
  }

  account(id: string): AccountState | undefined {
    return this.#accounts.get(id);
  }

  allowance(id: string | undefined): AllowanceState | undefined {
    return id === undefined ? undefined : this.#allowances.get(id);
  }

  /** Adds what writes every row that was read. */
  save(statements: Statement[]): void {
    for (const [id, state] of this.#accounts) {
      const { balanceNano, heldNano, dailyDay, dailySpentNano, dailyHeldNano } = state;
      assert(balanceNano >= 0n, `the balance of ${id} went below zero`);
      assert(heldNano >= 0n && dailyHeldNano >= 0n, `a hold of ${id} went below zero`);
      const parameters = [balanceNano, heldNano, dailyDay, dailySpentNano, dailyHeldNano, id];
      statements.push({ sql: UPDATE_ACCOUNT, parameters });
    }
    for (const [id, state] of this.#allowances) {
      const { usdSpentNano, usdHeldNano, diemSpentNano, diemHeldNano } = state;
      const amounts = [usdSpentNano, usdHeldNano, diemSpentNano, diemHeldNano];
      const parameters = [state.periodStartMs, ...amounts, id];
      statements.push({ sql: UPDATE_ALLOWANCE, parameters });
    }
  }
}
