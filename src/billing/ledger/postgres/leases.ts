/**
 * The leases of this process and the holds that come out of them: one lease per account, and one
 * for each set of caps that its requests count against. Unused leases are released.
 *
 * After the connection or a reply of the database was lost, the in-memory amounts of the affected
 * leases may be wrong: no more holds are taken from them, and the rest is released according to
 * their rows.
 */
import { assert } from '../../../core/assert.ts';
import { type Clock, dayOf } from '../../../core/clock.ts';
import type { Ids } from '../../../core/ids.ts';
import { InFlight, type Placed } from '../../../core/in-flight.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import {
  LeasedParts,
  type Part,
  type PartCall,
  type PartResult,
  type SharedStore,
  type Statement,
  StoreUnavailable,
  type Waiting,
} from '../../../db/db.ts';
import { type CreditKind, type OpenAmounts, freeForAll } from '../../rules.ts';
import type {
  Balances,
  Hold,
  HoldFigures,
  HoldRequest,
  HoldResult,
  Settlement,
} from '../records.ts';
import { LEASE_PREFIX, type PlannedHold } from '../row-holds.ts';
import type { Epoch } from './epochs.ts';
import {
  type LeaseGrant,
  type LeaseResult,
  type LeaseWant,
  grantLeases,
  holdersOf,
} from './grants.ts';
/** Longest wait of a debit for the leases of other processes, and how often it is cut into polls. */
const RETURN_MS = 100;
const POLLS = 4;
/** Notification that an account or its caps have changed: their leases are returned. */
const CHANGED = 'changed';

interface Lease extends Placed {
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
interface AccountPart extends Part<AccountPart, HoldRequest, HoldResult> {
  readonly key: string;
  readonly capIds: readonly string[] | undefined;
  lease: Lease | undefined;
  wasUsed: boolean;
  /** The first request of an account gets a row of its own; a returning one gets a lease. */
  hasRequested: boolean;
}

interface LeaseCall extends PartCall<AccountPart, HoldRequest, HoldResult> {
  readonly want: LeaseWant;
  /** The lease of the part when the call started; it can end before the call does. */
  readonly lease: Lease | undefined;
}

interface Granted extends LeaseResult {
  /** The day of the grant. It can end before the result arrives. */
  readonly day: number;
  /** `Leases.#losses` before the grant. */
  readonly losses: number;
}

export interface LeasesParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly epoch: () => Epoch;
}

export class Leases {
  readonly #parts: LeasesParts;
  readonly #leased: LeasedParts<AccountPart, HoldRequest, HoldResult, LeaseCall, Granted>;
  readonly #byKey = new Map<string, AccountPart>();
  /** Leases without new holds that wait for their last hold to end. */
  readonly #ending = new InFlight<Lease>();
  readonly #single = new InFlight<LeasedHold>();
  readonly #coming = new Set<string>();
  #forgotten = 0;

  constructor(parts: LeasesParts) {
    this.#parts = parts;
    this.#leased = new LeasedParts({
      ...parts,
      holder: () => parts.epoch().id,
      prefix: '',
      maxCalls: 3,
      maxCounters: 64,
      maxRequests: 128,
      callOf: (part, waiting) => this.#callOf(part, waiting),
      grant: (calls) => this.#grant(calls),
      granted: (call, result) => this.#granted(call, result),
      failed: ({ part, want }) => {
        // Whether anything was granted is unknown; it is released according to the rows.
        this.#coming.delete(want.newId);
        this.#endLease(part);
      },
      hasUnused,
      // The process that recalls leases waits for a reply from each holder, so this one always replies.
      repliesFor: () => true,
      received: (kind, accountId) => {
        if (kind === CHANGED) void this.#leased.giveBack(accountId);
      },
    });
  }

  listen(): Promise<void> {
    return this.#leased.recalls.listen();
  }

  close(): void {
    this.#leased.recalls.close();
  }

  place(request: HoldRequest): HoldResult | Promise<HoldResult> {
    const part = this.#byKey.get(partKeyOf(request));
    const lease = part?.lease;
    if (lease !== undefined && part?.counter.isBusy === false && this.#isGood(lease)) {
      const hold = reserve(lease, request);
      part.wasUsed = true;
      if (hold !== undefined) return { ok: true, hold };
    }
    const opened = part ?? this.#open(request);
    opened.wasUsed = true;
    return this.#leased.request(opened, request);
  }

  openOf(accountId: string, day: number): OpenAmounts {
    const open = { usdNano: 0n, diemNano: 0n };
    for (const { lease } of this.#leased.counter(accountId)?.parts ?? []) {
      if (lease?.kind === 'usd') open.usdNano += lease.heldNano;
      if (lease?.kind === 'daily' && lease.day === day) open.diemNano += lease.heldNano;
    }
    return open;
  }

  /** Holds in memory; the amounts set aside for them are part of the leases. */
  figures(): HoldFigures {
    let count = 0;
    let amountNano = 0n;
    for (const { open, heldNano } of this.#all()) {
      count += open;
      amountNano += heldNano;
    }
    return { count, amountNano: amountNano as Nano }; // a sum of nano-USD
  }

  rowFigures(): HoldFigures {
    const single = this.#single.all();
    const amountNano = single.reduce((sum, { grantedNano }) => sum + grantedNano, 0n);
    return { count: single.length, amountNano: amountNano as Nano }; // a sum of nano-USD
  }

  #all(): Lease[] {
    const current = [...this.#byKey.values()].flatMap(({ lease }) => lease ?? []);
    return [...current, ...this.#ending.all()];
  }

  /** Counts the events that end all leases: the amounts in memory may be wrong, or the rows gone. */
  get #losses(): number {
    return this.#parts.store.losses + this.#forgotten;
  }

  #isGood(lease: Lease): boolean {
    const { store, clock } = this.#parts;
    return (
      !lease.isOver &&
      lease.losses === this.#losses &&
      lease.day === dayOf(clock.nowMs()) &&
      store.unavailable() === undefined &&
      this.#parts.epoch().isCertain
    );
  }

  #open(request: HoldRequest): AccountPart {
    const key = partKeyOf(request);
    const { accountId, capIds } = request;
    const state = { key, capIds, lease: undefined, wasUsed: true, hasRequested: false };
    const part = this.#leased.open(accountId, state);
    this.#byKey.set(key, part);
    return part;
  }

  #callOf(part: AccountPart, waiting: readonly Waiting<HoldRequest, HoldResult>[]): LeaseCall {
    const losses = this.#losses;
    const { counter, capIds } = part;
    if (part.lease?.isOver === true || (part.lease?.losses ?? losses) !== losses) {
      this.#endLease(part);
    }
    const current = part.lease;
    // A lease costs a disk flush and has to be released later.
    const isUsed = waiting.length > 1 || (waiting.length === 1 && part.hasRequested);
    part.hasRequested = true;
    const newId = LEASE_PREFIX + this.#parts.ids.uuid();
    this.#coming.add(newId);
    // Without notifications, other processes cannot recall from this one, so it leases nothing.
    const { areDelivered } = this.#leased.recalls;
    const want: LeaseWant = {
      accountId: counter.name,
      capIds,
      lease: current && {
        id: current.id,
        kind: current.kind,
        freeNano: current.nano - current.heldNano,
      },
      requests: waiting.map(({ request }) => request),
      mayLease: isUsed && areDelivered && !this.#leased.isContested(counter),
      mayWait: areDelivered && waiting.every(({ recallUntilMs }) => recallUntilMs === 0),
      newId,
    };
    return { part, waiting, want, lease: current };
  }

  async #grant(calls: readonly LeaseCall[]): Promise<readonly Granted[]> {
    const epoch = this.#parts.epoch();
    if (epoch.hasBegun && !epoch.isCertain) await epoch.renew();
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const context = {
        epochId: epoch.id,
        hasEpoch: epoch.hasBegun,
        nowMs: this.#parts.clock.nowMs(),
      };
      const known = { losses: this.#losses, day: dayOf(context.nowMs) };
      // A new epoch has ended the leases of the old one, whose rows another process releases.
      const wants = calls.map(({ part, want }) =>
        part.lease === undefined ? { ...want, lease: undefined } : want,
      );
      const results = await this.#parts.store.transaction((tx) => grantLeases(tx, context, wants), {
        durable: false,
      });
      if (results !== undefined) return results.map((result) => ({ ...result, ...known }));
      // Another process considered this one dead; continue with a new epoch.
      await epoch.renew();
    }
    throw new StoreUnavailable('Other processes closed the epoch of this process twice');
  }

  #granted({ part, want, waiting, lease: before }: LeaseCall, result: Granted) {
    const { grant, results, holders, day, losses } = result;
    this.#coming.delete(want.newId);
    if (result.isLost) this.#endLease(part);
    const isKept = grant !== undefined && grant.id === before?.id;
    let lease = isKept ? before : undefined;
    if (before !== undefined) {
      before.nano += isKept ? grant.addedNano : -(want.lease?.freeNano ?? 0n);
    }
    if (grant !== undefined && !isKept) {
      this.#endLease(part);
      lease = newLease(grant, { isCapped: part.capIds !== undefined, day, losses });
      part.lease = lease;
    } else if (lease?.isOver === true && part.lease !== lease && lease.place === -1) {
      // It ended during the call, without open holds.
      this.#ending.add(lease);
    }
    const isHeld = (): boolean =>
      holders.length > 0 || part.counter.parts.some((one) => one !== part && hasUnused(one));
    return waiting.map(({ request }, at): PartResult<HoldResult> => {
      const planned = results[at];
      assert(planned !== undefined, 'each request has its result');
      if (planned.ok) {
        const hold = newHold(lease, request, planned);
        if (lease === undefined) this.#single.add(hold);
        return { result: { ok: true, hold } };
      }
      const isRecalled = planned.reason === 'held' && want.mayWait && isHeld();
      return { result: planned, heldBy: isRecalled ? holders : undefined };
    });
  }

  /** Makes all processes release unused leases of the account, for example before a debit. */
  async recall(accountId: string): Promise<void> {
    const { clock, store, epoch } = this.#parts;
    const { recalls } = this.#leased;
    const counter = this.#leased.counter(accountId);
    if (counter !== undefined) this.#leased.contest(counter);
    const own = this.#leased.giveBack(accountId);
    const holders = await holdersOf(store, accountId, epoch().id);
    const others = recalls.areDelivered
      ? recalls.recall(accountId, holders)
      : this.#pollReturned(accountId, holders);
    // The caller may have locked the account; then nothing is released before the time limit.
    const { promise: limit, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(RETURN_MS, resolve);
    await Promise.race([limit, Promise.all([own, others])]);
    cancel();
  }

  /** Polls for released leases, in a command that receives no notifications. */
  async #pollReturned(accountId: string, holders: readonly string[]): Promise<void> {
    const { store, clock, epoch } = this.#parts;
    if (holders.length === 0) return;
    await this.#leased.recalls.recallBlindly(accountId);
    for (let poll = 0; poll < POLLS; poll += 1) {
      await clock.sleep(RETURN_MS / POLLS);
      if ((await holdersOf(store, accountId, epoch().id)).length === 0) return;
    }
  }

  changed(accountId: string): Statement {
    return this.#leased.recalls.statement(CHANGED, accountId);
  }

  /** Releases, once a round, leases that were not used since the last round. */
  giveIdleBack(): void {
    // A process that cannot receive a recall keeps nothing.
    const mayKeep = this.#leased.recalls.areDelivered;
    for (const [key, part] of this.#byKey) {
      const wasUsed = part.wasUsed && mayKeep;
      part.wasUsed = false;
      if (wasUsed || part.counter.isBusy || part.isDue || part.waiting.length > 0) continue;
      if (hasUnused(part)) this.#leased.add(part);
      else if ((part.lease?.open ?? 0) === 0 && this.#leased.close(part)) this.#byKey.delete(key);
    }
  }

  #endLease(part: AccountPart): void {
    const { lease } = part;
    part.lease = undefined;
    if (lease === undefined) return;
    lease.isOver = true;
    if (lease.open > 0) this.#ending.add(lease);
  }

  forget(): void {
    this.#forgotten += 1;
    for (const part of this.#byKey.values()) this.#endLease(part);
  }

  knownIds(): ReadonlySet<string> {
    return new Set([
      ...this.#coming,
      ...this.#all().map(({ id }) => id),
      ...this.#single.all().map(({ requestId }) => requestId),
    ]);
  }

  /** Ends a hold without a settle, which would report that the lease exceeds a limit. */
  release(held: LeasedHold): void {
    this.retireLease(held);
    this.#end(held, ZERO);
  }

  /** Ends a hold, of which `takenNano` was removed from the row of its lease. */
  #end(held: LeasedHold, takenNano: bigint): void {
    if (!held.isOpen) return;
    held.isOpen = false;
    const { lease } = held;
    if (lease === undefined) {
      this.#single.delete(held);
      return;
    }
    lease.nano -= takenNano;
    lease.heldNano -= held.grantedNano;
    lease.open -= 1;
    if (lease.isOver && lease.open === 0) this.#ending.delete(lease);
  }

  ended(held: LeasedHold, { usdNano, diemNano, after }: Settlement, isFromLease: boolean): void {
    const { lease } = held;
    const taken = usdNano + diemNano;
    if (lease !== undefined && isFromLease) {
      lease.posted = after;
      const spendable = lease.isCapped
        ? lease.spendableNano - taken
        : after.usdNano + after.diemNano;
      lease.spendableNano = spendable as Nano; // part of what is posted
    }
    this.#end(held, isFromLease ? taken : ZERO);
  }

  /** Takes no more holds from the lease of a settle whose outcome is unknown, or that exceeds a limit. */
  retireLease(held: LeasedHold | undefined): void {
    if (held?.lease !== undefined) held.lease.isOver = true;
  }
}

function newLease(
  { id, kind, addedNano }: LeaseGrant,
  known: Pick<Lease, 'isCapped' | 'day' | 'losses'>,
): Lease {
  return {
    ...known,
    id,
    kind,
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
function partKeyOf({ accountId, capIds }: HoldRequest): string {
  return capIds === undefined ? accountId : capIds.join();
}

/** Reserves the maximum of a request if the lease covers it under the share rule. */
function reserve(lease: Lease, request: HoldRequest): LeasedHold | undefined {
  const { floorNano, maxNano } = request;
  // The leased amount is posted; the process knows of no further balance.
  if (lease.nano - lease.heldNano < freeForAll(request) || lease.nano < floorNano) return undefined;
  const isDaily = lease.kind === 'daily';
  return newHold(lease, request, {
    usdNano: isDaily ? ZERO : maxNano,
    dailyNano: isDaily ? maxNano : ZERO,
    spendableNano: lease.spendableNano,
    before: lease.posted,
  });
}

function newHold(
  lease: Lease | undefined,
  { requestId, accountId, capIds }: HoldRequest,
  { usdNano, dailyNano, spendableNano, before }: Omit<PlannedHold, 'ok' | 'dailyDay' | 'capsMs'>,
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

function hasUnused({ lease }: AccountPart): boolean {
  return lease !== undefined && lease.nano > lease.heldNano;
}
