/**
 * The arithmetic of a hold: what an account and an allowance (the cap of a key) can still cover,
 * how much of it a request gets, and how it divides into daily credit and USD. Pure; daily credit
 * is always spent before USD.
 */
import { dayOf, dayStartMs, monthBounds } from '../../core/clock.ts';
import { type Nano, nano, smaller } from '../../core/money.ts';

/** A row of `ledger_account`, as it stands. */
export interface AccountState {
  balanceNano: bigint;
  heldNano: bigint;
  readonly dailyAllocationNano: bigint;
  readonly dailyDay: number;
  dailySpentNano: bigint;
  dailyHeldNano: bigint;
  /** What a reversal could not take back. */
  readonly debtNano: bigint;
}

/** EPOCH is a day, WEEK begins on Monday; all begin at 00:00 UTC. */
export type AllowancePeriod = 'EPOCH' | 'WEEK' | 'MONTH' | 'LIFETIME';

/** A row of `ledger_allowance`, as it stands; a missing limit is no limit. */
export interface AllowanceState {
  readonly period: AllowancePeriod;
  readonly periodStartMs: number;
  readonly usdLimitNano: bigint | undefined;
  readonly diemLimitNano: bigint | undefined;
  usdSpentNano: bigint;
  usdHeldNano: bigint;
  diemSpentNano: bigint;
  diemHeldNano: bigint;
  /** The budget that it is a cap of; a cap of a key has none. */
  readonly budgetId: string | undefined;
}

/** What a request asks for: at least `minNano` to run at all, at most `maxNano`. */
export interface WantedHold {
  readonly minNano: Nano;
  /** What a useful answer takes: held before the share begins. Default: `minNano`. */
  readonly usefulNano?: Nano | undefined;
  readonly maxNano: Nano;
  /** The caller named the size, so all of it is held where it is free. Default: at most a share. */
  readonly maxIsNamed?: boolean | undefined;
  /** Posted credit that an account must have to start a request (0.10 USD by default). */
  readonly floorNano: Nano;
}

export type HoldRefusal =
  | { readonly ok: false; readonly reason: 'balance'; readonly postedNano: Nano }
  /** Posted credit and caps would cover it; open holds stand in the way. */
  | { readonly ok: false; readonly reason: 'held'; readonly availableNano: Nano }
  | {
      readonly ok: false;
      readonly reason: 'allowance-usd' | 'allowance-diem';
      readonly limitNano: Nano;
      readonly spentNano: Nano;
      /** When the period ends; absent for LIFETIME. */
      readonly resetsAtMs: number | undefined;
      /** The budget that is spent; missing where it is the cap of a key. */
      readonly budgetId?: string;
      /** The key above that is spent; missing where it is the key itself. */
      readonly parentId?: string;
    };

export type HoldPlan =
  | {
      readonly ok: true;
      readonly dailyNano: Nano;
      readonly usdNano: Nano;
      /** The most that could be held if no other hold were open. */
      readonly spendableNano: Nano;
      /** What is posted: balance, and daily credit that is not spent. */
      readonly before: { readonly usdNano: Nano; readonly diemNano: Nano };
    }
  | HoldRefusal;

/** What open holds that are no rows set aside. */
export interface OpenAmounts {
  readonly usdNano: bigint;
  readonly diemNano: bigint;
}

/** A further cap that a request counts against beside that of its key: of a key above, or a budget. */
export interface BudgetState {
  readonly id: string;
  readonly state: AllowanceState;
  /** What open holds that are no rows set aside of it. */
  readonly beside: OpenAmounts;
}

const NO_BUDGETS: readonly BudgetState[] = [];
const NONE: OpenAmounts = { usdNano: 0n, diemNano: 0n };

/**
 * Beyond what a useful answer takes, one hold gets at most one part in four of what is free, so
 * that requests which run together each have room.
 */
const SHARE_PARTS = 4n;

/**
 * Daily credit that is not spent, whether or not it is held. A day that another process has begun by a
 * clock that is ahead is the day of the account for all.
 */
export function dailyLeft(account: AccountState, nowMs: number): bigint {
  const { dailyAllocationNano, dailySpentNano } = account;
  if (account.dailyDay < dayOf(nowMs)) return dailyAllocationNano;
  // An allocation that was lowered during the day can be less than was spent.
  return dailyAllocationNano > dailySpentNano ? dailyAllocationNano - dailySpentNano : 0n;
}

/** First millisecond of the allowance period that contains `nowMs`; 0 for LIFETIME. */
export function periodStartMs(period: AllowancePeriod, nowMs: number): number {
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

/** When the allowance period that contains `nowMs` ends; `undefined` for LIFETIME. */
export function periodEndMs(period: AllowancePeriod, nowMs: number): number | undefined {
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

/** Divides what a request may hold into daily credit and USD, or says what stands in its way. */
export function planHold(
  account: AccountState,
  allowance: AllowanceState | undefined,
  wanted: WantedHold,
  nowMs: number,
  /** Of the account, on its day, and of the allowance, in its period. */
  besideAccount: OpenAmounts = NONE,
  besideAllowance: OpenAmounts = NONE,
  budgets: readonly BudgetState[] = NO_BUDGETS,
): HoldPlan {
  // An account with a debt spends nothing.
  const isOwing = account.debtNano > 0n;
  const usd = isOwing ? 0n : account.balanceNano;
  const daily = isOwing ? 0n : dailyLeft(account, nowMs);
  const postedNano = (usd + daily) as Nano; // both are posted
  if (postedNano < wanted.floorNano || postedNano < wanted.minNano) {
    return { ok: false, reason: 'balance', postedNano };
  }
  let freeUsd = usd - account.heldNano - besideAccount.usdNano;
  let freeDaily = daily - account.dailyHeldNano - besideAccount.diemNano;
  let spendableNano = postedNano;
  let usdUnspent = usd;
  let dailyUnspent = daily;
  if (allowance !== undefined) {
    const caps = capsOf(allowance, besideAllowance, nowMs);
    usdUnspent = smaller(usd, caps.usd.unspent);
    dailyUnspent = smaller(daily, caps.diem.unspent);
    spendableNano = nano(dailyUnspent + usdUnspent);
    if (isBelow(spendableNano, wanted.minNano, wanted))
      return allowanceRefusal(allowance, caps, nowMs);
    freeDaily = smaller(freeDaily, caps.diem.free);
    freeUsd = smaller(freeUsd, caps.usd.free);
  }
  for (const { id, state, beside } of budgets) {
    const caps = capsOf(state, beside, nowMs);
    usdUnspent = smaller(usdUnspent, caps.usd.unspent);
    dailyUnspent = smaller(dailyUnspent, caps.diem.unspent);
    spendableNano = nano(dailyUnspent + usdUnspent);
    if (isBelow(spendableNano, wanted.minNano, wanted)) {
      const refusal = allowanceRefusal(state, caps, nowMs);
      return state.budgetId === undefined ? { ...refusal, parentId: id } : refusal;
    }
    freeDaily = smaller(freeDaily, caps.diem.free);
    freeUsd = smaller(freeUsd, caps.usd.free);
  }
  // A command beside the server, or a lower allocation, can leave less than is held.
  if (freeUsd < 0n) freeUsd = 0n;
  if (freeDaily < 0n) freeDaily = 0n;
  const freeNano = freeDaily + freeUsd;
  const least = wanted.usefulNano ?? wanted.minNano;
  const useful = least < wanted.maxNano ? least : wanted.maxNano;
  if (isBelow(freeNano, spendableNano < useful ? wanted.minNano : useful, wanted)) {
    return spendableNano > 0n
      ? { ok: false, reason: 'held', availableNano: nano(freeNano) }
      : { ok: false, reason: 'balance', postedNano };
  }
  const { maxNano, maxIsNamed } = wanted;
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

/** A priced request holds something, or its settle could take nothing. */
function isBelow(amount: bigint, least: bigint, wanted: WantedHold): boolean {
  return wanted.maxNano > 0n && (amount < least || amount === 0n);
}

function atLeastZero(amount: bigint): bigint {
  return amount > 0n ? amount : 0n;
}

/** What has to be free so that a request gets all of `maxNano`, its share included. */
export function freeForAll({
  minNano,
  usefulNano = minNano,
  maxNano,
  maxIsNamed,
}: WantedHold): bigint {
  if (maxIsNamed === true || usefulNano >= maxNano) return maxNano;
  return usefulNano + SHARE_PARTS * (maxNano - usefulNano);
}

/** What an account and its caps have free of one kind of credit. */
export function freeOf(
  kind: 'usd' | 'daily',
  account: AccountState,
  allowances: readonly AllowanceState[],
  nowMs: number,
): bigint {
  let free =
    kind === 'usd'
      ? account.balanceNano - account.heldNano
      : dailyLeft(account, nowMs) - account.dailyHeldNano;
  for (const allowance of allowances) {
    const { usd, diem } = capsOf(allowance, NONE, nowMs);
    free = smaller(free, kind === 'usd' ? usd.free : diem.free);
  }
  return atLeastZero(free);
}

/** What remains of a cap: what is not spent, and what of that is not held. */
interface Remaining {
  readonly unspent: bigint;
  readonly free: bigint;
}

interface Caps {
  readonly usd: Remaining;
  readonly diem: Remaining;
}

const UNLIMITED = 9_000_000_000_000_000_000n;
const NO_CAP: Remaining = { unspent: UNLIMITED, free: UNLIMITED };

function capsOf(allowance: AllowanceState, beside: OpenAmounts, nowMs: number): Caps {
  const { usdLimitNano, diemLimitNano } = allowance;
  if (allowance.periodStartMs < periodStartMs(allowance.period, nowMs)) {
    return { usd: remainingOf(usdLimitNano, 0n, 0n), diem: remainingOf(diemLimitNano, 0n, 0n) };
  }
  const usdHeld = allowance.usdHeldNano + beside.usdNano;
  const diemHeld = allowance.diemHeldNano + beside.diemNano;
  return {
    usd: remainingOf(usdLimitNano, allowance.usdSpentNano, usdHeld),
    diem: remainingOf(diemLimitNano, allowance.diemSpentNano, diemHeld),
  };
}

function remainingOf(limit: bigint | undefined, spent: bigint, held: bigint): Remaining {
  if (limit === undefined) return NO_CAP;
  const unspent = atLeastZero(limit - spent);
  return { unspent, free: atLeastZero(unspent - held) };
}

function allowanceRefusal(
  allowance: AllowanceState,
  caps: Caps,
  nowMs: number,
): HoldRefusal & { readonly reason: 'allowance-usd' | 'allowance-diem' } {
  // The tighter of the two caps is the one that the caller has to raise.
  const usdTrips = caps.usd.unspent <= caps.diem.unspent;
  const current = allowance.periodStartMs >= periodStartMs(allowance.period, nowMs);
  const spent = usdTrips ? allowance.usdSpentNano : allowance.diemSpentNano;
  return {
    ok: false,
    reason: usdTrips ? 'allowance-usd' : 'allowance-diem',
    limitNano: nano((usdTrips ? allowance.usdLimitNano : allowance.diemLimitNano) ?? 0n),
    spentNano: nano(current ? spent : 0n),
    resetsAtMs: periodEndMs(allowance.period, Math.max(nowMs, allowance.periodStartMs)),
    ...(allowance.budgetId === undefined ? {} : { budgetId: allowance.budgetId }),
  };
}
