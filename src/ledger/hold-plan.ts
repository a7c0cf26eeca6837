/**
 * The arithmetic of a hold: what an account and an allowance (the cap of a key) can still cover,
 * how much of it a request gets, and how it divides into daily credit and USD. Pure; daily credit
 * is always spent before USD. The SQL of the PostgreSQL fast path says the same for whole batches.
 */
import { dayOf, dayStartMs, monthBounds } from '../kernel/clock.ts';
import { type Nano, ZERO, addNano, maxNano, minNano, nano } from '../kernel/money.ts';

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
  readonly maxNano: Nano;
  /** Posted credit that an account must have to start a request (0.10 USD by default). */
  readonly floorNano: Nano;
}

export type HoldRefusal =
  | { readonly ok: false; readonly reason: 'balance'; readonly availableNano: Nano }
  | {
      readonly ok: false;
      readonly reason: 'allowance-usd' | 'allowance-diem';
      readonly limitNano: Nano;
      readonly spentNano: Nano;
      /** When the period ends; absent for LIFETIME. */
      readonly resetsAtMs: number | undefined;
    };

export type HoldPlan =
  | { readonly ok: true; readonly dailyNano: Nano; readonly usdNano: Nano }
  | HoldRefusal;

/** Daily credit and USD that are neither spent nor held at `nowMs`; nothing while a debt is open. */
export function availableOf(account: AccountState, nowMs: number): { daily: Nano; usd: Nano } {
  if (account.debtNano > 0n) return { daily: ZERO, usd: ZERO };
  const today = account.dailyDay === dayOf(nowMs);
  const used = today ? account.dailySpentNano + account.dailyHeldNano : 0n;
  return {
    // An allocation that was lowered during the day can leave less than was used.
    daily: maxNano(ZERO, nano(account.dailyAllocationNano - used)),
    usd: nano(account.balanceNano - account.heldNano),
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
  const available = availableOf(account, nowMs);
  const posted = nano(account.balanceNano + available.daily);
  const total = addNano(available.daily, available.usd);
  if (posted < wish.floorNano || total < wish.minNano) {
    return { ok: false, reason: 'balance', availableNano: total };
  }
  const room = allowanceRoom(allowance, nowMs);
  const daily = minNano(available.daily, room.diem);
  const usd = minNano(available.usd, room.usd);
  if (addNano(daily, usd) < maxNano(wish.minNano, nano(1n)) && wish.maxNano > 0n) {
    return allowanceRefusal(allowance, room, nowMs);
  }
  const dailyNano = minNano(daily, wish.maxNano);
  return { ok: true, dailyNano, usdNano: minNano(usd, nano(wish.maxNano - dailyNano)) };
}

interface Room {
  readonly usd: Nano;
  readonly diem: Nano;
}

const UNLIMITED = nano(9_000_000_000_000_000_000n);

function allowanceRoom(allowance: AllowanceState | undefined, nowMs: number): Room {
  if (allowance === undefined) return { usd: UNLIMITED, diem: UNLIMITED };
  const current = allowance.periodStartMs === periodStartMs(allowance.period, nowMs);
  const usdUsed = current ? allowance.usdSpentNano + allowance.usdHeldNano : 0n;
  const diemUsed = current ? allowance.diemSpentNano + allowance.diemHeldNano : 0n;
  return {
    usd: leftOf(allowance.usdLimitNano, usdUsed),
    diem: leftOf(allowance.diemLimitNano, diemUsed),
  };
}

function leftOf(limit: bigint | undefined, used: bigint): Nano {
  return limit === undefined ? UNLIMITED : maxNano(ZERO, nano(limit - used));
}

function allowanceRefusal(
  allowance: AllowanceState | undefined,
  room: Room,
  nowMs: number,
): HoldRefusal {
  if (allowance === undefined) return { ok: false, reason: 'balance', availableNano: ZERO };
  // The tighter of the two caps is the one that the caller has to raise.
  const usdTrips = room.usd <= room.diem;
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
