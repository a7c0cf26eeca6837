/**
 * Places a batch of holds inside one transaction: each request gets its plan in the order of
 * arrival, and what is granted is set aside before the next one is looked at.
 */
import { type Nano, addNano, maxNano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import { availableOf, planHold } from './hold-plan.ts';
import type { HoldAnswer, HoldRequest } from './records.ts';
import type { States } from './states.ts';

const INSERT_HOLD = `INSERT INTO ledger_hold (request_id, account_id, allowance_id,
  allowance_start_ms, usd_nano, daily_nano, daily_day, epoch_id, created_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`;

/** Holds of this epoch survive every process: those of queued jobs. */
export const DURABLE_EPOCH = 'durable';

export interface HoldContext {
  readonly tx: Queryable;
  readonly states: States;
  readonly epochId: string;
  readonly nowMs: number;
}

export async function placeHolds(
  context: HoldContext,
  requests: readonly HoldRequest[],
): Promise<HoldAnswer[]> {
  await context.states.load(
    requests.map((request) => request.accountId),
    requests.flatMap((request) => request.allowanceId ?? []),
  );
  const answers: HoldAnswer[] = [];
  for (const request of requests) answers.push(await placeOne(context, request));
  if (answers.some((answer) => answer.ok)) await context.states.save();
  return answers;
}

async function placeOne(context: HoldContext, request: HoldRequest): Promise<HoldAnswer> {
  const { states, nowMs } = context;
  const account = states.account(request.accountId);
  if (account === undefined) return { ok: false, reason: 'balance', postedNano: nano(0n) };
  const allowance = states.allowance(request.allowanceId);
  const plan = planHold(account, allowance, request, nowMs);
  if (!plan.ok) return plan;
  const before = { usdNano: nano(account.balanceNano), diemNano: dailyLeft(account, nowMs) };
  account.heldNano += plan.usdNano;
  account.dailyHeldNano += plan.dailyNano;
  if (allowance !== undefined) {
    allowance.usdHeldNano += plan.usdNano;
    allowance.diemHeldNano += plan.dailyNano;
  }
  await context.tx.query(INSERT_HOLD, [
    request.requestId,
    request.accountId,
    allowance === undefined ? null : (request.allowanceId ?? null),
    allowance?.periodStartMs ?? 0,
    plan.usdNano,
    plan.dailyNano,
    account.dailyDay,
    request.lifetime === 'durable' ? DURABLE_EPOCH : context.epochId,
    nowMs,
  ]);
  return {
    ok: true,
    hold: {
      requestId: request.requestId,
      accountId: request.accountId,
      grantedNano: addNano(plan.dailyNano, plan.usdNano),
      reachNano: plan.reachNano,
      before,
    },
  };
}

/** Daily credit that is not spent yet, holds not counted: what the balance header shows. */
function dailyLeft(account: Parameters<typeof availableOf>[0], nowMs: number): Nano {
  const open = { ...account, dailyHeldNano: 0n };
  return maxNano(nano(0n), availableOf(open, nowMs).daily);
}
