/**
 * The arithmetic of a hold: what an account and an allowance (the cap of a key) can still cover,
 * how much of it a request gets, and how it divides into daily credit and USD. Pure; daily credit
 * is always spent before USD. The SQL of the PostgreSQL fast path says the same for whole batches.
 */
import { dayOf, dayStartMs, monthBounds } from '../../core/clock.ts';
import { type Nano, ZERO, addNano, maxNano, minNano, nano } from '../../core/money.ts';

/** A row of `ledger_account`, as it stands. */
export interface AccountState {
  readonly balanceNano: bigint;
  readonly heldNano: bigint;
  readonly dailyAllocationNano: bigint;
  readonly dailyDay: number;
  readonly dailySpentNano: bigint;
  readonly dailyHeldNano: bigint;
  /** What a reversal could not take back. */
  readonly debtNano: bigint;
}

export type AllowancePeriod = 'EPOCH' | 'MONTH' | 'LIFETIME';

/** A row of `ledger_allowance`, as it stands; a missing limit is no limit. */
export interface AllowanceState {
  readonly period: AllowancePeriod;
  readonly periodStartMs: number;
  readonly usdLimitNano: bigint | undefined;
  readonly diemLimitNano: bigint | undefined;
  readonly usdSpentNano: bigint;
  readonly usdHeldNano: bigint;
  readonly diemSpentNano: bigint;
  readonly diemHeldNano: bigint;
}

/** What a request asks for: at least `minNano` to run at all, at most `maxNano`. */
export interface HoldWish {
  readonly minNano: Nano;
  /** What a useful answer takes: held before the share begins. Default: `minNano`. */
  readonly usefulNano?: Nano;
  readonly maxNano: Nano;
  /** The caller named the size, so all of it is held where it is free. Default: at most a share. */
  readonly maxIsNamed?: boolean;
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
    };

export type HoldPlan =
  | {
      readonly ok: true;
      readonly dailyNano: Nano;
      readonly usdNano: Nano;
      /** The most that could be held if no other hold were open. */
      readonly reachNano: Nano;
    }
  | HoldRefusal;

/**
 * Beyond what a useful answer takes, one hold gets at most one part in four of what is free, so
 * that requests which run together each have room.
 */
export const SHARE_PARTS = 4n;

/** Daily credit and USD that are neither spent nor held at `nowMs`; nothing while a debt is open. */
export function availableOf(account: AccountState, nowMs: number): Amounts {
  if (account.debtNano > 0n) return { daily: ZERO, usd: ZERO };
  const usd = nano(account.balanceNano - account.heldNano);
  if (account.dailyAllocationNano === 0n) return { daily: ZERO, usd };
  const today = account.dailyDay === dayOf(nowMs);
  const used = today ? account.dailySpentNano + account.dailyHeldNano : 0n;
  return {
    // An allocation that was lowered during the day can leave less than was used.
    daily: maxNano(ZERO, nano(account.dailyAllocationNano - used)),
    usd,
  };
}

/** First millisecond of the allowance period that contains `nowMs`; 0 for LIFETIME. */
export function periodStartMs(period: AllowancePeriod, nowMs: number): number {
  switch (period) {
    case 'EPOCH':
      return dayStartMs(dayOf(nowMs));
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
    case 'MONTH':
      return monthBounds(nowMs).endMs;
    case 'LIFETIME':
      return undefined;
  }
}

/** Divides a wish into daily credit and USD, or says what stands in its way. */
export function planHold(
  account: AccountState,
  allowance: AllowanceState | undefined,
  wish: HoldWish,
  nowMs: number,
): HoldPlan {
  // What is not spent, whether or not it is held.
  const posted = availableOf({ ...account, heldNano: 0n, dailyHeldNano: 0n }, nowMs);
  const postedNano = addNano(posted.daily, posted.usd);
  if (postedNano < wish.floorNano || postedNano < wish.minNano) {
    return { ok: false, reason: 'balance', postedNano };
  }
  const caps = allowance === undefined ? undefined : capsOf(allowance, nowMs);
  const reach = caps === undefined ? posted : within(posted, caps.diem.unspent, caps.usd.unspent);
  const reachNano = addNano(reach.daily, reach.usd);
  if (allowance !== undefined && caps !== undefined && isBelow(reachNano, wish.minNano, wish)) {
    return allowanceRefusal(allowance, caps, nowMs);
  }
  const open = availableOf(account, nowMs);
  const free = caps === undefined ? open : within(open, caps.diem.free, caps.usd.free);
  const freeNano = addNano(free.daily, free.usd);
  const useful = minNano(wish.usefulNano ?? wish.minNano, wish.maxNano);
  if (isBelow(freeNano, reachNano < useful ? wish.minNano : useful, wish)) {
    return reachNano > 0n
      ? { ok: false, reason: 'held', availableNano: freeNano }
      : { ok: false, reason: 'balance', postedNano };
  }
  const granted = grantOf(wish, useful, freeNano);
  const dailyNano = minNano(free.daily, granted);
  return { ok: true, dailyNano, usdNano: nano(granted - dailyNano), reachNano };
}

/** A priced request holds something, or its settle could take nothing. */
function isBelow(amount: Nano, least: Nano, wish: HoldWish): boolean {
  return wish.maxNano > 0n && (amount < least || amount === 0n);
}

interface Amounts {
  readonly daily: Nano;
  readonly usd: Nano;
}

function within(amounts: Amounts, diem: Nano, usd: Nano): Amounts {
  return { daily: minNano(amounts.daily, diem), usd: minNano(amounts.usd, usd) };
}

function grantOf(wish: HoldWish, useful: Nano, free: Nano): Nano {
  if (free <= useful || (wish.maxIsNamed === true && free >= wish.maxNano)) {
    return minNano(free, wish.maxNano);
  }
  return minNano(wish.maxNano, nano(useful + (free - useful) / SHARE_PARTS));
}

/** The room under a cap: what is not spent, and what of that is not held. */
interface Room {
  readonly unspent: Nano;
  readonly free: Nano;
}

interface Caps {
  readonly usd: Room;
  readonly diem: Room;
}

const UNLIMITED = nano(9_000_000_000_000_000_000n);
const NO_CAP: Room = { unspent: UNLIMITED, free: UNLIMITED };
function capsOf(allowance: AllowanceState, nowMs: number): Caps {
  const { usdLimitNano, usdSpentNano, usdHeldNano } = allowance;
  const { diemLimitNano, diemSpentNano, diemHeldNano } = allowance;
  if (allowance.periodStartMs !== periodStartMs(allowance.period, nowMs)) {
    return { usd: roomOf(usdLimitNano, 0n, 0n), diem: roomOf(diemLimitNano, 0n, 0n) };
  }
  return {
    usd: roomOf(usdLimitNano, usdSpentNano, usdHeldNano),
    diem: roomOf(diemLimitNano, diemSpentNano, diemHeldNano),
  };
}

function roomOf(limit: bigint | undefined, spent: bigint, held: bigint): Room {
  if (limit === undefined) return NO_CAP;
  const unspent = maxNano(ZERO, nano(limit - spent));
  return { unspent, free: maxNano(ZERO, nano(unspent - held)) };
}

function allowanceRefusal(allowance: AllowanceState, caps: Caps, nowMs: number): HoldRefusal {
  // The tighter of the two caps is the one that the caller has to raise.
  const usdTrips = caps.usd.unspent <= caps.diem.unspent;
  const current = allowance.periodStartMs === periodStartMs(allowance.period, nowMs);
  const spent = usdTrips ? allowance.usdSpentNano : allowance.diemSpentNano;
  return {
    ok: false,
    reason: usdTrips ? 'allowance-usd' : 'allowance-diem',
    limitNano: nano((usdTrips ? allowance.usdLimitNano : allowance.diemLimitNano) ?? 0n),
    spentNano: nano(current ? spent : 0n),
    resetsAtMs: periodEndMs(allowance.period, nowMs),
  };
}
