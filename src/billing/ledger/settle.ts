/**
 * Settles requests inside one transaction: takes the cost (daily credit first), gives the rest of
 * the hold back, posts the transfers, writes the usage records and adds them to the rollups by day,
 * key, model and tag, which every overview reads instead of the records.
 *
 * Exactly once: the hold is the right to charge. One in a row goes with its row; one in memory is
 * open until its settle is on disk (`memory-holds.ts`). A request whose row or lease is gone was
 * settled before, or its process was taken for dead; then the usage record decides, and a late settle
 * takes at most what is available, and counts toward the cap of its key.
 */
import { type Clock, dayOf } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, ZERO, formatUsd, nano } from '../../core/money.ts';
import type { FileTransaction, Queryable, Statement, Store } from '../../db/db.ts';
import { type Charge, type Taken, addToDays, record } from './charge-records.ts';
import { type AccountState, type AllowanceState, dailyLeft } from './hold-plan.ts';
import { noteJob } from './job-charges.ts';
import { capIdsOf } from './place-holds.ts';
import type { Balances, Hold, SettleRequest, Settlement, UsageRecord } from './records.ts';
import {
  type KeptStates,
  type States,
  type StatesOf,
  type Writer,
  collected,
  lockStates,
  writeStates,
} from './states.ts';

/** What a hold sets aside. */
export interface HeldAmounts {
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  /** The day whose credit it is. */
  readonly dailyDay: number;
  readonly allowanceId: string | undefined;
  /** Counts in the period of its allowance that began by then, and in no later one. */
  readonly allowanceMs: number;
  /** Further caps that it counts against. */
  readonly budgetIds: readonly string[] | undefined;
  /** The same of their periods. */
  readonly budgetsMs: number;
  /** Its account and its allowance have the amounts in their rows as well. */
  readonly isRow: boolean;
}

export interface HoldRow {
  readonly request_id: string;
  readonly account_id: string;
  readonly allowance_id: string | null;
  readonly allowance_start_ms: bigint;
  readonly usd_nano: bigint;
  readonly daily_nano: bigint;
  readonly daily_day: bigint;
  readonly created_ms: bigint;
  readonly budget_ids: string | null;
}

export const HOLD_COLUMNS = `request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
  daily_nano, daily_day, created_ms, budget_ids`;

export interface SettleParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
}

export interface Settle {
  readonly request: SettleRequest;
  /** Missing when no hold is open any more. */
  readonly held: HeldAmounts | undefined;
}

const DELETE_HOLD = `DELETE FROM ledger_hold WHERE request_id = $1 AND account_id = $2
  RETURNING ${HOLD_COLUMNS}`;
const FIND_USAGE =
  'SELECT usd_nano, diem_nano FROM ledger_usage WHERE request_id = $1 AND day = $2';

/** Settles requests whose holds are rows. */
export async function settleRows(
  tx: Queryable,
  parts: SettleParts,
  requests: readonly SettleRequest[],
): Promise<Settlement[]> {
  if (parts.store.dialect === 'postgres') await lockAccounts(tx, requests);
  const settles: Settle[] = [];
  for (const request of requests) {
    const { requestId, accountId } = request.usage;
    const [row] = await tx.query<HoldRow>(DELETE_HOLD, [requestId, accountId]);
    settles.push({ request, held: row && heldInRow(row) });
  }
  return settleAll(tx, parts, settles);
}

/** Accounts are locked before holds everywhere. */
async function lockAccounts(tx: Queryable, requests: readonly SettleRequest[]): Promise<void> {
  await tx.query(
    `SELECT id FROM ledger_account WHERE id IN (SELECT json_array_elements_text($1::json))
     ORDER BY id FOR UPDATE`,
    [JSON.stringify(requests.map(({ usage }) => usage.accountId))],
  );
}

export function heldInRow(row: HoldRow): HeldAmounts {
  return {
    usdNano: row.usd_nano,
    dailyNano: row.daily_nano,
    dailyDay: Number(row.daily_day),
    allowanceId: row.allowance_id ?? undefined,
    allowanceMs: Number(row.allowance_start_ms),
    budgetIds: budgetIdsOf(row),
    budgetsMs: Number(row.created_ms),
    isRow: true,
  };
}

/** The further caps of a hold in a row. */
export function budgetIdsOf({ budget_ids: ids }: HoldRow): readonly string[] | undefined {
  return ids === null ? undefined : (JSON.parse(ids) as string[]); // ours
}

export async function settleAll(
  tx: Queryable,
  parts: SettleParts,
  settles: readonly Settle[],
): Promise<Settlement[]> {
  const nowMs = parts.clock.nowMs();
  const accountIds: string[] = [];
  const allowanceIds: string[] = [];
  for (const { request, held } of settles) {
    accountIds.push(request.usage.accountId);
    allowanceIds.push(...capsOf(request, held));
  }
  const context = { dialect: parts.store.dialect, nowMs };
  const states = await lockStates(tx, context, accountIds, allowanceIds);
  const taking: Taking = { log: parts.log, states, nowMs, charges: [], jobs: undefined };
  const settlements: Settlement[] = [];
  for (const settle of settles) {
    const { request, held } = settle;
    const before = held === undefined ? await settledBefore(tx, request.usage, taking) : undefined;
    settlements.push(settleOne(taking, settle, before));
  }
  const statements: Statement[] = [];
  writeAll(collected(statements), taking);
  await tx.run(statements);
  return settlements;
}

/** A settle whose hold is in memory. */
export interface HeldSettle extends StatesOf {
  readonly request: SettleRequest;
  readonly held: HeldAmounts;
}

/** The same of holds in memory, inside a transaction on a file: at once. */
export function settleHeld(
  tx: FileTransaction,
  { log, clock }: Pick<SettleParts, 'log' | 'clock'>,
  kept: KeptStates,
  settles: readonly HeldSettle[],
): Settlement[] {
  const nowMs = clock.nowMs();
  const taking: Taking = {
    log,
    states: kept.ofSettles(tx, nowMs, settles),
    nowMs,
    charges: [],
    jobs: undefined,
  };
  const settlements: Settlement[] = [];
  for (const settle of settles) settlements.push(settleOne(taking, settle, undefined));
  writeAll(tx, taking);
  return settlements;
}

/** The settles of one transaction, while their costs are taken. */
interface Taking {
  readonly log: Log;
  readonly states: States;
  readonly nowMs: number;
  readonly charges: Charge[];
  /** Of the charges, those of jobs that run on. */
  jobs: { readonly usage: UsageRecord; readonly capIds: readonly string[] }[] | undefined;
}

/** `before`: what an earlier settle of the request took. */
function settleOne(taking: Taking, { request, held }: Settle, before: Taken | undefined) {
  const { log, states, nowMs } = taking;
  const { usage } = request;
  const account = states.accounts.get(usage.accountId);
  const { usdNano, diemNano } = before ?? take(log, states, request, held, nowMs);
  const dailyNano =
    account === undefined ? 0n : account.dailyAllocationNano - account.dailySpentNano;
  const after: Balances = {
    usdNano: nano(account?.balanceNano ?? 0n),
    diemNano: nano(dailyNano > 0n ? dailyNano : 0n),
  };
  if (before === undefined) {
    const creditDay = held?.dailyDay ?? account?.dailyDay ?? dayOf(nowMs);
    const balanceAfterNano = after.usdNano;
    const reservedNano = held === undefined ? null : held.usdNano + held.dailyNano;
    taking.charges.push({ usage, usdNano, diemNano, creditDay, balanceAfterNano, reservedNano });
    if (usage.status === 'running')
      (taking.jobs ??= []).push({ usage, capIds: capsOf(request, held) });
  }
  return { fresh: before === undefined, usdNano, diemNano, after };
}

function writeAll(writer: Writer, { states, charges, jobs, nowMs }: Taking): void {
  writeStates(writer, states);
  for (const charge of charges) record(writer, charge, nowMs);
  addToDays(writer, charges, nowMs);
  jobs?.forEach(({ usage, capIds }) => noteJob(writer, usage, capIds));
}

/** All caps that a charge counts in. */
function capsOf(request: SettleRequest, held: HeldAmounts | undefined): readonly string[] {
  const allowanceId = held === undefined ? lateAllowanceId(request) : held.allowanceId;
  return capIdsOf({ allowanceId, budgetIds: (held ?? request).budgetIds });
}

/** Of a request without a hold: a cap has the id of its key; another id is none. */
function lateAllowanceId({ usage, allowanceId = usage.keyId }: SettleRequest): string {
  return allowanceId;
}

async function settledBefore(
  tx: Queryable,
  usage: UsageRecord,
  { charges }: Taking,
): Promise<Taken | undefined> {
  const now = charges.find((charge) => charge.usage.requestId === usage.requestId);
  if (now !== undefined) return now;
  const key = [usage.requestId, dayOf(usage.createdMs)];
  const [row] = await tx.query<{ usd_nano: bigint; diem_nano: bigint }>(FIND_USAGE, key);
  return row && { usdNano: nano(row.usd_nano), diemNano: nano(row.diem_nano) };
}

/** The admission bound rules it out; a command beside the server may bring it about. */
export const ABOVE_HOLD = 'A cost was above its hold; only what was there was taken';

/** Takes the cost: out of the hold, or, when that is gone, out of what is available. */
function take(
  log: Log,
  states: States,
  request: SettleRequest,
  held: HeldAmounts | undefined,
  nowMs: number,
): Taken {
  const { usage, costNano } = request;
  const account = states.accounts.get(usage.accountId);
  if (account === undefined) return { usdNano: ZERO, diemNano: ZERO };
  if (held?.isRow === true) giveBack(states, account, held);
  // An account with a debt spends nothing that is not held.
  const mayTake = held !== undefined || account.debtNano === 0n;
  const free = mayTake ? account.balanceNano - account.heldNano : 0n;
  const diemNano = least(costNano, held?.dailyNano ?? lateDaily(account, nowMs));
  const dueNano = costNano - diemNano;
  // A command beside the server may have taken what a hold in memory set aside.
  const usdNano = least(
    held !== undefined && held.usdNano < dueNano ? held.usdNano : dueNano,
    free,
  );
  if (held !== undefined && usdNano < dueNano) {
    const taken = formatUsd(usdNano + diemNano);
    log.error({ requestId: usage.requestId, cost: formatUsd(costNano), taken }, ABOVE_HOLD);
  }
  account.balanceNano -= usdNano;
  // A hold of yesterday spends yesterday's credit, which today's counters no longer hold.
  if (held === undefined || held.dailyDay === account.dailyDay) account.dailySpentNano += diemNano;
  const allowanceId = held === undefined ? lateAllowanceId(request) : held.allowanceId;
  if (allowanceId !== undefined) {
    const sinceMs = held?.allowanceMs ?? usage.createdMs;
    spend(states.allowances.get(allowanceId), sinceMs, usdNano, diemNano);
  }
  const { budgetIds } = held ?? request;
  if (budgetIds !== undefined) {
    const sinceMs = held?.budgetsMs ?? usage.createdMs;
    for (const id of budgetIds) spend(states.allowances.get(id), sinceMs, usdNano, diemNano);
  }
  return { usdNano, diemNano };
}

/** A charge counts in the period of a cap that its hold belongs to. */
function spend(
  allowance: AllowanceState | undefined,
  sinceMs: number,
  usdNano: bigint,
  diemNano: bigint,
): void {
  if (allowance === undefined || sinceMs < allowance.periodStartMs) return;
  allowance.usdSpentNano += usdNano;
  allowance.diemSpentNano += diemNano;
}

/** Daily credit that is neither spent nor held. */
function lateDaily(account: AccountState, nowMs: number): bigint {
  return account.debtNano > 0n ? 0n : dailyLeft(account, nowMs) - account.dailyHeldNano;
}

/** Takes what a row held off its account and its caps. */
export function giveBack(states: States, account: AccountState, held: HeldAmounts): void {
  account.heldNano -= held.usdNano;
  if (held.dailyDay === account.dailyDay) account.dailyHeldNano -= held.dailyNano;
  unhold(states.allowances.get(held.allowanceId ?? ''), held.allowanceMs, held);
  for (const id of held.budgetIds ?? []) unhold(states.allowances.get(id), held.budgetsMs, held);
}

function unhold(
  allowance: AllowanceState | undefined,
  sinceMs: number,
  { usdNano, dailyNano }: HeldAmounts,
): void {
  if (allowance === undefined || sinceMs < allowance.periodStartMs) return;
  allowance.usdHeldNano -= usdNano;
  allowance.diemHeldNano -= dailyNano;
}

function least(a: bigint, b: bigint): Nano {
  const smaller = a < b ? a : b;
  return (smaller > 0n ? smaller : 0n) as Nano; // both are nano-USD
}

/** What a settle will take, and what it leaves, told before it is made; by default all of the hold. */
export function expectedSettlement(
  { grantedNano, dailyNano, before }: Hold,
  costNano = grantedNano,
): Settlement {
  const diemNano = least(costNano, dailyNano);
  const usdNano = nano(least(costNano, grantedNano) - diemNano);
  const after = {
    usdNano: nano(before.usdNano - usdNano),
    diemNano: nano(before.diemNano - diemNano),
  };
  return { fresh: true, usdNano, diemNano, after };
}
