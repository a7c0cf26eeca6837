/**
 * Grants the amounts that a process may reserve in its memory. A lease is a row of `ledger_hold`
 * that belongs to the process's epoch, for an account or for a set of caps in it, set aside like
 * any hold. Under the lock of the account, the unused part of the old lease is released first, and
 * each request is planned against all free credit (`rules.ts`). Then the process leases the
 * remaining credit divided by twice the number of processes, so that the others can do the same. If
 * that is too little, each request gets a row of its own.
 *
 * Daily credit is spent before USD, so a lease is of one kind: daily credit while any is unspent.
 */
import { assert } from '../../../core/assert.ts';
import { ZERO } from '../../../core/money.ts';
import { type Queryable, type Statement, shareDivisor } from '../../../db/db.ts';
import {
  type AccountState,
  type CountedCap,
  type CreditKind,
  type HoldRefusal,
  dailyLeft,
  freeForAll,
  freeOf,
  giveBack,
  setAside,
} from '../../rules.ts';
import type { HoldRequest } from '../records.ts';
import {
  type HoldRow,
  IS_LEASE,
  type PlannedHold,
  capsMsOf,
  capsOf,
  heldInRow,
  insertHold,
  lockHolds,
  planFor,
  updateLease,
} from '../row-holds.ts';
import { type States, collected, lockStates, writeStates } from '../states.ts';

/** A lease covers at least this many requests of the size of those that need it. */
const LEAST_REQUESTS = 8n;
/** A lease covers at most this many, so that other requests of the account find credit. */
const MOST_REQUESTS = 2_048n;

export interface LeaseWant {
  readonly accountId: string;
  readonly capIds: readonly string[] | undefined;
  readonly lease:
    | { readonly id: string; readonly kind: CreditKind; readonly freeNano: bigint }
    | undefined;
  readonly requests: readonly HoldRequest[];
  /** `false` while other processes need the money, or if they could not recall it. */
  readonly mayLease: boolean;
  readonly mayWait: boolean;
  readonly newId: string;
}

export interface LeaseGrant {
  readonly id: string;
  readonly kind: CreditKind;
  readonly addedNano: bigint;
}

export interface LeaseResult {
  readonly results: readonly (PlannedHold | HoldRefusal)[];
  /** The lease that contains all granted holds; without one each hold has a row of its own. */
  readonly grant: LeaseGrant | undefined;
  readonly isLost: boolean;
  /** Epochs of processes whose leases kept a request from getting its full amount. */
  readonly holders: readonly string[];
}

export interface GrantContext {
  readonly epochId: string;
  /** `false` for a process without an epoch, which leases nothing. */
  readonly hasEpoch: boolean;
  readonly nowMs: number;
}

/** Returns `undefined` if another process has closed the epoch of this one. */
export async function grantLeases(
  tx: Queryable,
  context: GrantContext,
  wants: readonly LeaseWant[],
): Promise<readonly LeaseResult[] | undefined> {
  const { epochId, hasEpoch, nowMs } = context;
  // A hold in a row of its own ends with its request or with this process.
  const mayLease = hasEpoch && wants.some((want) => want.mayLease);
  // Pipelined, in the lock order of all money statements.
  const [processes, states, rows] = await Promise.all([
    mayLease ? lockEpoch(tx, epochId) : 0,
    lockStates(tx, nowMs, {
      accountIds: wants.map(({ accountId }) => accountId),
      capIds: wants.flatMap(({ capIds = [] }) => capIds),
    }),
    lockHolds(
      tx,
      wants.flatMap(({ lease }) => lease?.id ?? []),
    ),
  ]);
  if (processes === undefined) return undefined;
  const granting = { ...context, processes, states, statements: [] as Statement[] };
  const results: LeaseResult[] = [];
  for (const want of wants) {
    results.push(await grantOne(tx, granting, want, rows.get(want.lease?.id ?? '')));
  }
  const { statements } = granting;
  if (statements.length === 0) return results;
  writeStates(collected(statements), states);
  // A crash may undo the hold of a request, but not a lease: the process spends it in memory.
  if (results.some(({ grant }) => grant !== undefined)) {
    statements.push({ sql: 'SET LOCAL synchronous_commit TO DEFAULT', parameters: [] });
  }
  await tx.run(statements);
  return results;
}

/** Returns the number of processes, and locks the own epoch until this transaction ends. */
async function lockEpoch(tx: Queryable, epochId: string): Promise<number | undefined> {
  const [row] = await tx.query<{ processes: bigint }>(
    `SELECT (SELECT count(*) FROM ledger_epoch) AS processes FROM ledger_epoch WHERE id = $1
     FOR KEY SHARE`,
    [epochId],
  );
  return row && Number(row.processes);
}

export async function holdersOf(
  tx: Queryable,
  accountId: string,
  epochId: string,
): Promise<string[]> {
  const rows = await tx.query<{ epoch_id: string }>(
    `SELECT DISTINCT epoch_id FROM ledger_hold WHERE account_id = $1
     AND ${IS_LEASE} AND epoch_id <> $2 AND usd_nano + daily_nano > 0`,
    [accountId, epochId],
  );
  return rows.map((row) => row.epoch_id);
}

interface Granting extends GrantContext {
  readonly processes: number;
  readonly states: States;
  readonly statements: Statement[];
}

async function grantOne(
  tx: Queryable,
  granting: Granting,
  want: LeaseWant,
  row: HoldRow | undefined,
): Promise<LeaseResult> {
  const { states, statements, nowMs, epochId } = granting;
  const { lease, requests, accountId, capIds, newId } = want;
  const account = states.accounts.get(accountId);
  const isLost = lease !== undefined && row === undefined;
  let results = requests.map(() => NOT_PLANNED);
  if (account === undefined) {
    results = requests.map((request) => planFor(states, request, nowMs));
    return { results, grant: undefined, isLost, holders: [] };
  }
  const caps = capsOf(states, capIds, nowMs);
  const freedNano = row === undefined ? 0n : (lease?.freeNano ?? 0n);
  assert(freedNano >= 0n, 'a lease covers its open holds');
  const freed = amountsOf(lease?.kind ?? 'usd', freedNano);
  if (row !== undefined) giveBack(account, states.caps, { ...heldInRow(row), ...freed });
  const undo = [account, ...caps.map(({ state }) => state)].map((state) => [state, { ...state }]);
  results = requests.map((request) => planFor(states, request, nowMs));
  const kind = dailyLeft(account) > 0n ? 'daily' : 'usd';
  const isShort = (result: PlannedHold | HoldRefusal): boolean =>
    // Daily credit leased by other processes must be spent before USD.
    result.ok ? kind === 'daily' && result.usdNano > 0n : result.reason === 'held';
  const holders = results.some(isShort) ? await holdersOf(tx, accountId, epochId) : [];
  if (want.mayWait && holders.length > 0) {
    // The requests are retried after the other processes have returned what they do not use.
    for (const [state, before] of undo) Object.assign(state as object, before);
    results = results.map((result) => (result.ok ? NOT_PLANNED : result));
  }
  const totalNano = leaseOf(granting, want, { kind, account, caps, results });
  const isKept = row !== undefined && lease?.kind === kind && isCurrent(row, account, caps);
  if (row !== undefined && (freedNano > 0n || (isKept && totalNano !== undefined))) {
    const added = isKept && totalNano !== undefined ? amountsOf(kind, totalNano) : NOTHING;
    const usdNano = row.usd_nano - freed.usdNano + added.usdNano;
    const dailyNano = row.daily_nano - freed.dailyNano + added.dailyNano;
    statements.push(updateLease(row.request_id, usdNano, dailyNano));
  }
  const rowOf = { accountId, capIds, epochId, dailyDay: account.dailyDay };
  const capsMs = capsMsOf(nowMs, caps);
  if (totalNano === undefined) {
    for (const [at, { requestId: id }] of requests.entries()) {
      const planned = results[at];
      if (planned?.ok === true) statements.push(insertHold({ ...rowOf, ...planned, id }));
    }
    return { results, grant: undefined, isLost, holders };
  }
  if (isKept) {
    const grant = { id: row.request_id, kind, addedNano: totalNano - freedNano } as const;
    return { results, grant, isLost, holders };
  }
  statements.push(insertHold({ ...rowOf, ...amountsOf(kind, totalNano), id: newId, capsMs }));
  return { results, grant: { id: newId, kind, addedNano: totalNano }, isLost, holders };
}

const NOT_PLANNED: PlannedHold | HoldRefusal = { ok: false, reason: 'held', availableNano: ZERO };
const NOTHING = { usdNano: 0n, dailyNano: 0n };

function amountsOf(kind: CreditKind, amountNano: bigint): typeof NOTHING {
  return kind === 'usd'
    ? { usdNano: amountNano, dailyNano: 0n }
    : { usdNano: 0n, dailyNano: amountNano };
}

interface Leasing {
  readonly kind: CreditKind;
  readonly account: AccountState;
  readonly caps: readonly CountedCap[];
  readonly results: readonly (PlannedHold | HoldRefusal)[];
}

/** Sets a share aside; returns the lease with the requests' holds, or `undefined` without one. */
function leaseOf(
  { processes }: Granting,
  { mayLease, requests }: LeaseWant,
  { kind, account, caps, results }: Leasing,
): bigint | undefined {
  if (!mayLease || processes === 0 || account.debtNano > 0n) return undefined;
  let totalNano = 0n;
  for (const result of results) {
    if (!result.ok || (kind === 'usd' ? result.dailyNano : result.usdNano) > 0n) return undefined;
    totalNano += result.usdNano + result.dailyNano;
  }
  let [largest, floor] = [1n, 0n];
  for (const request of requests) {
    const needed = freeForAll(request);
    if (needed > largest) largest = needed;
    if (request.floorNano > floor) floor = request.floorNano;
  }
  const least = LEAST_REQUESTS * largest;
  const most = floor + MOST_REQUESTS * largest;
  const part = freeOf(kind, account, caps) / BigInt(shareDivisor(processes));
  // The process knows of no credit other than that in the lease.
  if (part < least || part < floor) return undefined;
  const partNano = part < most ? part : most;
  setAside(account, caps, amountsOf(kind, partNano));
  return totalNano + partNano;
}

function isCurrent(row: HoldRow, account: AccountState, caps: readonly CountedCap[]): boolean {
  const { dailyDay, capsMs } = heldInRow(row);
  return dailyDay === account.dailyDay && caps.every(({ state }) => capsMs >= state.periodStartMs);
}
