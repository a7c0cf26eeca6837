/**
 * Decides the amount of a charge: the cost is taken from what the hold set aside, daily credit
 * first; without a hold, from what is available. Pure functions; no other file decides this.
 */
import { assert } from '../../core/assert.ts';
import { type Nano, larger, nano, smaller } from '../../core/money.ts';
import { type AccountState, type CapState, type CountedCap, dailyLeft } from './plan.ts';

export interface HeldAmounts {
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  readonly dailyDay: number;
  readonly capIds: readonly string[] | undefined;
  /** The hold counts in the periods of its caps that began by this time, and in no later ones. */
  readonly capsMs: number;
  /** Where the amounts are counted: in memory, in a row of this hold, or in a lease. */
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
  nowMs: number,
): Taken {
  if (held !== undefined && held.from !== 'memory') giveBack(account, caps, held);
  // An account with a debt spends only what is already held.
  const mayTake = held !== undefined || account.debtNano === 0n;
  const free = mayTake ? account.balanceNano - account.heldNano : 0n;
  const diemNano = least(costNano, held?.dailyNano ?? lateDaily(account, nowMs));
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

/** Daily credit that is neither spent nor held. */
function lateDaily(account: AccountState, nowMs: number): bigint {
  return account.debtNano > 0n ? 0n : dailyLeft(account, nowMs) - account.dailyHeldNano;
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

function least(a: bigint, b: bigint): Nano {
  return larger(smaller(a, b), 0n) as Nano; // both are nano-USD
}
