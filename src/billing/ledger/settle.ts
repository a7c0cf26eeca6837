/**
 * Settles requests inside one transaction: locks the rows, takes the costs (`rules.ts`), and
 * writes the records of the charges (`charge-records.ts`).
 *
 * Exactly once: a request has one usage record. A hold that is a row of its own is deleted by its
 * settle; a hold in memory stays open until its settle is on disk (`memory-holds.ts`). If the row
 * or the lease of a request is gone, either the request was settled before, or its process was
 * considered dead. Then the usage record decides which, and a late settle takes at most what is
 * available.
 */
import { assert } from '../../core/assert.ts';
import { type Clock, dayOf } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, ZERO, formatUsd, nano } from '../../core/money.ts';
import type { FileTransaction, Queryable, Statement } from '../../db/db.ts';
import { type HeldAmounts, type Taken, divideCost, giveBack, takeCost } from '../rules.ts';
import { type Charge, recordCharges } from './charge-records.ts';
import { insertJob } from './job-charges.ts';
import type { Balances, Hold, SettleRequest, Settlement, UsageRecord } from './records.ts';
import {
  type LeasePart,
  deleteHold,
  heldInLease,
  heldInRow,
  lockHolds,
  updateLease,
} from './row-holds.ts';
import {
  type KeptStates,
  type States,
  type StatesOf,
  type Writer,
  collected,
  lockStates,
  writeStates,
} from './states.ts';

export interface SettleParts {
  readonly clock: Clock;
  readonly log: Log;
}

export interface RowSettle {
  readonly request: SettleRequest;
  /** `undefined` if the row belongs to this request alone. */
  readonly lease?: LeasePart | undefined;
}

/** A settlement, and whether its hold was found; a late or repeated settle has none. */
export interface RowSettlement {
  readonly settlement: Settlement;
  readonly isFromHold: boolean;
}

const FIND_USAGE =
  'SELECT usd_nano, diem_nano FROM ledger_usage WHERE request_id = $1 AND day = $2';

/**
 * Settles requests whose holds are rows. `isChecked` looks for earlier settles of all of them.
 * Without it, an earlier settle out of an existing lease fails the transaction by a unique
 * violation.
 */
export async function settleRows(
  tx: Queryable,
  parts: SettleParts,
  settles: readonly RowSettle[],
  isChecked: boolean,
): Promise<RowSettlement[]> {
  const nowMs = parts.clock.nowMs();
  const accountIds = settles.map(({ request }) => request.usage.accountId);
  const rowIds = settles.map(({ request, lease }) => lease?.id ?? request.usage.requestId);
  const known = new Set(settles.flatMap(({ request }) => request.capIds ?? NO_IDS));
  // Pipelined, in the lock order of all money statements.
  const [states, rows, befores] = await Promise.all([
    lockStates(tx, nowMs, { accountIds, capIds: [...known] }),
    lockHolds(tx, rowIds),
    Promise.all(isChecked ? settles.map(({ request }) => settledBefore(tx, request.usage)) : []),
  ]);
  const holds = settles.map(({ request, lease }, at) => {
    const row = rows.get(rowIds[at] ?? '');
    if (row?.account_id !== request.usage.accountId) return undefined;
    return lease === undefined ? heldInRow(row) : heldInLease(row, lease);
  });
  const capIds = settles.flatMap(({ request }, at) => capIdsOf(request, holds[at]));
  const unknown = { accountIds: [], capIds: capIds.filter((id) => !known.has(id)) };
  const others = await lockStates(tx, nowMs, unknown);
  const caps = new Map([...states.caps, ...others.caps]);
  const taking = takingOf(parts, { accounts: states.accounts, caps }, nowMs);
  const leases = new Map<string, { usdNano: bigint; dailyNano: bigint }>();
  const statements: Statement[] = [];
  const settlements: RowSettlement[] = [];
  for (const [at, { request, lease }] of settles.entries()) {
    const { usage } = request;
    const hold = holds[at];
    let before = befores[at];
    if (isChecked || hold === undefined) {
      before ??= taking.charges.find((charge) => charge.usage.requestId === usage.requestId);
      if (!isChecked) before ??= await settledBefore(tx, usage);
    }
    const settlement = settleOne(taking, { request, held: hold }, before);
    settlements.push({ settlement, isFromHold: hold !== undefined && settlement.fresh });
    if (hold === undefined) continue;
    if (lease === undefined) {
      const account = states.accounts.get(usage.accountId);
      if (!settlement.fresh && account !== undefined) giveBack(account, caps, hold);
      statements.push(deleteHold(usage.requestId));
    } else if (settlement.fresh) {
      const row = rows.get(lease.id);
      const left = leases.get(lease.id) ?? {
        usdNano: row?.usd_nano ?? 0n,
        dailyNano: row?.daily_nano ?? 0n,
      };
      left.usdNano -= settlement.usdNano;
      left.dailyNano -= settlement.diemNano;
      leases.set(lease.id, left);
    }
  }
  for (const [id, { usdNano, dailyNano }] of leases) {
    statements.push(updateLease(id, usdNano, dailyNano));
  }
  writeAll(collected(statements), taking);
  await tx.run(statements);
  return settlements;
}

/** Settles one request whose hold is in memory, in a transaction with other work. */
export async function settleOneHeld(
  tx: Queryable,
  parts: SettleParts,
  request: SettleRequest,
  held: HeldAmounts,
): Promise<Settlement> {
  const nowMs = parts.clock.nowMs();
  const ids = { accountIds: [request.usage.accountId], capIds: capIdsOf(request, held) };
  const taking = takingOf(parts, await lockStates(tx, nowMs, ids), nowMs);
  const settlement = settleOne(taking, { request, held }, undefined);
  const statements: Statement[] = [];
  writeAll(collected(statements), taking);
  await tx.run(statements);
  return settlement;
}

export interface HeldSettle extends StatesOf {
  readonly request: SettleRequest;
  readonly held: HeldAmounts;
}

/** Settles requests whose holds are in memory, synchronously inside a SQLite transaction. */
export function settleHeld(
  tx: FileTransaction,
  parts: SettleParts,
  kept: KeptStates,
  settles: readonly HeldSettle[],
): Settlement[] {
  const nowMs = parts.clock.nowMs();
  const taking = takingOf(parts, kept.ofSettles(tx, nowMs, settles), nowMs);
  const settlements: Settlement[] = [];
  for (const settle of settles) settlements.push(settleOne(taking, settle, undefined));
  writeAll(tx, taking);
  return settlements;
}

interface Settle {
  readonly request: SettleRequest;
  readonly held: HeldAmounts | undefined;
}

interface Taking {
  readonly log: Log;
  readonly states: States;
  readonly nowMs: number;
  readonly charges: Charge[];
  jobs: { readonly usage: UsageRecord; readonly capIds: readonly string[] }[] | undefined;
}

function takingOf({ log }: SettleParts, states: States, nowMs: number): Taking {
  return { log, states, nowMs, charges: [], jobs: undefined };
}

function settleOne(taking: Taking, { request, held }: Settle, before: Taken | undefined) {
  const { states, nowMs } = taking;
  const { usage } = request;
  const account = states.accounts.get(usage.accountId);
  const { usdNano, diemNano } = before ?? take(taking, request, held);
  const dailyNano =
    account === undefined ? 0n : account.dailyAllocationNano - account.dailySpentNano;
  const after: Balances = {
    usdNano: nano(account?.balanceNano ?? 0n),
    diemNano: nano(dailyNano > 0n ? dailyNano : 0n),
  };
  if (before === undefined) {
    const creditDay = held?.dailyDay ?? account?.dailyDay ?? dayOf(nowMs);
    const balanceAfterNano = after.usdNano;
    const reservedNano =
      held === undefined ? null : (held.reservedNano ?? held.usdNano + held.dailyNano);
    taking.charges.push({ usage, usdNano, diemNano, creditDay, balanceAfterNano, reservedNano });
    if (usage.status === 'running')
      (taking.jobs ??= []).push({ usage, capIds: capIdsOf(request, held) });
  }
  return { fresh: before === undefined, usdNano, diemNano, after };
}

function take(
  { log, states, nowMs }: Taking,
  request: SettleRequest,
  held: HeldAmounts | undefined,
): Taken {
  const { usage, costNano } = request;
  const account = states.accounts.get(usage.accountId);
  if (account === undefined) return { usdNano: ZERO, diemNano: ZERO };
  const cost = { costNano, capIds: capIdsOf(request, held), createdMs: usage.createdMs };
  const taken = takeCost(account, states.caps, cost, held, nowMs);
  const takenNano = taken.usdNano + taken.diemNano;
  assert(takenNano <= costNano, 'a charge is never above its cost');
  if (held !== undefined && takenNano < costNano) {
    const fields = { requestId: usage.requestId, cost: formatUsd(costNano) };
    log.error({ ...fields, taken: formatUsd(takenNano) }, ABOVE_HOLD);
  }
  return taken;
}

/** The admission bound prevents this, except when a command runs beside the server. */
export const ABOVE_HOLD = 'A cost was above its hold; only what was there was taken';

function writeAll(writer: Writer, { states, charges, jobs, nowMs }: Taking): void {
  writeStates(writer, states);
  recordCharges(writer, charges, nowMs);
  jobs?.forEach(({ usage, capIds }) => insertJob(writer, usage, capIds));
}

const NO_IDS: readonly string[] = [];

/** Returns all caps of a charge; without a hold at least that of its key. */
function capIdsOf({ capIds, usage }: SettleRequest, held: HeldAmounts | undefined) {
  return held === undefined ? (capIds ?? [usage.keyId]) : (held.capIds ?? NO_IDS);
}

async function settledBefore(tx: Queryable, usage: UsageRecord): Promise<Taken | undefined> {
  const key = [usage.requestId, dayOf(usage.createdMs)];
  const [row] = await tx.query<{ usd_nano: bigint; diem_nano: bigint }>(FIND_USAGE, key);
  return row && { usdNano: nano(row.usd_nano), diemNano: nano(row.diem_nano) };
}

/** Returns the settlement to expect of a hold; by default for the full granted amount. */
export function expectedSettlement(hold: Hold, costNano: Nano = hold.grantedNano): Settlement {
  const { usdNano, diemNano } = divideCost(costNano, hold);
  const after = {
    usdNano: nano(hold.before.usdNano - usdNano),
    diemNano: nano(hold.before.diemNano - diemNano),
  };
  return { fresh: true, usdNano, diemNano, after };
}

/** Returns the result of the first settle, marked as not fresh. */
export async function repeated(settled: Promise<Settlement>): Promise<Settlement> {
  return { ...(await settled), fresh: false };
}
