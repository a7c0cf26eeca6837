/**
 * Grants what a process may reserve in its memory. A lease is a row of `ledger_hold` of its epoch, for an
 * account or for the same caps in it, set aside like any hold. Under the lock of the account the unused
 * part of the lease comes back first, each request gets its plan out of all that is free
 * (`rules/plan.ts`), and the process leases a part of what is then left: at most one part in two for
 * each process, so that the others can do the same. Where that is too little, each request gets a row of
 * its own.
 *
 * Daily credit pays before USD, so a lease is of one kind: daily credit while any of it is unspent.
 */
import { ZERO } from '../../../core/money.ts';
import type { Queryable, Statement } from '../../../db/db.ts';
import {
  type AccountState,
  type CountedCap,
  type CreditKind,
  type HoldRefusal,
  dailyLeft,
  freeForAll,
  freeOf,
} from '../../rules/plan.ts';
import { giveBack, setAside } from '../../rules/take.ts';
import type { HoldRequest } from '../records.ts';
import {
  type HoldRow,
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

/** Begins the id of every lease; the id of a request has no colon. */
export const LEASE_PREFIX = 'lease:';
/** A lease serves at least so many requests like those that need it. */
const LEAST_REQUESTS = 8n;
/** And at most so many, so that other requests of the account find credit. */
const MOST_REQUESTS = 2_048n;

/** Requests of one account that count against the same caps. */
export interface LeaseWant {
  readonly accountId: string;
  readonly capIds: readonly string[] | undefined;
  /** The lease that the process has, and what of it no open hold has set aside. */
  readonly lease:
    | { readonly id: string; readonly kind: CreditKind; readonly freeNano: bigint }
    | undefined;
  readonly requests: readonly HoldRequest[];
  /** `false` while other processes need the money, or if they could not recall it. */
  readonly mayLease: boolean;
  /** Whether the request comes again once other processes have given back their leases. */
  readonly mayWait: boolean;
  /** Of a new lease. */
  readonly newId: string;
}

/** What a lease is from now on. */
export interface LeaseGrant {
  readonly id: string;
  readonly kind: CreditKind;
  /** What its row has more than before, the holds that come out of it included. */
  readonly addedNano: bigint;
}

export interface LeaseResult {
  /** In the order of the requests. */
  readonly results: readonly (PlannedHold | HoldRefusal)[];
  /** The lease that all of the granted holds come out of; without one each has a row of its own. */
  readonly grant: LeaseGrant | undefined;
  /** The row of the lease is gone: its process was taken for dead. */
  readonly isLost: boolean;
  /** Processes whose leases stand in the way of a request that did not get what it should. */
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
  // Sent in the order in which every statement of money locks rows, without a wait in between.
  const [processes, states, rows] = await Promise.all([
    mayLease ? lockEpoch(tx, epochId) : 0n,
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

/** How many processes there are; the own epoch stays until this transaction ends. */
async function lockEpoch(tx: Queryable, epochId: string): Promise<bigint | undefined> {
  const [row] = await tx.query<{ processes: bigint }>(
    `SELECT (SELECT count(*) FROM ledger_epoch) AS processes FROM ledger_epoch WHERE id = $1
     FOR KEY SHARE`,
    [epochId],
  );
  return row?.processes;
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
  const caps = capsOf(states, capIds);
  const freedNano = row === undefined ? 0n : (lease?.freeNano ?? 0n);
  const freed = amountsOf(lease?.kind ?? 'usd', freedNano);
  if (row !== undefined) giveBack(account, states.caps, { ...heldInRow(row), ...freed });
  const undo = [account, ...caps.map(({ state }) => state)].map((state) => [state, { ...state }]);
  results = requests.map((request) => planFor(states, request, nowMs));
  const kind = dailyLeft(account, nowMs) > 0n ? 'daily' : 'usd';
  const isShort = (result: PlannedHold | HoldRefusal): boolean =>
    // Daily credit that other processes have leased pays before USD does.
    result.ok ? kind === 'daily' && result.usdNano > 0n : result.reason === 'held';
  const holders = results.some(isShort) ? await holdersOf(tx, accountId, epochId) : [];
  if (want.mayWait && holders.length > 0) {
    // The requests come again once the others have given back what they do not use.
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

/** Sets a part aside; what a lease has with the holds of the requests, or `undefined` without a lease. */
function leaseOf(
  { processes, nowMs }: Granting,
  { mayLease, requests }: LeaseWant,
  { kind, account, caps, results }: Leasing,
): bigint | undefined {
  if (!mayLease || processes === 0n || account.debtNano > 0n) return undefined;
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
  const part = freeOf(kind, account, caps, nowMs) / (2n * processes);
  // Memory knows of no other credit than that of the lease.
  if (part < least || part < floor) return undefined;
  const partNano = part < most ? part : most;
  setAside(account, caps, amountsOf(kind, partNano));
  return totalNano + partNano;
}

/** Whether a lease is of this day, and of the running period of each of its caps. */
function isCurrent(row: HoldRow, account: AccountState, caps: readonly CountedCap[]): boolean {
  const { dailyDay, capsMs } = heldInRow(row);
  return dailyDay === account.dailyDay && caps.every(({ state }) => capsMs >= state.periodStartMs);
}
