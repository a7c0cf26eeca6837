/**
 * Holds that are rows: those of queued jobs, which outlive every process, and with a shared
 * database also the leases of processes and the holds that no lease covers. Requests are planned in
 * order of arrival, and each grant is set aside before the next request is planned.
 */
import { assert } from '../../core/assert.ts';
import { type Nano, ZERO } from '../../core/money.ts';
import type { Queryable, Statement } from '../../db/db.ts';
import {
  type CountedCap,
  type HeldAmounts,
  type HoldPlan,
  type HoldRefusal,
  NOTHING_BESIDE,
  NO_CAPS,
  giveBack,
  planHold,
  setAside,
} from '../rules.ts';
import type { HoldRequest, HoldResult } from './records.ts';
import {
  NEW_ACCOUNT,
  type States,
  beginPeriod,
  collected,
  lockStates,
  readStates,
  writeStates,
} from './states.ts';

/** The epoch of holds that survive every process: those of queued jobs. */
export const DURABLE_EPOCH = 'durable';
/** Prefix of the id of every lease; request ids contain no colon. */
export const LEASE_PREFIX = 'lease:';
export const IS_LEASE = `request_id LIKE '${LEASE_PREFIX}%'`;

/**
 * `budget_ids` are the ids of all caps. Rows of earlier versions have the cap of a key in
 * `allowance_id`, with the start of its period.
 */
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

const HOLD_COLUMNS = `request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
  daily_nano, daily_day, created_ms, budget_ids`;

/** Locks holds by their ids; lock their accounts first. */
export async function lockHolds(
  tx: Queryable,
  ids: readonly string[],
): Promise<ReadonlyMap<string, HoldRow>> {
  if (ids.length === 0) return new Map();
  const rows = await tx.query<HoldRow>(
    `SELECT ${HOLD_COLUMNS} FROM ledger_hold WHERE ${OF_IDS} ORDER BY request_id FOR UPDATE`,
    [JSON.stringify(ids)],
  );
  return new Map(rows.map((row) => [row.request_id, row]));
}

const OF_IDS = 'request_id IN (SELECT json_array_elements_text($1::json))';

export function deleteHold(id: string): Statement {
  return { sql: 'DELETE FROM ledger_hold WHERE request_id = $1', parameters: [id] };
}

export function updateLease(id: string, usdNano: bigint, dailyNano: bigint): Statement {
  assert(usdNano >= 0n && dailyNano >= 0n, 'no lease goes below zero');
  return {
    sql: 'UPDATE ledger_hold SET usd_nano = $1, daily_nano = $2 WHERE request_id = $3',
    parameters: [usdNano, dailyNano, id],
  };
}

export function heldInRow(row: HoldRow): HeldAmounts {
  return {
    usdNano: row.usd_nano,
    dailyNano: row.daily_nano,
    dailyDay: Number(row.daily_day),
    capIds: capIdsOf(row),
    capsMs: Math.max(Number(row.created_ms), Number(row.allowance_start_ms)),
    from: 'row',
  };
}

export function heldInLease(row: HoldRow, { id: _id, ...amounts }: LeasePart): HeldAmounts {
  return { ...heldInRow(row), ...amounts, from: 'lease' };
}

export interface LeasePart {
  readonly id: string;
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  readonly reservedNano: bigint;
}

export interface LeftInLease {
  usdNano: bigint;
  dailyNano: bigint;
}

/** The amounts that the settles before leave in a lease; `undefined` if its row is gone. */
export function leftIn(
  leases: ReadonlyMap<string, LeftInLease>,
  rows: ReadonlyMap<string, HoldRow>,
  id: string,
): LeftInLease | undefined {
  const row = rows.get(id);
  return leases.get(id) ?? (row && { usdNano: row.usd_nano, dailyNano: row.daily_nano });
}

export function covers(left: LeftInLease, hold: LeasePart): boolean {
  return left.usdNano >= hold.usdNano && left.dailyNano >= hold.dailyNano;
}

function capIdsOf({
  allowance_id: ofKey,
  budget_ids: text,
}: HoldRow): readonly string[] | undefined {
  const ids = text === null ? [] : (JSON.parse(text) as string[]); // written by this file
  if (ofKey !== null) ids.unshift(ofKey);
  return ids.length === 0 ? undefined : ids;
}

export type PlannedHold = Extract<HoldPlan, { ok: true }> &
  Pick<HeldAmounts, 'dailyDay' | 'capsMs'>;

/** Plans one request and sets its grant aside, so that the next request sees it. */
export function planFor(
  states: States,
  request: HoldRequest,
  nowMs: number,
): PlannedHold | HoldRefusal {
  const account = states.accounts.get(request.accountId);
  if (account === undefined) return { ok: false, reason: 'balance', postedNano: ZERO };
  const caps = capsOf(states, request.capIds, nowMs);
  const planned = planHold(account, request, caps);
  if (!planned.ok) return planned;
  setAside(account, caps, planned);
  return { ...planned, dailyDay: account.dailyDay, capsMs: capsMsOf(nowMs, caps) };
}

/**
 * The caps of a request, all in the period of the same time. Without that, a hold could count in a
 * period of one cap that a process with a clock ahead has begun for another cap only.
 */
export function capsOf(
  { caps }: States,
  capIds: readonly string[] | undefined,
  nowMs: number,
): readonly CountedCap[] {
  if (capIds === undefined) return NO_CAPS;
  const counted = capIds.flatMap((id) => {
    const state = caps.get(id);
    return state === undefined ? [] : { id, state, beside: NOTHING_BESIDE };
  });
  const atMs = capsMsOf(nowMs, counted);
  for (const { state } of counted) beginPeriod(state, atMs);
  return counted;
}

/** Returns a time that is not before a cap period that began by a clock that was, or is, ahead. */
export function capsMsOf(nowMs: number, caps: readonly CountedCap[]): number {
  return caps.reduce((ms, { state }) => Math.max(ms, state.periodStartMs), nowMs);
}

interface NewHold extends Omit<HeldAmounts, 'from'> {
  readonly id: string;
  readonly accountId: string;
  readonly epochId: string;
}

export function insertHold(hold: NewHold): Statement {
  const { id, accountId, capIds, usdNano, dailyNano, dailyDay, capsMs, epochId } = hold;
  const caps = capIds === undefined ? null : JSON.stringify(capIds);
  return {
    sql: `INSERT INTO ledger_hold (request_id, account_id, allowance_start_ms, usd_nano, daily_nano,
      daily_day, epoch_id, created_ms, budget_ids) VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8)`,
    parameters: [id, accountId, usdNano, dailyNano, dailyDay, epochId, capsMs, caps],
  };
}

export async function placeDurable(
  tx: Queryable,
  request: HoldRequest,
  nowMs: number,
): Promise<HoldResult> {
  const { requestId, accountId, capIds } = request;
  const ids = { accountIds: [accountId], capIds: capIds ?? [] };
  const states = await lockStates(tx, nowMs, ids);
  const planned = planFor(states, request, nowMs);
  if (!planned.ok) return planned;
  const { usdNano, dailyNano, spendableNano, before } = planned;
  const hold = insertHold({ ...planned, id: requestId, accountId, capIds, epochId: DURABLE_EPOCH });
  const statements: Statement[] = [hold];
  writeStates(collected(statements), states);
  await tx.run(statements);
  const grantedNano = (dailyNano + usdNano) as Nano; // both are nano-USD
  return {
    ok: true,
    hold: { requestId, accountId, grantedNano, dailyNano, spendableNano, before },
  };
}

/**
 * Returns the cap that rejects a hold even if `creditNano` more is posted; `undefined` if none
 * does. Locks nothing and sets nothing aside.
 */
export async function refusalByCap(
  store: Queryable,
  request: HoldRequest,
  creditNano: bigint,
  nowMs: number,
): Promise<HoldRefusal | undefined> {
  const { accountId, capIds } = request;
  if (capIds === undefined) return undefined;
  const states = await readStates(store, nowMs, { accountIds: [accountId], capIds });
  const account = states.accounts.get(accountId) ?? NEW_ACCOUNT;
  const credited = { ...account, balanceNano: account.balanceNano + creditNano };
  const planned = planHold(credited, request, capsOf(states, capIds, nowMs));
  return planned.ok || planned.reason === 'balance' || planned.reason === 'held'
    ? undefined
    : planned;
}

const RELEASE_BATCH = 500;

/**
 * Releases a batch of the holds that a condition selects; returns how many were found. Rows are
 * locked in the order of all money statements: accounts, caps, holds.
 */
export async function releaseHolds(
  tx: Queryable,
  nowMs: number,
  condition: string,
  parameter: string,
): Promise<number> {
  const found = await tx.query<HoldRow>(
    `SELECT ${HOLD_COLUMNS} FROM ledger_hold WHERE ${condition} ORDER BY request_id LIMIT ${RELEASE_BATCH}`,
    [parameter],
  );
  if (found.length === 0) return 0;
  const ids = {
    accountIds: found.map((row) => row.account_id),
    capIds: found.flatMap((row) => capIdsOf(row) ?? []),
  };
  const [states, rows] = await Promise.all([
    lockStates(tx, nowMs, ids),
    lockHolds(
      tx,
      found.map((row) => row.request_id),
    ),
  ]);
  const statements: Statement[] = [];
  for (const [id, row] of rows) {
    const account = states.accounts.get(row.account_id);
    if (account !== undefined) giveBack(account, states.caps, heldInRow(row));
    statements.push(deleteHold(id));
  }
  writeStates(collected(statements), states);
  await tx.run(statements);
  // Holds that another process released meanwhile are gone as well.
  return found.length;
}
