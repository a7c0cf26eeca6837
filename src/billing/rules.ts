/**
 * Decides the amounts of holds and charges, in pure functions. The size of a lease is decided by
 * `ledger/postgres/grants.ts`.
 *
 * - A hold: what the account and its caps can still cover, how much of that the request gets, and
 *   its division into daily credit and USD. Daily credit is spent before USD.
 * - A charge: the cost is taken from what the hold set aside, daily credit first; without a hold,
 *   from what is available.
 */
import { assert } from '../core/assert.ts';
import { dayOf, dayStartMs, monthBounds } from '../core/clock.ts';
import { type Nano, nano, smaller } from '../core/money.ts';

/** An account on the day of the decision, or on a later one if another clock is ahead. */
export interface AccountState {
  balanceNano: bigint;
  heldNano: bigint;
  readonly dailyAllocationNano: bigint;
  readonly dailyDay: number;
  dailySpentNano: bigint;
  dailyHeldNano: bigint;
  readonly debtNano: bigint;
}

/** EPOCH is a day, WEEK begins on Monday; all begin at 00:00 UTC. */
export type CapPeriod = 'EPOCH' | 'WEEK' | 'MONTH' | 'LIFETIME';

/** A cap in its running period (a row of `ledger_allowance`); no limit means unlimited. */
export interface CapState {
  readonly period: CapPeriod;
  periodStartMs: number;
  readonly usdLimitNano: bigint | undefined;
  readonly diemLimitNano: bigint | undefined;
  usdSpentNano: bigint;
  usdHeldNano: bigint;
  diemSpentNano: bigint;
  diemHeldNano: bigint;
  /** `undefined` for the cap of a key. */
  readonly budgetId: string | undefined;
}

export interface WantedHold {
  readonly minNano: Nano;
  /** Cost of a useful completion, held before the share rule applies. Default: `minNano`. */
  readonly usefulNano?: Nano | undefined;
  readonly maxNano: Nano;
  /** The caller set the size, so all of it is held if it is free. Default: at most a share. */
  readonly maxIsNamed?: boolean | undefined;
  /** Posted credit that an account needs to start a request (0.10 USD by default). */
  readonly floorNano: Nano;
}

export type HoldRefusal =
  | { readonly ok: false; readonly reason: 'balance'; readonly postedNano: Nano }
  /** Posted credit and caps would cover it, but other open holds use them. */
  | { readonly ok: false; readonly reason: 'held'; readonly availableNano: Nano }
  | CapRefusal;

export interface CapRefusal {
  readonly ok: false;
  readonly reason: 'cap-usd' | 'cap-diem';
  readonly limitNano: Nano;
  readonly spentNano: Nano;
  /** When the period ends; `undefined` for LIFETIME. */
  readonly resetsAtMs: number | undefined;
  readonly capId: string;
  readonly budgetId: string | undefined;
}

export type HoldPlan =
  | {
      readonly ok: true;
      readonly dailyNano: Nano;
      readonly usdNano: Nano;
      /** The most that could be held without other open holds. */
      readonly spendableNano: Nano;
      /** Posted amounts: the balance, and unspent daily credit. */
      readonly before: { readonly usdNano: Nano; readonly diemNano: Nano };
    }
  | HoldRefusal;

/** Amounts of open holds that are not rows. */
export interface OpenAmounts {
  readonly usdNano: bigint;
  readonly diemNano: bigint;
}

export interface CountedCap {
  readonly id: string;
  readonly state: CapState;
  /** Holds of this cap that are not in `state`. */
  readonly beside: OpenAmounts;
}

export const NO_CAPS: readonly CountedCap[] = [];
export const NOTHING_BESIDE: OpenAmounts = { usdNano: 0n, diemNano: 0n };

/** Beyond `usefulNano`, a hold gets a quarter of the rest that is free, so that others can run. */
const SHARE_PARTS = 4n;

/** Unspent daily credit, held or not. */
export function dailyLeft({ dailyAllocationNano, dailySpentNano }: AccountState): bigint {
  // An allocation that was lowered during the day can be less than was spent.
  return atLeastZero(dailyAllocationNano - dailySpentNano);
}

/** First millisecond of the period that contains `nowMs`; 0 for LIFETIME. */
export function periodStartMs(period: CapPeriod, nowMs: number): number {
  switch (period) {
    case 'EPOCH':
      return dayStartMs(dayOf(nowMs));
    case 'WEEK':
      return dayStartMs(mondayOf(dayOf(nowMs)));
    case 'MONTH':
      return monthBounds(nowMs).startMs;
    case 'LIFETIME':
      return 0;
  }
}

/** When the period that contains `nowMs` ends; `undefined` for LIFETIME. */
function periodEndMs(period: CapPeriod, nowMs: number): number | undefined {
  switch (period) {
    case 'EPOCH':
      return dayStartMs(dayOf(nowMs) + 1);
    case 'WEEK':
      return dayStartMs(mondayOf(dayOf(nowMs)) + DAYS_OF_WEEK);
    case 'MONTH':
      return monthBounds(nowMs).endMs;
    case 'LIFETIME':
      return undefined;
  }
}

const DAYS_OF_WEEK = 7;
/** Day 0, 1970-01-01, was a Thursday. */
const FROM_MONDAY_TO_DAY_ZERO = 3;

function mondayOf(day: number): number {
  return day - ((day + FROM_MONDAY_TO_DAY_ZERO) % DAYS_OF_WEEK);
}

export function planHold(
  account: AccountState,
  wanted: WantedHold,
  caps: readonly CountedCap[] = NO_CAPS,
  beside: OpenAmounts = NOTHING_BESIDE,
): HoldPlan {
  // An account with a debt spends nothing.
  const isOwing = account.debtNano > 0n;
  const usd = isOwing ? 0n : account.balanceNano;
  const daily = isOwing ? 0n : dailyLeft(account);
  const postedNano = (usd + daily) as Nano; // both are posted
  if (postedNano < wanted.floorNano || postedNano < wanted.minNano) {
    return { ok: false, reason: 'balance', postedNano };
  }
  // A priced request must hold more than 0, or its settle could take nothing.
  const isPriced = wanted.maxNano > 0n;
  let freeUsd = usd - account.heldNano - beside.usdNano;
  let freeDaily = daily - account.dailyHeldNano - beside.diemNano;
  let spendableNano = postedNano;
  let usdUnspent = usd;
  let dailyUnspent = daily;
  for (const cap of caps) {
    const left = leftOf(cap);
    usdUnspent = smaller(usdUnspent, left.usd.unspent);
    dailyUnspent = smaller(dailyUnspent, left.diem.unspent);
    spendableNano = nano(dailyUnspent + usdUnspent);
    if (isPriced && (spendableNano === 0n || spendableNano < wanted.minNano)) {
      return capRefusal(cap, left);
    }
    freeDaily = smaller(freeDaily, left.diem.free);
    freeUsd = smaller(freeUsd, left.usd.free);
  }
  // A command beside the server, or a lower allocation, can leave less than is held.
  if (freeUsd < 0n) freeUsd = 0n;
  if (freeDaily < 0n) freeDaily = 0n;
  const freeNano = freeDaily + freeUsd;
  const { maxNano, maxIsNamed } = wanted;
  const useful = smaller(wanted.usefulNano ?? wanted.minNano, maxNano);
  const leastNano = spendableNano < useful ? wanted.minNano : useful;
  if (isPriced && (freeNano === 0n || freeNano < leastNano)) {
    return spendableNano > 0n
      ? { ok: false, reason: 'held', availableNano: nano(freeNano) }
      : { ok: false, reason: 'balance', postedNano };
  }
  const isAll = freeNano <= useful || (maxIsNamed === true && freeNano >= maxNano);
  const share = isAll ? freeNano : useful + (freeNano - useful) / SHARE_PARTS;
  const granted = share < maxNano ? share : maxNano;
  const dailyNano = freeDaily < granted ? freeDaily : granted;
  return {
    ok: true,
    dailyNano: dailyNano as Nano, // a part of what is posted
    usdNano: (granted - dailyNano) as Nano, // the same
    spendableNano,
    before: { usdNano: account.balanceNano as Nano, diemNano: daily as Nano }, // the same
  };
}

function atLeastZero(amount: bigint): bigint {
  return amount > 0n ? amount : 0n;
}

/** The amount that must be free for a request to get all of `maxNano` under the share rule. */
export function freeForAll({
  minNano,
  usefulNano = minNano,
  maxNano,
  maxIsNamed,
}: WantedHold): bigint {
  if (maxIsNamed === true || usefulNano >= maxNano) return maxNano;
  return usefulNano + SHARE_PARTS * (maxNano - usefulNano);
}

export type CreditKind = 'usd' | 'daily';

export function freeOf(
  kind: CreditKind,
  account: AccountState,
  caps: readonly CountedCap[],
): bigint {
  let free =
    kind === 'usd'
      ? account.balanceNano - account.heldNano
      : dailyLeft(account) - account.dailyHeldNano;
  for (const cap of caps) {
    const { usd, diem } = leftOf(cap);
    free = smaller(free, kind === 'usd' ? usd.free : diem.free);
  }
  return atLeastZero(free);
}

/** The rest of a limit: unspent, and of that not held either. */
interface Left {
  readonly unspent: bigint;
  readonly free: bigint;
}

interface LeftOfCap {
  readonly usd: Left;
  readonly diem: Left;
}

const UNLIMITED = 9_000_000_000_000_000_000n;
const NO_LIMIT: Left = { unspent: UNLIMITED, free: UNLIMITED };

function leftOf({ state, beside }: CountedCap): LeftOfCap {
  const { usdHeldNano, diemHeldNano } = state;
  return {
    usd: leftOfLimit(state.usdLimitNano, state.usdSpentNano, usdHeldNano + beside.usdNano),
    diem: leftOfLimit(state.diemLimitNano, state.diemSpentNano, diemHeldNano + beside.diemNano),
  };
}

function leftOfLimit(limit: bigint | undefined, spent: bigint, held: bigint): Left {
  if (limit === undefined) return NO_LIMIT;
  const unspent = atLeastZero(limit - spent);
  return { unspent, free: atLeastZero(unspent - held) };
}

function capRefusal({ id: capId, state }: CountedCap, left: LeftOfCap): CapRefusal {
  // Report the tighter of the two limits, because the caller has to raise that one.
  const isUsd = left.usd.unspent <= left.diem.unspent;
  return {
    ok: false,
    reason: isUsd ? 'cap-usd' : 'cap-diem',
    limitNano: nano((isUsd ? state.usdLimitNano : state.diemLimitNano) ?? 0n),
    spentNano: nano(isUsd ? state.usdSpentNano : state.diemSpentNano),
    resetsAtMs: periodEndMs(state.period, state.periodStartMs),
    capId,
    budgetId: state.budgetId,
  };
}

export interface HeldAmounts {
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  readonly dailyDay: number;
  readonly capIds: readonly string[] | undefined;
  /** The hold counts in the periods of its caps that began by this time, and in no later ones. */
  readonly capsMs: number;
  /** Place that counts the amounts: memory, a row of this hold, or a lease. */
  readonly from: 'memory' | 'row' | 'lease';
  readonly reservedNano?: bigint;
}

export interface Taken {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export interface Cost {
  readonly costNano: Nano;
  readonly capIds: readonly string[];
  readonly createdMs: number;
}

export type Caps = ReadonlyMap<string, CapState>;

/** Divides a cost into daily credit and USD, at most what was granted. */
export function divideCost(
  costNano: bigint,
  { grantedNano, dailyNano }: { readonly grantedNano: Nano; readonly dailyNano: Nano },
): Taken {
  assert(dailyNano <= grantedNano, 'daily credit is a part of what is granted');
  const diemNano = least(costNano, dailyNano);
  return { diemNano, usdNano: nano(least(costNano, grantedNano) - diemNano) };
}

/** Takes a cost from an account and its caps; the rest of a lease stays with its process. */
export function takeCost(
  account: AccountState,
  caps: Caps,
  { costNano, capIds, createdMs }: Cost,
  held: HeldAmounts | undefined,
): Taken {
  if (held !== undefined && held.from !== 'memory') giveBack(account, caps, held);
  // An account with a debt spends only what is already held.
  const mayTake = held !== undefined || account.debtNano === 0n;
  const free = mayTake ? account.balanceNano - account.heldNano : 0n;
  const freeDaily = held?.dailyNano ?? (mayTake ? dailyLeft(account) - account.dailyHeldNano : 0n);
  const diemNano = least(costNano, freeDaily);
  const dueNano = costNano - diemNano;
  // A command beside the server may have taken what a hold in memory set aside.
  const usdNano = least(held === undefined ? dueNano : smaller(held.usdNano, dueNano), free);
  account.balanceNano -= usdNano;
  // A hold of yesterday spends yesterday's credit, which today's counters do not contain.
  if (held === undefined || held.dailyDay === account.dailyDay) account.dailySpentNano += diemNano;
  // A charge counts in the period that its hold belongs to.
  const sinceMs = held?.capsMs ?? createdMs;
  for (const id of capIds) {
    const cap = caps.get(id);
    if (cap === undefined || sinceMs < cap.periodStartMs) continue;
    cap.usdSpentNano += usdNano;
    cap.diemSpentNano += diemNano;
  }
  if (held?.from === 'lease') {
    const rest = { usdNano: usdNano - held.usdNano, dailyNano: diemNano - held.dailyNano };
    giveBack(account, caps, { ...held, ...rest });
  }
  assert(account.balanceNano >= 0n, 'no balance goes below zero');
  return { usdNano, diemNano };
}

export function setAside(
  account: AccountState,
  caps: readonly CountedCap[],
  { usdNano, dailyNano }: { readonly usdNano: bigint; readonly dailyNano: bigint },
): void {
  account.heldNano += usdNano;
  account.dailyHeldNano += dailyNano;
  for (const { state } of caps) {
    state.usdHeldNano += usdNano;
    state.diemHeldNano += dailyNano;
  }
}

export function giveBack(
  account: AccountState,
  caps: Caps,
  { usdNano, dailyNano, dailyDay, capIds, capsMs }: HeldAmounts,
): void {
  account.heldNano -= usdNano;
  if (dailyDay === account.dailyDay) account.dailyHeldNano -= dailyNano;
  for (const id of capIds ?? []) {
    const cap = caps.get(id);
    if (cap === undefined || capsMs < cap.periodStartMs) continue;
    cap.usdHeldNano -= usdNano;
    cap.diemHeldNano -= dailyNano;
  }
}

/** The smaller amount, at least 0. */
function least(a: bigint, b: bigint): Nano {
  const amount = a < b ? a : b;
  return (amount > 0n ? amount : 0n) as Nano; // both are nano-USD
}
