/**
 * Grants what a process may reserve in its memory: a lease is a row of `ledger_hold` of its epoch,
 * for an account or for the same caps in it, set aside like any hold. Under the lock of the account
 * the unused part of the lease comes back first, each request gets its plan out of all that is free
 * (`hold-plan.ts`), and what then is left over is leased in part: at most one part in two for each
 * process, so that the same can happen elsewhere. Where that is too little, each request gets a row
 * of its own.
 *
 * Daily credit pays before USD, so a lease is of one kind: daily credit while any of it is unspent.
 */
import type { Queryable, Statement } from '../../../db/db.ts';
import { ZERO } from '../../../core/money.ts';
import {
  type AccountState,
  type AllowanceState,
  type BudgetState,
  type HoldRefusal,
  dailyLeft,
  freeOf,
  freeForAll,
} from '../hold-plan.ts';
import {
  INSERT_HOLD,
  type PlannedHold,
  budgetsOf,
  capIdsOf,
  createdMsOf,
  insertHold,
  planFor,
} from '../place-holds.ts';
import type { HoldRequest } from '../records.ts';
import { giveBack } from '../settle.ts';
import { type States, lockStates, saveStates } from '../states.ts';

/** Begins the id of every lease; the id of a request has no colon. */
export const LEASE_PREFIX = 'lease:';
/** A lease serves at least so many requests like those that asked for it. */
const LEAST_REQUESTS = 8n;
/** And no more than these, so that others of the account find theirs. */
const MOST_REQUESTS = 2_048n;

export type LeaseKind = 'usd' | 'daily';

/** What is asked for one account, for requests that count against the same caps of it. */
export interface LeaseWant {
  readonly accountId: string;
  readonly allowanceId: string | undefined;
  readonly budgetIds: readonly string[] | undefined;
  /** The lease that the process has, with what of it no open hold has set aside. */
  readonly lease:
    | { readonly id: string; readonly kind: LeaseKind; readonly freeNano: bigint }
    | undefined;
  readonly requests: readonly HoldRequest[];
  /** `false` while others ask for the money, or when they could not be heard. */
  readonly mayLease: boolean;
  /** Whether what leases of others stand in the way of is asked for again once they are recalled. */
  readonly mayWait: boolean;
  /** Of a new lease. */
  readonly newId: string;
  /** It was last granted without a plan, or was not asked for yet. */
  readonly isPlain: boolean;
}

/** What a lease is from now on. */
export interface LeaseGrant {
  readonly id: string;
  readonly kind: LeaseKind;
  /** What its row has more than before, the holds that come out of it included. */
  readonly addedNano: bigint;
}

export interface LeaseResult {
  /** In the order of the requests. */
  readonly answers: readonly (PlannedHold | HoldRefusal)[];
  /** The lease that all of the granted holds come out of; without one each has a row of its own. */
  readonly grant: LeaseGrant | undefined;
  /** The row of the lease is gone: its process was taken for dead. */
  readonly isLost: boolean;
  /** It needed no plan: USD alone pays for all that each request can use. */
  readonly isPlain: boolean;
  /** Processes whose leases stand in the way of a request that did not get what it should. */
  readonly holders: readonly string[];
}

export interface GrantContext {
  readonly epochId: string;
  /** `false` for who has not begun one, and so leases nothing. */
  readonly hasEpoch: boolean;
  readonly nowMs: number;
}

/** `undefined` when the epoch of the process was closed by another one. */
export async function grantLeases(
  tx: Queryable,
  context: GrantContext,
  wants: readonly LeaseWant[],
): Promise<readonly LeaseResult[] | undefined> {
  const { epochId, hasEpoch, nowMs } = context;
  // What is only a hold of its own ends with its request or with this process.
  const mayLease = hasEpoch && wants.some((want) => want.mayLease);
  const processes = mayLease ? await lockEpoch(tx, epochId) : 0n;
  if (processes === undefined) return undefined;
  const states = await lockStates(
    tx,
    { dialect: 'postgres', nowMs },
    wants.map(({ accountId }) => accountId),
    wants.flatMap((want) => capIdsOf(want)),
  );
  const rows = await lockLeases(
    tx,
    wants.flatMap(({ lease }) => lease?.id ?? []),
  );
  const statements: Statement[] = [];
  const answers: LeaseResult[] = [];
  for (const want of wants) {
    const row = rows.get(want.lease?.id ?? '');
    answers.push(await grantOne(tx, { ...context, processes, states, statements }, want, row));
  }
  if (statements.length > 0) saveStates(statements, states);
  // A crash may undo the hold of a request; what a process spends out of its memory it has for sure.
  if (answers.some(({ grant }) => grant !== undefined)) {
    statements.push({ sql: 'SET LOCAL synchronous_commit TO DEFAULT', parameters: [] });
  }
  await tx.run(statements);
  return answers;
}

interface LeaseRow {
  readonly id: string;
  readonly allowance_id: string | null;
  readonly allowance_start_ms: bigint;
  readonly daily_day: bigint;
  readonly created_ms: bigint;
}

/** How many processes there are; the own epoch stays until this transaction ends. */
async function lockEpoch(tx: Queryable, epochId: string): Promise<bigint | undefined> {
  const [row] = await tx.query<{ processes: bigint }>(
    `SELECT (SELECT count(*) FROM ledger_epoch) AS processes FROM ledger_epoch WHERE id = $1
     FOR KEY SHARE`,
    [epochId],
  );
  return row?.processes;
}

async function lockLeases(
  tx: Queryable,
  ids: readonly string[],
): Promise<ReadonlyMap<string, LeaseRow>> {
  if (ids.length === 0) return new Map();
  const rows = await tx.query<LeaseRow>(
    `SELECT request_id AS id, allowance_id, allowance_start_ms, daily_day, created_ms FROM ledger_hold
     WHERE request_id IN (SELECT json_array_elements_text($1::json)) ORDER BY request_id FOR UPDATE`,
    [JSON.stringify(ids)],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** Epochs of other processes that have something of the account leased. */
export async function holdersOf(
  tx: Queryable,
  accountId: string,
  epochId: string,
): Promise<string[]> {
  const rows = await tx.query<{ epoch_id: string }>(
    `SELECT DISTINCT epoch_id FROM ledger_hold WHERE account_id = $1
     AND request_id LIKE '${LEASE_PREFIX}%' AND epoch_id <> $2 AND usd_nano + daily_nano > 0`,
    [accountId, epochId],
  );
  return rows.map((row) => row.epoch_id);
}

interface Granting extends GrantContext {
  readonly processes: bigint;
  readonly states: States;
  readonly statements: Statement[];
}

async function grantOne(
  tx: Queryable,
  granting: Granting,
  want: LeaseWant,
  row: LeaseRow | undefined,
): Promise<LeaseResult> {
  const { states, statements, nowMs, epochId } = granting;
  const { lease, requests, accountId, allowanceId, budgetIds = [] } = want;
  const account = states.accounts.get(accountId);
  const isLost = lease !== undefined && row === undefined;
  if (account === undefined) {
    const answers = requests.map((request) => planFor(states, request, nowMs));
    return { answers, grant: undefined, isLost, isPlain: false, holders: [] };
  }
  const allowance = states.allowances.get(allowanceId ?? '');
  const budgets = budgetsOf(states, budgetIds);
  const caps = budgets.map(({ state }) => state);
  if (allowance !== undefined) caps.push(allowance);
  const freed = row === undefined ? 0n : (lease?.freeNano ?? 0n);
  if (lease !== undefined && row !== undefined) freeLease(states, account, want, lease, row);
  const before = { ...account };
  const capsBefore = caps.map((cap) => ({ ...cap }));
  let answers = requests.map((request) => planFor(states, request, nowMs));
  const hasDaily = dailyLeft(account, nowMs) > 0n;
  const isShort = (answer: PlannedHold | HoldRefusal): boolean =>
    // Daily credit that others have leased pays before USD does.
    answer.ok ? hasDaily && answer.usdNano > 0n : answer.reason === 'held';
  const holders = answers.some(isShort) ? await holdersOf(tx, accountId, epochId) : [];
  if (want.mayWait && holders.length > 0) {
    // Asked again once the others have given back what they do not use.
    Object.assign(account, before);
    for (const [at, cap] of caps.entries()) Object.assign(cap, capsBefore[at]);
    answers = answers.map((answer) =>
      answer.ok ? { ok: false, reason: 'held', availableNano: ZERO } : answer,
    );
  }
  const isAll = (answer: PlannedHold | HoldRefusal, at: number): boolean =>
    answer.ok && answer.usdNano === requests[at]?.maxNano;
  const isPlain = !hasDaily && answers.every(isAll);
  const leasing = { row, freed, account, allowance, budgets, caps, answers };
  const grant = leaseFor(granting, want, leasing);
  const isKept = grant !== undefined && grant.id === lease?.id;
  if (!isKept && lease !== undefined && freed > 0n) {
    statements.push(addTo({ id: lease.id, kind: lease.kind, addedNano: -freed }));
  }
  if (grant !== undefined) return { answers, grant, isLost, isPlain, holders };
  for (const [index, answer] of answers.entries()) {
    const request = requests[index];
    if (answer.ok && request !== undefined) insertHold(statements, granting, request, answer);
  }
  return { answers, grant, isLost, isPlain, holders };
}

/** Takes back what no open hold has of the lease. */
function freeLease(
  states: States,
  account: AccountState,
  { budgetIds }: LeaseWant,
  { kind, freeNano }: NonNullable<LeaseWant['lease']>,
  row: LeaseRow,
): void {
  giveBack(states, account, {
    usdNano: kind === 'usd' ? freeNano : 0n,
    dailyNano: kind === 'daily' ? freeNano : 0n,
    dailyDay: Number(row.daily_day),
    allowanceId: row.allowance_id ?? undefined,
    allowanceMs: Number(row.allowance_start_ms),
    budgetIds,
    budgetsMs: Number(row.created_ms),
    isRow: true,
  });
}

interface Leasing {
  readonly row: LeaseRow | undefined;
  readonly freed: bigint;
  readonly account: AccountState;
  readonly allowance: AllowanceState | undefined;
  readonly budgets: readonly BudgetState[];
  /** All of these. */
  readonly caps: readonly AllowanceState[];
  readonly answers: readonly (PlannedHold | HoldRefusal)[];
}

/** Adds what makes or changes the lease that all answers come out of, where one is worth it. */
function leaseFor(granting: Granting, want: LeaseWant, leasing: Leasing): LeaseGrant | undefined {
  const { statements, nowMs } = granting;
  const { row, freed, account, caps, answers } = leasing;
  const kind: LeaseKind = dailyLeft(account, nowMs) > 0n ? 'daily' : 'usd';
  const slice = sliceOf(granting, want, kind, leasing);
  if (slice === undefined) return undefined;
  let total = slice;
  for (const answer of answers) {
    if (!answer.ok || (kind === 'usd' ? answer.dailyNano : answer.usdNano) > 0n) return undefined;
    total += answer.usdNano + answer.dailyNano;
  }
  setAside(account, caps, kind, slice);
  const { lease, newId } = want;
  const isKept = row !== undefined && lease?.kind === kind && isCurrent(row, want, leasing);
  const id = isKept ? lease.id : newId;
  const grant = { id, kind, addedNano: isKept ? total - freed : total };
  if (isKept) statements.push(addTo(grant));
  else statements.push(insertLease(granting, want, grant, leasing));
  return grant;
}

/** What is leased beyond what was asked for; `undefined` when it is not worth a lease. */
function sliceOf(
  { processes, nowMs }: Granting,
  { mayLease, requests }: LeaseWant,
  kind: LeaseKind,
  { account, caps }: Leasing,
): bigint | undefined {
  if (!mayLease || processes === 0n || account.debtNano > 0n) return undefined;
  const slice = freeOf(kind, account, caps, nowMs) / (2n * processes);
  const { leastNano, mostNano } = sliceBounds(requests);
  if (slice < leastNano) return undefined;
  return slice < mostNano ? slice : mostNano;
}

/** A lease of less is not worth it, and nobody needs more at once. */
export function sliceBounds(requests: readonly HoldRequest[]): {
  readonly leastNano: bigint;
  readonly mostNano: bigint;
} {
  let [largest, floor] = [1n, 0n];
  for (const request of requests) {
    const { floorNano } = request;
    const needed = freeForAll(request);
    if (needed > largest) largest = needed;
    if (floorNano > floor) floor = floorNano;
  }
  const least = LEAST_REQUESTS * largest;
  // Memory knows of no other credit than that of the lease.
  return { leastNano: least > floor ? least : floor, mostNano: floor + MOST_REQUESTS * largest };
}

function setAside(
  account: AccountState,
  caps: readonly AllowanceState[],
  kind: LeaseKind,
  amountNano: bigint,
): void {
  if (kind === 'usd') account.heldNano += amountNano;
  else account.dailyHeldNano += amountNano;
  for (const cap of caps) {
    if (kind === 'usd') cap.usdHeldNano += amountNano;
    else cap.diemHeldNano += amountNano;
  }
}

/** Of this day, and of the running period of each of its caps. */
function isCurrent(
  row: LeaseRow,
  { allowanceId }: LeaseWant,
  { account, allowance, budgets }: Leasing,
): boolean {
  if (Number(row.daily_day) !== account.dailyDay) return false;
  if (row.allowance_id !== (allowance === undefined ? null : (allowanceId ?? null))) return false;
  if (Number(row.allowance_start_ms) < (allowance?.periodStartMs ?? 0)) return false;
  return budgets.every(({ state }) => Number(row.created_ms) >= state.periodStartMs);
}

function addTo({ id, kind, addedNano }: LeaseGrant): Statement {
  const column = kind === 'usd' ? 'usd_nano' : 'daily_nano';
  return {
    sql: `UPDATE ledger_hold SET ${column} = ${column} + $2 WHERE request_id = $1`,
    parameters: [id, addedNano],
  };
}

function insertLease(
  { epochId, nowMs }: Granting,
  { accountId, allowanceId, budgetIds }: LeaseWant,
  { id, kind, addedNano }: LeaseGrant,
  { account, allowance, budgets }: Leasing,
): Statement {
  const parameters = [
    id,
    accountId,
    allowance === undefined ? null : (allowanceId ?? null),
    allowance?.periodStartMs ?? 0,
    kind === 'usd' ? addedNano : 0n,
    kind === 'daily' ? addedNano : 0n,
    account.dailyDay,
    epochId,
    createdMsOf(nowMs, budgets),
    budgetIds === undefined ? null : JSON.stringify(budgetIds),
  ];
  return { sql: INSERT_HOLD, parameters };
}
