/**
 * The leases of this process and the holds that come out of them: one lease per account, and one
 * for each set of caps that its requests count against. Amounts that a lease does not cover are
 * requested from the database, all requests of a tick together. Before a request is rejected,
 * missing amounts that other processes lease are recalled. Unused and recalled leases are released.
 *
 * After the connection or a reply of the database was lost, the in-memory amounts of the affected
 * leases may be wrong: no more holds are taken from them, and the rest is released according to
 * their rows.
 */
import { assert } from '../../../core/assert.ts';
import { type Clock, SECOND_MS, dayOf } from '../../../core/clock.ts';
import { DueQueue } from '../../../core/due-queue.ts';
import type { Ids } from '../../../core/ids.ts';
import { InFlight } from '../../../core/in-flight.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import { type SharedStore, StoreUnavailable } from '../../../db/db.ts';
import type { OpenAmounts } from '../../rules.ts';
import type { HoldResult, HoldFigures, HoldRequest, Settlement } from '../records.ts';
import type { Epoch } from './epochs.ts';
import { LEASE_PREFIX, type LeaseResult, type LeaseWant, grantLeases } from './grants.ts';
import {
  type Asking,
  type Lease,
  type LeasedAccount,
  type LeasedHold,
  type Slot,
  grantedHold,
  hasFree,
  newLease,
  newSlot,
  reserve,
  rest,
  slotKeyOf,
} from './lease.ts';

const ASKS_IN_FLIGHT = 3;
const ACCOUNTS_OF_ASK = 64;
const REQUESTS_OF_ASK = 128;
/** After a recall, no process leases from the account for this long. */
const CONTESTED_MS = 2 * SECOND_MS;

interface Asked {
  readonly slot: Slot;
  readonly want: LeaseWant;
  readonly entries: readonly Asking[];
}

export interface LeasesParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly epoch: () => Epoch;
  /** Whether other processes can recall from this one; otherwise it leases nothing. */
  readonly isHeard: () => boolean;
  /** Recalls leases of other processes; resolves on their replies, or at its time limit. */
  readonly callBack: (accountId: string, holders: readonly string[]) => Promise<void>;
}

export class Leases {
  readonly #parts: LeasesParts;
  readonly #slots = new Map<string, Slot>();
  readonly #accounts = new Map<string, LeasedAccount>();
  /** Leases without new holds that wait for their last hold to end. */
  readonly #ending = new InFlight<Lease>();
  readonly #single = new InFlight<LeasedHold>();
  readonly #coming = new Set<string>();
  readonly #due = new DueQueue<Slot, LeasedAccount>({
    maxInFlight: ASKS_IN_FLIGHT,
    maxGroups: ACCOUNTS_OF_ASK,
    groupOf: ({ account }) => account,
    run: (slots) => this.#askFor(slots),
    ended: rest,
  });

  constructor(parts: LeasesParts) {
    this.#parts = parts;
  }

  place(request: HoldRequest): HoldResult | Promise<HoldResult> {
    const slot = this.#slots.get(slotKeyOf(request));
    const lease = slot?.lease;
    if (lease !== undefined && slot?.account.isBusy === false && this.#isGood(lease)) {
      const hold = reserve(lease, request);
      slot.wasUsed = true;
      if (hold !== undefined) return { ok: true, hold };
    }
    return this.#ask(slot ?? this.#openSlot(request), request);
  }

  openOf(accountId: string, day: number): OpenAmounts {
    const open = { usdNano: 0n, diemNano: 0n };
    for (const { lease } of this.#accounts.get(accountId)?.slots ?? []) {
      if (lease?.kind === 'usd') open.usdNano += lease.heldNano;
      if (lease?.kind === 'daily' && lease.day === day) open.diemNano += lease.heldNano;
    }
    return open;
  }

  /** Holds in memory; the amounts set aside for them are part of the leases. */
  figures(): HoldFigures {
    let count = 0;
    let amountNano = 0n;
    for (const { lease } of this.#slots.values()) {
      if (lease === undefined) continue;
      count += lease.open;
      amountNano += lease.heldNano;
    }
    for (const lease of this.#ending.all()) {
      count += lease.open;
      amountNano += lease.heldNano;
    }
    return { count, amountNano: amountNano as Nano };
  }

  rowFigures(): HoldFigures {
    const single = this.#single.all();
    const amountNano = single.reduce((sum, { grantedNano }) => sum + grantedNano, 0n);
    return { count: single.length, amountNano: amountNano as Nano }; // a sum of nano-USD
  }

  #isGood(lease: Lease): boolean {
    const { store, clock } = this.#parts;
    return (
      !lease.isOver &&
      lease.losses === store.losses &&
      lease.day === dayOf(clock.nowMs()) &&
      store.unavailable() === undefined &&
      this.#parts.epoch().isCertain
    );
  }

  #openSlot(request: HoldRequest): Slot {
    const { accountId } = request;
    let account = this.#accounts.get(accountId);
    if (account === undefined) {
      account = { id: accountId, slots: [], isBusy: false, contestedUntilMs: 0, resting: [] };
      this.#accounts.set(accountId, account);
    }
    const slot = newSlot(account, request);
    this.#slots.set(slot.key, slot);
    return slot;
  }

  #ask(slot: Slot, request: HoldRequest): Promise<HoldResult> {
    const { promise, resolve, reject } = Promise.withResolvers<HoldResult>();
    slot.asking.push({ request, resolve, reject, isRecalled: false });
    slot.wasUsed = true;
    this.#due.add(slot);
    return promise;
  }

  async #askFor(slots: readonly Slot[]): Promise<() => void> {
    const asked: Asked[] = [];
    for (const slot of slots) {
      asked.push(this.#askedOf(slot));
      if (slot.asking.length > 0) this.#due.add(slot);
    }
    const losses = this.#parts.store.losses;
    try {
      const answers = await this.#grant(asked.map(({ want }) => want));
      const answered = asked.map((one, index) => {
        const answer = answers[index];
        assert(answer !== undefined, 'each want has its answer');
        return { one, answer };
      });
      return () => {
        for (const { one, answer } of answered) {
          this.#coming.delete(one.want.newId);
          this.#answer(one, answer, losses);
        }
      };
    } catch (error) {
      // Whether anything was granted is unknown; it is released according to the rows.
      return () => {
        for (const { slot, entries, want } of asked) {
          this.#coming.delete(want.newId);
          this.#endLease(slot);
          for (const { reject } of entries) reject(error);
        }
      };
    }
  }

  #askedOf(slot: Slot): Asked {
    const { account, lease } = slot;
    if (lease !== undefined && (lease.isOver || lease.losses !== this.#parts.store.losses)) {
      this.#endLease(slot);
    }
    const entries = slot.asking.splice(0, REQUESTS_OF_ASK);
    const isContested = this.#parts.clock.monotonicMs() < account.contestedUntilMs;
    const current = slot.lease;
    // A lease costs a disk flush and has to be released later.
    const isUsed = entries.length > 1 || (entries.length === 1 && slot.hasAsked);
    slot.hasAsked = true;
    const newId = LEASE_PREFIX + this.#parts.ids.uuid();
    this.#coming.add(newId);
    const want: LeaseWant = {
      accountId: account.id,
      capIds: slot.capIds,
      lease: current && {
        id: current.id,
        kind: current.kind,
        freeNano: current.nano - current.heldNano,
      },
      requests: entries.map(({ request }) => request),
      mayLease: isUsed && !isContested && this.#parts.isHeard(),
      mayWait: this.#parts.isHeard() && entries.every(({ isRecalled }) => !isRecalled),
      newId,
    };
    return { slot, want, entries };
  }

  async #grant(wants: readonly LeaseWant[]): Promise<readonly LeaseResult[]> {
    const epoch = this.#parts.epoch();
    if (epoch.hasBegun && !epoch.isCertain) await epoch.renew();
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const context = {
        epochId: epoch.id,
        hasEpoch: epoch.hasBegun,
        nowMs: this.#parts.clock.nowMs(),
      };
      const results = await this.#parts.store.transaction((tx) => grantLeases(tx, context, wants), {
        durable: false,
      });
      if (results !== undefined) return results;
      // Another process considered this one dead; continue with a new epoch.
      await epoch.renew();
    }
    throw new StoreUnavailable('The epoch of this process does not last');
  }

  #answer({ slot, want, entries }: Asked, answer: LeaseResult, losses: number): void {
    const { grant, results, holders } = answer;
    const freed = want.lease?.freeNano ?? 0n;
    if (answer.isLost) this.#endLease(slot);
    const before = slot.lease;
    if (grant !== undefined && before !== undefined && grant.id === before.id) {
      before.nano += grant.addedNano;
    } else {
      if (before !== undefined) before.nano -= freed;
      if (grant !== undefined) {
        this.#endLease(slot);
        const isCapped = slot.capIds !== undefined;
        slot.lease = newLease(grant, isCapped, this.#parts.clock.nowMs(), losses);
      }
    }
    const hasOwn = (): boolean => slot.account.slots.some((one) => one !== slot && hasFree(one));
    for (const [index, entry] of entries.entries()) {
      const planned = results[index];
      assert(planned !== undefined, 'each request has its answer');
      if (planned.ok) {
        const lease = grant === undefined ? undefined : slot.lease;
        const hold = grantedHold(lease, entry.request, planned);
        if (lease === undefined) this.#single.add(hold);
        entry.resolve({ ok: true, hold });
      } else if (planned.reason !== 'held' || entry.isRecalled || !want.mayWait)
        entry.resolve(planned);
      else if (holders.length > 0 || hasOwn()) void this.#askAgain(slot, entry, holders);
      else entry.resolve(planned);
    }
  }

  /** Requests the amount again after all processes have released what they do not use. */
  async #askAgain(slot: Slot, entry: Asking, holders: readonly string[]): Promise<void> {
    entry.isRecalled = true;
    const { account } = slot;
    this.contest(account.id);
    await Promise.all([this.#parts.callBack(account.id, holders), this.giveBack(account.id, slot)]);
    slot.asking.push(entry);
    this.#due.add(slot);
  }

  contest(accountId: string): void {
    const account = this.#accounts.get(accountId);
    if (account === undefined) return;
    account.contestedUntilMs = this.#parts.clock.monotonicMs() + CONTESTED_MS;
  }

  /** Releases the part of the account's leases that no open hold uses. */
  giveBack(accountId: string, except?: Slot): Promise<void> {
    const account = this.#accounts.get(accountId);
    if (account === undefined) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    account.resting.push(resolve);
    for (const slot of account.slots) if (slot !== except && hasFree(slot)) this.#due.add(slot);
    rest(account);
    return promise;
  }

  /** Releases, once a round, leases that were not used since the last round. */
  giveIdleBack(): void {
    // A process that cannot receive a recall keeps nothing.
    const mayKeep = this.#parts.isHeard();
    for (const [key, slot] of this.#slots) {
      const { account, lease, asking, isDue } = slot;
      const wasUsed = slot.wasUsed && mayKeep;
      slot.wasUsed = false;
      if (wasUsed || account.isBusy || isDue || asking.length > 0) continue;
      if (hasFree(slot)) this.#due.add(slot);
      else if (lease === undefined || lease.open === 0) {
        this.#slots.delete(key);
        account.slots.splice(account.slots.indexOf(slot), 1);
        if (account.slots.length === 0) this.#accounts.delete(account.id);
      }
    }
  }

  #endLease(slot: Slot): void {
    const { lease } = slot;
    slot.lease = undefined;
    if (lease === undefined) return;
    lease.isOver = true;
    if (lease.open > 0) this.#ending.add(lease);
  }

  forget(): void {
    for (const slot of this.#slots.values()) this.#endLease(slot);
  }

  knownIds(): ReadonlySet<string> {
    const known = new Set(this.#coming);
    for (const { lease } of this.#slots.values()) if (lease !== undefined) known.add(lease.id);
    for (const { id } of this.#ending.all()) known.add(id);
    for (const { requestId } of this.#single.all()) known.add(requestId);
    return known;
  }

  /** Ends a hold, of which `takenNano` was removed from the row of its lease. */
  end(held: LeasedHold, takenNano: bigint): void {
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
    this.end(held, isFromLease ? taken : ZERO);
  }

  /** Takes no more holds from the lease of a settle whose outcome is unknown. */
  doubt(held: LeasedHold | undefined): void {
    if (held?.lease !== undefined) held.lease.isOver = true;
  }
}
