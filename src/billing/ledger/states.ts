/**
 * Reads and writes the rows that money moves on, inside a transaction: accounts and allowances
 * are read once (locked on PostgreSQL, in order of id, so that no two processes wait for each
 * other), changed in memory, and written once.
 */
import { assert } from '../../core/assert.ts';
import { dayOf } from '../../core/clock.ts';
import type { Dialect, Queryable } from '../../db/db.ts';
import { type AccountState, type AllowanceState, periodStartMs } from './hold-plan.ts';
import type { AllowancePeriod } from './hold-plan.ts';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

interface AccountRow {
  readonly balance_nano: bigint;
  readonly held_nano: bigint;
  readonly daily_allocation_nano: bigint;
  readonly daily_allocation_day: bigint | null;
  readonly daily_day: bigint;
  readonly daily_spent_nano: bigint;
  readonly daily_held_nano: bigint;
  readonly debt_nano: bigint;
}

interface AllowanceRow {
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
  readonly usd_spent_nano: bigint;
  readonly usd_held_nano: bigint;
  readonly diem_spent_nano: bigint;
  readonly diem_held_nano: bigint;
}

const SELECT_ACCOUNT = `SELECT balance_nano, held_nano, daily_allocation_nano,
  daily_allocation_day, daily_day, daily_spent_nano, daily_held_nano, debt_nano
  FROM ledger_account WHERE id = $1`;
const UPDATE_ACCOUNT = `UPDATE ledger_account SET balance_nano = $2, held_nano = $3, daily_day = $4,
  daily_spent_nano = $5, daily_held_nano = $6 WHERE id = $1`;
const SELECT_ALLOWANCE = `SELECT period, period_start_ms, usd_limit_nano, diem_limit_nano,
  usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano FROM ledger_allowance WHERE id = $1`;
const UPDATE_ALLOWANCE = `UPDATE ledger_allowance SET period_start_ms = $2, usd_spent_nano = $3,
  usd_held_nano = $4, diem_spent_nano = $5, diem_held_nano = $6 WHERE id = $1`;

/** The daily credit of a day: of every day, unless the allocation names one. */
export function allocationOn(
  row: Pick<AccountRow, 'daily_allocation_nano' | 'daily_allocation_day'>,
  day: number,
): bigint {
  const only = row.daily_allocation_day;
  return only === null || Number(only) === day ? row.daily_allocation_nano : 0n;
}

export class States {
  readonly #tx: Queryable;
  readonly #lock: string;
  readonly #nowMs: number;
  readonly #accounts = new Map<string, Mutable<AccountState>>();
  readonly #allowances = new Map<string, Mutable<AllowanceState>>();

  constructor(tx: Queryable, dialect: Dialect, nowMs: number) {
    this.#tx = tx;
    this.#lock = dialect === 'postgres' ? ' FOR UPDATE' : '';
    this.#nowMs = nowMs;
  }

  /** Reads accounts first, allowances second, each in order of id: the fixed lock order. */
  async load(accountIds: Iterable<string>, allowanceIds: Iterable<string>): Promise<void> {
    for (const id of [...new Set(accountIds)].sort()) {
      const rows = await this.#tx.query<AccountRow>(SELECT_ACCOUNT + this.#lock, [id]);
      const row = rows[0];
      if (row !== undefined) this.#accounts.set(id, this.#currentAccount(row));
    }
    for (const id of [...new Set(allowanceIds)].sort()) {
      const rows = await this.#tx.query<AllowanceRow>(SELECT_ALLOWANCE + this.#lock, [id]);
      const row = rows[0];
      if (row !== undefined) this.#allowances.set(id, this.#currentAllowance(row));
    }
  }

  account(id: string): Mutable<AccountState> | undefined {
    return this.#accounts.get(id);
  }

  allowance(id: string | null | undefined): Mutable<AllowanceState> | undefined {
    return id === null || id === undefined ? undefined : this.#allowances.get(id);
  }

  /** Writes every row that was read. */
  async save(): Promise<void> {
    for (const [id, state] of this.#accounts) {
      assert(state.balanceNano >= 0n, `the balance of ${id} went below zero`);
      assert(state.heldNano >= 0n && state.dailyHeldNano >= 0n, `a hold of ${id} went below zero`);
      await this.#tx.query(UPDATE_ACCOUNT, [
        id,
        state.balanceNano,
        state.heldNano,
        state.dailyDay,
        state.dailySpentNano,
        state.dailyHeldNano,
      ]);
    }
    for (const [id, state] of this.#allowances) {
      await this.#tx.query(UPDATE_ALLOWANCE, [
        id,
        state.periodStartMs,
        state.usdSpentNano,
        state.usdHeldNano,
        state.diemSpentNano,
        state.diemHeldNano,
      ]);
    }
  }

  /** A new day begins with nothing spent and nothing held of its daily credit. */
  #currentAccount(row: AccountRow): Mutable<AccountState> {
    const today = dayOf(this.#nowMs);
    const current = Number(row.daily_day) >= today;
    return {
      balanceNano: row.balance_nano,
      heldNano: row.held_nano,
      dailyAllocationNano: allocationOn(row, today),
      dailyDay: current ? Number(row.daily_day) : today,
      dailySpentNano: current ? row.daily_spent_nano : 0n,
      dailyHeldNano: current ? row.daily_held_nano : 0n,
      debtNano: row.debt_nano,
    };
  }

  #currentAllowance(row: AllowanceRow): Mutable<AllowanceState> {
    const start = periodStartMs(row.period, this.#nowMs);
    const current = Number(row.period_start_ms) >= start;
    return {
      period: row.period,
      periodStartMs: current ? Number(row.period_start_ms) : start,
      usdLimitNano: row.usd_limit_nano ?? undefined,
      diemLimitNano: row.diem_limit_nano ?? undefined,
      usdSpentNano: current ? row.usd_spent_nano : 0n,
      usdHeldNano: current ? row.usd_held_nano : 0n,
      diemSpentNano: current ? row.diem_spent_nano : 0n,
      diemHeldNano: current ? row.diem_held_nano : 0n,
    };
  }
}
