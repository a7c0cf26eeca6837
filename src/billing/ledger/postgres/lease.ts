/**
 * The in-memory data of leases: the lease of an account or of a set of caps in it, its open holds,
 * and the requests that need more. Plain records and pure functions.
 */
import { dayOf } from '../../../core/clock.ts';
import type { Placed } from '../../../core/in-flight.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import type { Part } from '../../../db/db.ts';
import { type CreditKind, freeForAll } from '../../rules.ts';
import type { Balances, Hold, HoldResult, HoldRequest, Settlement } from '../records.ts';
import type { PlannedHold } from '../row-holds.ts';
import type { LeaseGrant } from './grants.ts';

export interface Lease extends Placed {
  readonly id: string;
  readonly kind: CreditKind;
  /** The day of its daily credit and of the periods of its caps. */
  readonly day: number;
  readonly losses: number;
  /** The amount in its row, and the part of it that open holds use. */
  nano: bigint;
  heldNano: bigint;
  open: number;
  /** The posted balances of the account, and what a request could spend, as last reported. */
  posted: Balances;
  spendableNano: Nano;
  /** Whether a cap, rather than the balance, limits what a request can spend. */
  readonly isCapped: boolean;
  /** No more holds are taken from it; its rest is released when its last hold has ended. */
  isOver: boolean;
}

export interface LeasedHold extends Hold, Placed {
  /** `undefined` for a hold in a row of its own, whose id is the request id. */
  readonly lease: Lease | undefined;
  readonly usdNano: bigint;
  readonly capIds: readonly string[] | undefined;
  isOpen: boolean;
  /** The pending or finished settle; `undefined` again after it failed. */
  settled: Promise<Settlement> | undefined;
}

/** Requests of an account that count against the same caps share one lease. */
export interface AccountPart extends Part<AccountPart, HoldRequest, HoldResult> {
  readonly key: string;
  readonly capIds: readonly string[] | undefined;
  lease: Lease | undefined;
  wasUsed: boolean;
  /** The first request of an account gets a row of its own; a returning one gets a lease. */
  hasRequested: boolean;
}

export function newLease(
  { id, kind, addedNano }: LeaseGrant,
  isCapped: boolean,
  nowMs: number,
  losses: number,
): Lease {
  return {
    isCapped,
    id,
    kind,
    day: dayOf(nowMs),
    losses,
    nano: addedNano,
    heldNano: 0n,
    open: 0,
    posted: { usdNano: ZERO, diemNano: ZERO },
    spendableNano: ZERO,
    isOver: false,
    place: -1,
  };
}

/** Ids of accounts and of caps differ, and contain no comma. */
export function partKeyOf({ accountId, capIds }: HoldRequest): string {
  return capIds === undefined ? accountId : capIds.join();
}

/** Reserves the maximum of a request if the lease has capacity for it, including the share rule. */
export function reserve(lease: Lease, request: HoldRequest): LeasedHold | undefined {
  const { requestId, accountId, capIds, floorNano, maxNano } = request;
  // The leased amount is posted; the process knows of no further balance.
  if (lease.nano - lease.heldNano < freeForAll(request) || lease.nano < floorNano) return undefined;
  const isDaily = lease.kind === 'daily';
  lease.heldNano += maxNano;
  lease.open += 1;
  return {
    requestId,
    accountId,
    grantedNano: maxNano,
    dailyNano: isDaily ? maxNano : ZERO,
    usdNano: isDaily ? 0n : maxNano,
    spendableNano: lease.spendableNano,
    before: lease.posted,
    lease,
    capIds,
    isOpen: true,
    settled: undefined,
    place: -1,
  };
}

export function grantedHold(
  lease: Lease | undefined,
  { requestId, accountId, capIds }: HoldRequest,
  { usdNano, dailyNano, spendableNano, before }: PlannedHold,
): LeasedHold {
  const grantedNano = (usdNano + dailyNano) as Nano; // both are nano-USD
  if (lease !== undefined) {
    lease.heldNano += grantedNano;
    lease.open += 1;
    lease.posted = before;
    lease.spendableNano = spendableNano;
  }
  return {
    requestId,
    accountId,
    grantedNano,
    dailyNano,
    usdNano,
    spendableNano,
    before,
    lease,
    capIds,
    isOpen: true,
    settled: undefined,
    place: -1,
  };
}

export function hasUnused({ lease }: AccountPart): boolean {
  return lease !== undefined && lease.nano > lease.heldNano;
}
