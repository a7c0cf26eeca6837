/**
 * Settles a batch of holds inside one transaction: takes the cost (daily credit first), gives the
 * rest back, posts the transfers, writes the usage records and adds them to the day rollups.
 *
 * Exactly once: deleting the hold is the right to charge. A request whose hold is gone was settled
 * before, or its process was taken for dead; then the usage record decides, and a late settle
 * takes at most what is available.
 */
import { dayOf } from '../../core/clock.ts';
import { type Nano, maxNano, minNano, nano } from '../../core/money.ts';
import type { Dialect, Queryable } from '../../db/db.ts';
import { availableOf } from './hold-plan.ts';
import type { Balances, SettleRequest, Settlement, UsageRecord } from './records.ts';
import type { States } from './states.ts';
import { insertTransfer } from './transfers.ts';
import { addToDays, insertUsage } from './usage-records.ts';

interface HoldRow {
  readonly request_id: string;
  readonly account_id: string;
  readonly allowance_id: string | null;
  readonly allowance_start_ms: bigint;
  readonly usd_nano: bigint;
  readonly daily_nano: bigint;
  readonly daily_day: bigint;
}

/** One settled request, as the records need it. */
interface Charged {
  readonly request: SettleRequest;
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

const DELETE_HOLD = `DELETE FROM ledger_hold WHERE request_id = $1 AND account_id = $2
  RETURNING request_id, account_id,
  allowance_id, allowance_start_ms, usd_nano, daily_nano, daily_day`;
const FIND_USAGE =
  'SELECT usd_nano, diem_nano FROM ledger_usage WHERE request_id = $1 AND day = $2';

export interface SettleContext {
  readonly tx: Queryable;
  readonly dialect: Dialect;
  readonly states: States;
  readonly nowMs: number;
  /** Told when a cost is above its hold, which the admission bound rules out. */
  readonly onOverrun: (requestId: string, costNano: Nano, heldNano: Nano) => void;
}

export async function settleHolds(
  context: SettleContext,
  requests: readonly SettleRequest[],
): Promise<Settlement[]> {
  // By place, not by request id: a repeat finds its hold gone.
  const holds: (HoldRow | undefined)[] = [];
  for (const { usage } of requests) {
    const rows = await context.tx.query<HoldRow>(DELETE_HOLD, [usage.requestId, usage.accountId]);
    holds.push(rows[0]);
  }
  await context.states.load(
    requests.map((request) => request.usage.accountId),
    holds.flatMap((hold) => hold?.allowance_id ?? []),
  );
  const charged: Charged[] = [];
  const settlements: Settlement[] = [];
  for (const [index, request] of requests.entries()) {
    settlements.push(await settleOne(context, request, holds[index], charged));
  }
  await context.states.save();
  await addToDays(context.tx, charged);
  return settlements;
}

async function settleOne(
  context: SettleContext,
  request: SettleRequest,
  hold: HoldRow | undefined,
  charged: Charged[],
): Promise<Settlement> {
  const { usage } = request;
  if (hold === undefined) {
    const before = await settledBefore(context, usage);
    if (before !== undefined) return before;
  }
  const parts = hold === undefined ? takeLate(context, request) : takeHeld(context, request, hold);
  const creditDay = hold === undefined ? dayOf(context.nowMs) : Number(hold.daily_day);
  await postCharge(context, request, parts, creditDay);
  await insertUsage(context.tx, usage, parts);
  charged.push({ request, ...parts });
  return { fresh: true, ...parts, after: balancesAfter(context, usage.accountId) };
}

/** The cost out of the hold; what is left of the hold goes back. */
function takeHeld(
  context: SettleContext,
  request: SettleRequest,
  hold: HoldRow,
): { usdNano: Nano; diemNano: Nano } {
  const heldNano = nano(hold.usd_nano + hold.daily_nano);
  if (request.costNano > heldNano) {
    context.onOverrun(request.usage.requestId, request.costNano, heldNano);
  }
  const cost = minNano(request.costNano, heldNano);
  const diemNano = minNano(cost, nano(hold.daily_nano));
  const usdNano = nano(cost - diemNano);
  const account = context.states.account(hold.account_id);
  if (account !== undefined) {
    account.balanceNano -= usdNano;
    account.heldNano -= hold.usd_nano;
    // A hold of yesterday spends yesterday's credit, which today's counters no longer hold.
    if (Number(hold.daily_day) === account.dailyDay) {
      account.dailyHeldNano -= hold.daily_nano;
      account.dailySpentNano += diemNano;
    }
  }
  const allowance = context.states.allowance(hold.allowance_id);
  if (allowance !== undefined && Number(hold.allowance_start_ms) === allowance.periodStartMs) {
    allowance.usdHeldNano -= hold.usd_nano;
    allowance.diemHeldNano -= hold.daily_nano;
    allowance.usdSpentNano += usdNano;
    allowance.diemSpentNano += diemNano;
  }
  return { usdNano, diemNano };
}

/** A settle after the epoch was closed: the hold is gone, so only what is available is taken. */
function takeLate(
  context: SettleContext,
  request: SettleRequest,
): { usdNano: Nano; diemNano: Nano } {
  const account = context.states.account(request.usage.accountId);
  if (account === undefined) return { usdNano: nano(0n), diemNano: nano(0n) };
  const available = availableOf(account, context.nowMs);
  const diemNano = minNano(request.costNano, available.daily);
  const usdNano = minNano(nano(request.costNano - diemNano), available.usd);
  account.balanceNano -= usdNano;
  account.dailySpentNano += diemNano;
  return { usdNano, diemNano };
}

async function settledBefore(
  context: SettleContext,
  usage: UsageRecord,
): Promise<Settlement | undefined> {
  const rows = await context.tx.query<{ usd_nano: bigint; diem_nano: bigint }>(FIND_USAGE, [
    usage.requestId,
    dayOf(usage.createdMs),
  ]);
  const row = rows[0];
  if (row === undefined) return undefined;
  return {
    fresh: false,
    usdNano: nano(row.usd_nano),
    diemNano: nano(row.diem_nano),
    after: balancesAfter(context, usage.accountId),
  };
}

async function postCharge(
  context: SettleContext,
  { usage }: SettleRequest,
  parts: { usdNano: Nano; diemNano: Nano },
  creditDay: number,
): Promise<void> {
  const common = {
    id: usage.requestId,
    accountId: usage.accountId,
    creditAccount: 'house:revenue',
    kind: 'CHARGE',
    requestId: usage.requestId,
    modelId: usage.modelId,
    balanceAfterNano: balancesAfter(context, usage.accountId).usdNano,
    nowMs: context.nowMs,
  } as const;
  if (parts.usdNano > 0n) {
    const usd = { part: 0, debitAccount: usage.accountId, amountNano: parts.usdNano };
    await insertTransfer(context.tx, { ...common, ...usd });
  }
  if (parts.diemNano > 0n) {
    const diem = { part: 1, debitAccount: 'house:daily-credit', amountNano: parts.diemNano };
    await insertTransfer(context.tx, { ...common, ...diem, day: creditDay });
  }
}

function balancesAfter(context: SettleContext, accountId: string): Balances {
  const account = context.states.account(accountId);
  if (account === undefined) return { usdNano: nano(0n), diemNano: nano(0n) };
  const spent = nano(account.dailyAllocationNano - account.dailySpentNano);
  return { usdNano: nano(account.balanceNano), diemNano: maxNano(nano(0n), spent) };
}
