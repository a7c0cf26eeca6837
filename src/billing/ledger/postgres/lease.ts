/**
 * What a process knows of its leases: the lease of an account, or of what counts against the same caps
 * in it, its open holds, and the requests that need more. Plain records and what is worked out of them.
 */
import { dayOf } from '../../../core/clock.ts';
import type { Due, DueGroup } from '../../../core/due-queue.ts';
import type { Placed } from '../../../core/in-flight.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import { type CreditKind, freeForAll } from '../../rules/plan.ts';
import type { Balances, Hold, HoldResult, HoldRequest, Settlement } from '../records.ts';
import type { PlannedHold } from '../row-holds.ts';
import type { LeaseGrant } from './grants.ts';

/** What this process has of an account for requests that count against the same caps. */
export interface Lease extends Placed {
  readonly id: string;
  readonly kind: CreditKind;
  /** Credit of another day is another credit, and a cap may have another period. */
  readonly day: number;
  /** How often the database had been lost when it was granted. */
  readonly losses: number;
  /** What its row has, and what of it open holds have set aside. */
  nano: bigint;
  heldNano: bigint;
  open: number;
  /** What was posted on the account, and what a request could spend, as last reported. */
  posted: Balances;
  spendableNano: Nano;
  /** A cap bounds what a request can spend; else what is posted does. */
  readonly isCapped: boolean;
  /** Nothing more comes out of it: what is left is given back when its last hold has ended. */
  isOver: boolean;
}

export interface LeasedHold extends Hold, Placed {
  /** Without one the hold is a row of its own, by the id of the request. */
  readonly lease: Lease | undefined;
  readonly usdNano: bigint;
  readonly capIds: readonly string[] | undefined;
  isOpen: boolean;
  /** The settle, once it was requested; `undefined` again when it failed. */
  settled: Promise<Settlement> | undefined;
}

export interface Asking {
  readonly request: HoldRequest;
  readonly resolve: (answer: HoldResult) => void;
  readonly reject: (error: unknown) => void;
  /** What others had leased was called back for it. */
  isRecalled: boolean;
}

/** Requests of an account that count against the same caps come out of one lease. */
export interface Slot extends Due {
  readonly key: string;
  readonly account: LeasedAccount;
  readonly capIds: readonly string[] | undefined;
  lease: Lease | undefined;
  /** Requests that wait to be asked for. */
  asking: Asking[];
  wasUsed: boolean;
  /** Who asks once has a hold of its own; who comes back gets a lease. */
  hasAsked: boolean;
}

/** While the database is asked for it (`isBusy`) its leases stand still. */
export interface LeasedAccount extends DueGroup {
  readonly id: string;
  readonly slots: Slot[];
  contestedUntilMs: number;
  /** Told when nothing of it is due or asked for. */
  resting: (() => void)[];
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

/** Ids of accounts and of caps are different ids, and none has a comma. */
export function slotKeyOf({ accountId, capIds }: HoldRequest): string {
  return capIds === undefined ? accountId : capIds.join();
}

export function newSlot(account: LeasedAccount, request: HoldRequest): Slot {
  const slot: Slot = {
    key: slotKeyOf(request),
    account,
    capIds: request.capIds,
    lease: undefined,
    asking: [],
    isDue: false,
    wasUsed: true,
    hasAsked: false,
  };
  account.slots.push(slot);
  return slot;
}

/** Holds all that a request can use, where the lease has room for it and all its shares. */
export function reserve(lease: Lease, request: HoldRequest): LeasedHold | undefined {
  const { requestId, accountId, capIds, floorNano, maxNano } = request;
  // What is leased is posted; whether more is, memory does not know.
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

/** A hold that the database has granted: out of the lease, or a row of its own. */
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

/** Whether there is something to give back. */
export function hasFree({ lease }: Slot): boolean {
  return lease !== undefined && lease.nano > lease.heldNano;
}

/** Tells who waits for it that nothing of the account is due or asked for. */
export function rest(account: LeasedAccount): void {
  if (account.isBusy || account.slots.some((slot) => slot.isDue)) return;
  for (const resolve of account.resting.splice(0)) resolve();
}
