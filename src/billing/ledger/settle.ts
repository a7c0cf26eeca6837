/**
 * Settles requests inside one transaction: locks the rows, takes the costs (`rules.ts`), and
 * writes the records of the charges: postings, receipts, and sums (`charge-sums.ts`).
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
import {
  type HeldAmounts,
  type Taken,
  dailyLeft,
  divideCost,
  giveBack,
  takeCost,
} from '../rules.ts';
import { type ChargedJob, insertJob } from './job-charges.ts';
import type { Balances, Hold, SettleRequest, Settlement, UsageRecord } from './records.ts';
import {
  type LeasePart,
  type LeftInLease,
  covers,
  deleteHold,
  heldInLease,
  heldInRow,
  leftIn,
  lockHolds,
  updateLease,
} from './row-holds.ts';
import {
  type HeldSettle,
  type KeptStates,
  type States,
  type Writer,
  areExceeded,
  collected,
  lockStates,
  writeStates,
  writeTransfer,
} from './states.ts';
import { addToDays, addToTags } from './charge-sums.ts';

export interface SettleParts {
  readonly clock: Clock;
  readonly log: Log;
}

export interface RowSettle {
  readonly request: SettleRequest;
  /** Caps in which the charge counts if its hold is gone; default: that of its key. */
  readonly capIds?: readonly string[] | undefined;
  /** `undefined` if the row belongs to this request alone. */
  readonly lease?: LeasePart | undefined;
}

/** A settlement, and whether its hold was found; a late or repeated settle has none. */
export interface RowSettlement {
  readonly settlement: Settlement;
  readonly isFromHold: boolean;
  /** A debt, or a lowered limit of a cap, leaves less than the leases contain. */
  readonly isExceeded: boolean;
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
  const known = new Set(settles.flatMap(({ capIds = NO_IDS }) => capIds));
  // Pipelined, in the lock order of all money statements.
  const [states, rows, befores] = await Promise.all([
    lockStates(tx, nowMs, { accountIds, capIds: [...known] }),
    lockHolds(tx, rowIds),
    Promise.all(isChecked ? settles.map(({ request }) => settledBefore(tx, request.usage)) : []),
  ]);
  const found = settles.map(({ request, capIds, lease }, at) => {
    const { accountId, keyId } = request.usage;
    const row = rows.get(rowIds[at] ?? '');
    if (row?.account_id !== accountId) {
      return { request, lease, held: undefined, capIds: capIds ?? [keyId] };
    }
    const held = lease === undefined ? heldInRow(row) : heldInLease(row, lease);
    return { request, lease, held, capIds: held.capIds ?? NO_IDS };
  });
  const unknown = found.flatMap(({ capIds }) => capIds.filter((id) => !known.has(id)));
  const others = await lockStates(tx, nowMs, { accountIds: [], capIds: unknown });
  const { accounts } = states;
  const caps = new Map([...states.caps, ...others.caps]);
  const taking = takingOf(parts, { accounts, caps }, nowMs);
  const leases = new Map<string, LeftInLease>();
  const statements: Statement[] = [];
  const settlements: RowSettlement[] = [];
  for (const [at, settle] of found.entries()) {
    const { lease, held: hold, capIds } = settle;
    const { usage } = settle.request;
    const left = lease && leftIn(leases, rows, lease.id);
    // A lease covers each of its open holds; a hold that it does not cover was settled before.
    const isCovered = lease === undefined || left === undefined || covers(left, lease);
    let before = befores[at];
    if (isChecked || hold === undefined || !isCovered) {
      before ??= taking.charges.find((charge) => charge.usage.requestId === usage.requestId);
      if (!isChecked) before ??= await settledBefore(tx, usage);
    }
    const settlement = settleOne(taking, settle, before);
    const isFromHold = hold !== undefined && settlement.fresh;
    const isExceeded = areExceeded(taking.states, usage.accountId, capIds);
    settlements.push({ settlement, isFromHold, isExceeded });
    if (hold === undefined) continue;
    if (lease === undefined) {
      const account = accounts.get(usage.accountId);
      if (!settlement.fresh && account !== undefined) giveBack(account, caps, hold);
      statements.push(deleteHold(usage.requestId));
    } else if (settlement.fresh && left !== undefined) {
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

export async function settleOneHeld(
  tx: Queryable,
  parts: SettleParts,
  request: SettleRequest,
  held: HeldAmounts,
): Promise<Settlement> {
  const nowMs = parts.clock.nowMs();
  const ids = { accountIds: [request.usage.accountId], capIds: held.capIds ?? NO_IDS };
  const taking = takingOf(parts, await lockStates(tx, nowMs, ids), nowMs);
  const settlement = settleOne(taking, { request, held }, undefined);
  const statements: Statement[] = [];
  writeAll(collected(statements), taking);
  await tx.run(statements);
  return settlement;
}

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

interface Charge extends Taken {
  readonly usage: UsageRecord;
  readonly creditDay: number;
  readonly balanceAfterNano: bigint;
  /** Amounts that the hold set aside; `null` if the hold was gone. */
  readonly reservedNano: bigint | null;
}

interface Settle {
  readonly request: SettleRequest;
  readonly held: HeldAmounts | undefined;
  /** Caps in which the charge counts; default: those of the hold. */
  readonly capIds?: readonly string[];
}

interface Taking {
  readonly log: Log;
  readonly states: States;
  readonly nowMs: number;
  readonly charges: Charge[];
  jobs: (Pick<ChargedJob, 'capIds' | 'capsMs'> & { readonly usage: UsageRecord })[] | undefined;
}

function takingOf({ log }: SettleParts, states: States, nowMs: number): Taking {
  return { log, states, nowMs, charges: [], jobs: undefined };
}

const NOTHING: Taken = { usdNano: ZERO, diemNano: ZERO };

function settleOne(
  taking: Taking,
  { request, held, capIds = held?.capIds ?? NO_IDS }: Settle,
  before: Taken | undefined,
) {
  const { states, nowMs } = taking;
  const { usage, costNano } = request;
  const account = states.accounts.get(usage.accountId);
  let taken = before ?? NOTHING;
  if (before === undefined && account !== undefined) {
    const cost = { costNano, capIds, createdMs: usage.createdMs };
    taken = takeCost(account, states.caps, cost, held);
    const takenNano = taken.usdNano + taken.diemNano;
    assert(takenNano <= costNano, 'a charge is never above its cost');
    if (held !== undefined && takenNano < costNano) {
      const fields = { requestId: usage.requestId, cost: formatUsd(costNano) };
      taking.log.error({ ...fields, taken: formatUsd(takenNano) }, ABOVE_HOLD);
    }
  }
  const { usdNano, diemNano } = taken;
  const after: Balances = {
    usdNano: nano(account?.balanceNano ?? 0n),
    diemNano: nano(account === undefined ? 0n : dailyLeft(account)),
  };
  if (before === undefined) {
    const creditDay = held?.dailyDay ?? account?.dailyDay ?? dayOf(nowMs);
    const balanceAfterNano = after.usdNano;
    const reservedNano =
      held === undefined ? null : (held.reservedNano ?? held.usdNano + held.dailyNano);
    taking.charges.push({ usage, usdNano, diemNano, creditDay, balanceAfterNano, reservedNano });
    if (usage.status === 'running') {
      const capsMs = held?.capsMs ?? usage.createdMs;
      (taking.jobs ??= []).push({ usage, capIds, capsMs });
    }
  }
  return { fresh: before === undefined, usdNano, diemNano, after };
}

/** The admission bound prevents this, except when a command runs beside the server. */
export const ABOVE_HOLD = 'A cost was above its hold; only what was there was taken';

const NO_IDS: readonly string[] = [];

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

export async function repeated(settled: Promise<Settlement>): Promise<Settlement> {
  return { ...(await settled), fresh: false };
}

const INSERT_USAGE = `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind,
  model_id, replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
  reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms,
  status, extras, metadata, reserved_nano, cost_nano, cost_lines) VALUES ($1, $2, $3, $4, $5, $6, $7,
  $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, CAST($20 AS BIGINT), $21, $22, $23,
  CAST($24 AS BIGINT), CAST($25 AS BIGINT), $26)`;

/** Columns with the same value for every charge are literals. */
const INSERT_CHARGE = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
  credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
  VALUES ($1, 0, $2, $3, $3, 'house:revenue', $4, $5, 'CHARGE', $1, $6, NULL, $7)`;

/** Statements of one kind follow each other, so that PostgreSQL can run them as one. */
function writeAll(writer: Writer, { states, charges, jobs, nowMs }: Taking): void {
  writeStates(writer, states);
  const today = dayOf(nowMs);
  for (const { usage, usdNano, balanceAfterNano } of charges) {
    if (usdNano === 0n) continue;
    const { requestId, accountId, modelId } = usage;
    const row = [requestId, today, accountId, usdNano, balanceAfterNano, modelId, nowMs];
    writer.execute(INSERT_CHARGE, row);
  }
  for (const charge of charges) if (charge.diemNano > 0n) postDaily(writer, charge, nowMs);
  let hasTags = false;
  for (const charge of charges) {
    insertUsage(writer, charge);
    if (charge.usage.metadata !== undefined) hasTags = true;
  }
  addToDays(writer, charges, nowMs);
  if (hasTags) addToTags(writer, charges);
  jobs?.forEach(({ usage, ...job }) => insertJob(writer, usage, job));
}

function postDaily(writer: Writer, charge: Charge, nowMs: number): void {
  const { requestId, accountId, modelId } = charge.usage;
  writeTransfer(writer, {
    id: requestId,
    part: 1,
    day: charge.creditDay,
    accountId,
    debitAccount: 'house:daily-credit',
    creditAccount: 'house:revenue',
    amountNano: charge.diemNano,
    balanceAfterNano: charge.balanceAfterNano,
    kind: 'CHARGE',
    requestId,
    modelId,
    nowMs,
  });
}

function insertUsage(writer: Writer, { usage, usdNano, diemNano, reservedNano }: Charge): void {
  const { tokens, firstTokenMs, extras, metadata, supplier } = usage;
  writer.execute(INSERT_USAGE, [
    usage.requestId,
    dayOf(usage.createdMs),
    usage.createdMs,
    usage.accountId,
    usage.keyId,
    usage.kind,
    usage.modelId,
    usage.replica ?? null,
    usage.attempts,
    tokens.prompt,
    tokens.completion,
    tokens.cached,
    tokens.cacheWrite,
    tokens.reasoning,
    usage.countedBy,
    usage.priceVersion,
    usdNano,
    diemNano,
    Math.round(usage.latencyMs),
    firstTokenMs === undefined ? null : Math.round(firstTokenMs),
    usage.status,
    extras === undefined ? null : JSON.stringify(extras),
    metadata === undefined ? null : JSON.stringify(metadata),
    reservedNano,
    supplier === undefined ? null : supplier.nano,
    supplier === undefined ? null : JSON.stringify(supplier.lines),
  ]);
}
