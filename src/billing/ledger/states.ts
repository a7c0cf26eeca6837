/**
 * The rows that money moves on, inside a transaction: accounts and caps are read once, changed in
 * memory, and written once. In a shared database they are locked, accounts first and each in order
 * of id, so that processes cannot deadlock. A posting moves one amount from the debited to the
 * credited account; postings are only ever added.
 */
import { assert } from '../../core/assert.ts';
import { DAY_MS, dayOf, dayStartMs } from '../../core/clock.ts';
import type {
  FileStore,
  FileTransaction,
  Parameter,
  Queryable,
  Row,
  Statement,
} from '../../db/db.ts';
import type { Nano } from '../../core/money.ts';
import {
  type AccountState,
  type CapPeriod,
  type CapState,
  type HeldAmounts,
  periodStartMs,
} from '../rules.ts';
import type { HouseAccount, SettleRequest, TransferKind } from './records.ts';

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

export interface CapRow {
  readonly period: CapPeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
  readonly usd_spent_nano: bigint;
  readonly usd_held_nano: bigint;
  readonly diem_spent_nano: bigint;
  readonly diem_held_nano: bigint;
  readonly budget_id: string | null;
}

const ACCOUNTS = `id, balance_nano, held_nano, daily_allocation_nano, daily_allocation_day, daily_day,
  daily_spent_nano, daily_held_nano, debt_nano FROM ledger_account`;
export const SELECT_ACCOUNT = `SELECT ${ACCOUNTS} WHERE id = $1`;
const UPDATE_ACCOUNT = `UPDATE ledger_account SET balance_nano = $1, held_nano = $2, daily_day = $3,
  daily_spent_nano = $4, daily_held_nano = $5 WHERE id = $6`;
const CAPS = `id, period, period_start_ms, usd_limit_nano, diem_limit_nano, usd_spent_nano,
  usd_held_nano, diem_spent_nano, diem_held_nano, budget_id FROM ledger_allowance`;
const SELECT_CAP = `SELECT ${CAPS} WHERE id = $1`;
const UPDATE_CAP = `UPDATE ledger_allowance SET period_start_ms = $1, usd_spent_nano = $2,
  usd_held_nano = $3, diem_spent_nano = $4, diem_held_nano = $5 WHERE id = $6`;

export const NEW_ACCOUNT: AccountState = {
  balanceNano: 0n,
  heldNano: 0n,
  dailyAllocationNano: 0n,
  dailyDay: 0,
  dailySpentNano: 0n,
  dailyHeldNano: 0n,
  debtNano: 0n,
};

/** Returns an account on the day of `nowMs`; a new day starts without spent or held credit. */
export function accountOf(row: AccountRow, nowMs: number): AccountState {
  const today = dayOf(nowMs);
  const isCurrent = Number(row.daily_day) >= today;
  const dailyDay = isCurrent ? Number(row.daily_day) : today;
  const onlyDay = row.daily_allocation_day;
  const isAllocated = onlyDay === null || Number(onlyDay) === dailyDay;
  return {
    balanceNano: row.balance_nano,
    heldNano: row.held_nano,
    // The allocation is valid every day, unless it names one.
    dailyAllocationNano: isAllocated ? row.daily_allocation_nano : 0n,
    dailyDay,
    dailySpentNano: isCurrent ? row.daily_spent_nano : 0n,
    dailyHeldNano: isCurrent ? row.daily_held_nano : 0n,
    debtNano: row.debt_nano,
  };
}

/** Returns a cap in the period of `nowMs`. */
function capOf(row: CapRow, nowMs: number): CapState {
  const cap = {
    period: row.period,
    periodStartMs: Number(row.period_start_ms),
    usdLimitNano: row.usd_limit_nano ?? undefined,
    diemLimitNano: row.diem_limit_nano ?? undefined,
    usdSpentNano: row.usd_spent_nano,
    usdHeldNano: row.usd_held_nano,
    diemSpentNano: row.diem_spent_nano,
    diemHeldNano: row.diem_held_nano,
    budgetId: row.budget_id ?? undefined,
  };
  beginPeriod(cap, nowMs);
  return cap;
}

/** In a new period nothing is spent or held. */
export function beginPeriod(cap: CapState, atMs: number): void {
  const startMs = periodStartMs(cap.period, atMs);
  if (cap.periodStartMs >= startMs) return;
  const nothing = { usdSpentNano: 0n, usdHeldNano: 0n, diemSpentNano: 0n, diemHeldNano: 0n };
  Object.assign(cap, { periodStartMs: startMs, ...nothing });
}

export interface States {
  readonly accounts: ReadonlyMap<string, AccountState>;
  readonly caps: ReadonlyMap<string, CapState>;
}

/** Whether an account has a debt, or more is spent and held of one of the caps than its limit. */
export function areExceeded(
  { accounts, caps }: States,
  accountId: string,
  capIds: readonly string[],
): boolean {
  if ((accounts.get(accountId)?.debtNano ?? 0n) > 0n) return true;
  return capIds.some((id) => {
    const cap = caps.get(id);
    if (cap === undefined) return false;
    const { usdLimitNano, diemLimitNano, usdSpentNano, diemSpentNano } = cap;
    return (
      (usdLimitNano !== undefined && usdSpentNano + cap.usdHeldNano > usdLimitNano) ||
      (diemLimitNano !== undefined && diemSpentNano + cap.diemHeldNano > diemLimitNano)
    );
  });
}

export interface StateIds {
  readonly accountIds: readonly string[];
  readonly capIds: readonly string[];
}

const OF_IDS = 'WHERE id IN (SELECT json_array_elements_text($1::json)) ORDER BY id';

export async function lockStates(tx: Queryable, nowMs: number, ids: StateIds): Promise<States> {
  return readStates(tx, nowMs, ids, ' FOR UPDATE');
}

export async function readStates(
  tx: Queryable,
  nowMs: number,
  { accountIds, capIds }: StateIds,
  lock = '',
): Promise<States> {
  const read = <R>(columns: string, ids: readonly string[]) =>
    ids.length === 0
      ? []
      : tx.query<R & { readonly id: string }>(`SELECT ${columns} ${OF_IDS}${lock}`, [
          JSON.stringify(ids),
        ]);
  const [accounts, caps] = await Promise.all([
    read<AccountRow>(ACCOUNTS, accountIds),
    read<CapRow>(CAPS, capIds),
  ]);
  return {
    accounts: new Map(accounts.map((row) => [row.id, accountOf(row, nowMs)])),
    caps: new Map(caps.map((row) => [row.id, capOf(row, nowMs)])),
  };
}

const MAX_ROWS = 10_000;

interface Reader {
  rows(sql: string, parameters: readonly Parameter[]): readonly Row[];
}

class KeptRows<Columns, State> {
  readonly #select: string;
  readonly #stateOf: (row: Columns, nowMs: number) => State;
  readonly #kept = new Map<string, { state: State; generation: number }>();

  constructor(select: string, stateOf: (row: Columns, nowMs: number) => State) {
    this.#select = select;
    this.#stateOf = stateOf;
  }

  /** Reads the row again if it was cached in an earlier generation. */
  get(reader: Reader, id: string, nowMs: number, generation: number): State | undefined {
    const kept = this.#kept.get(id);
    if (kept?.generation === generation) return kept.state;
    const state = this.read(reader, id, nowMs);
    if (state === undefined) return undefined;
    if (kept === undefined) {
      if (this.#kept.size >= MAX_ROWS) this.#kept.clear();
      this.#kept.set(id, { state, generation });
    } else {
      kept.state = state;
      kept.generation = generation;
    }
    return state;
  }

  read(reader: Reader, id: string, nowMs: number): State | undefined {
    const row = reader.rows(this.#select, [id])[0] as unknown as Columns | undefined; // the columns that it selects
    return row && this.#stateOf(row, nowMs);
  }
}

/** A settle of a hold in memory. */
export interface HeldSettle {
  readonly request: SettleRequest;
  readonly held: HeldAmounts;
}

/**
 * Caches the rows of a SQLite database between holds and settles, so that a settle need not read
 * them again.
 *
 * Any other change drops the cache, according to `FileStore.changes`: all work of this process
 * except the settles in this file, every rollback, and each commit of another process. So this file
 * need not know which statements write these rows.
 */
export class KeptStates {
  readonly #store: FileStore;
  readonly accounts = new KeptRows<AccountRow, AccountState>(SELECT_ACCOUNT, accountOf);
  readonly caps = new KeptRows<CapRow, CapState>(SELECT_CAP, capOf);
  readonly #committed: Reader = { rows: (sql, values) => this.#store.readNow(sql, values) };
  #generation = 0;
  /** The value of `FileStore.changes` for which the cached rows are valid. */
  #changes = -1;
  /** The day of the cached states: caps and daily credit can start over on a new day. */
  #fromMs = 0;
  #untilMs = 0;

  constructor(store: FileStore) {
    this.#store = store;
  }

  committed<Columns, State>(
    rows: KeptRows<Columns, State>,
    id: string,
    nowMs: number,
  ): Readonly<State> | undefined {
    // Changes of an open transaction may still be rolled back.
    if (!this.#store.noticeOthers()) return rows.read(this.#committed, id, nowMs);
    this.#follow(this.#store.changes, nowMs);
    return rows.get(this.#committed, id, nowMs, this.#generation);
  }

  /** Returns the states for the settles of a transaction, which must write exactly these rows. */
  ofSettles(tx: FileTransaction, nowMs: number, settles: readonly HeldSettle[]): States {
    // The transaction itself is already counted.
    this.#follow(this.#store.changes - 1, nowMs);
    this.#changes += 1;
    const accounts = new Map<string, AccountState>();
    let caps: Map<string, CapState> | undefined;
    for (const { request, held } of settles) {
      const { accountId } = request.usage;
      if (!accounts.has(accountId)) {
        const state = this.accounts.get(tx, accountId, nowMs, this.#generation);
        if (state !== undefined) accounts.set(accountId, state);
      }
      for (const id of held.capIds ?? NO_IDS) {
        const state = this.caps.get(tx, id, nowMs, this.#generation);
        if (state !== undefined) (caps ??= new Map()).set(id, state);
      }
    }
    return { accounts, caps: caps ?? NO_CAPS };
  }

  /** Starts a new generation if any other change has happened since the last one. */
  #follow(changes: number, nowMs: number): void {
    const isSameDay = nowMs >= this.#fromMs && nowMs < this.#untilMs;
    if (changes === this.#changes && isSameDay) return;
    this.#changes = changes;
    this.#fromMs = dayStartMs(dayOf(nowMs));
    this.#untilMs = this.#fromMs + DAY_MS;
    this.#generation += 1;
  }
}

const NO_CAPS: ReadonlyMap<string, CapState> = new Map();
const NO_IDS: readonly string[] = [];

/** Receives the statements of a transaction in order; on SQLite it runs them at once. */
export type Writer = Pick<FileTransaction, 'execute'>;

export function collected(statements: Statement[]): Writer {
  return { execute: (sql, parameters) => void statements.push({ sql, parameters }) };
}

export function writeStates(writer: Writer, { accounts, caps }: States): void {
  for (const [id, state] of accounts) {
    const { balanceNano, heldNano, dailyDay, dailySpentNano, dailyHeldNano } = state;
    assert(balanceNano >= 0n, 'no balance goes below zero');
    assert(heldNano >= 0n && dailyHeldNano >= 0n, 'no hold goes below zero');
    writer.execute(UPDATE_ACCOUNT, [
      balanceNano,
      heldNano,
      dailyDay,
      dailySpentNano,
      dailyHeldNano,
      id,
    ]);
  }
  for (const [id, state] of caps) {
    const { usdSpentNano, usdHeldNano, diemSpentNano, diemHeldNano } = state;
    const amounts = [usdSpentNano, usdHeldNano, diemSpentNano, diemHeldNano];
    writer.execute(UPDATE_CAP, [state.periodStartMs, ...amounts, id]);
  }
}

export interface Transfer {
  /** Request id or payment key; unique together with `part` and the day. */
  readonly id: string;
  readonly part: number;
  readonly accountId: string;
  readonly debitAccount: HouseAccount | (string & {});
  readonly creditAccount: HouseAccount | (string & {});
  readonly amountNano: Nano;
  readonly balanceAfterNano: bigint;
  readonly kind: TransferKind;
  readonly requestId?: string;
  readonly modelId?: string;
  readonly note?: string;
  readonly nowMs: number;
  /** The day whose daily credit was spent, if it is not today. */
  readonly day?: number;
}

const INSERT_TRANSFER = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
  credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`;

export function writeTransfer(writer: Writer, transfer: Transfer): void {
  writer.execute(INSERT_TRANSFER, [
    transfer.id,
    transfer.part,
    transfer.day ?? dayOf(transfer.nowMs),
    transfer.accountId,
    transfer.debitAccount,
    transfer.creditAccount,
    transfer.amountNano,
    transfer.balanceAfterNano,
    transfer.kind,
    transfer.requestId ?? null,
    transfer.modelId ?? null,
    transfer.note ?? null,
    transfer.nowMs,
  ]);
}

export function insertTransfer(tx: Queryable, transfer: Transfer): Promise<void> {
  const statements: Statement[] = [];
  writeTransfer(collected(statements), transfer);
  return tx.run(statements);
}
