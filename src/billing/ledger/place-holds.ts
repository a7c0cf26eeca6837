/**
 * Places holds as rows, inside one transaction: those of queued jobs, which outlive every process,
 * and on PostgreSQL those that a process could not be granted at once. Each request gets its plan
 * in the order of arrival, and what is granted is set aside before the next one is looked at.
 */
import { ZERO, nano } from '../../core/money.ts';
import type { Dialect, Queryable, Statement } from '../../db/db.ts';
import { planHold } from './hold-plan.ts';
import type { HoldAnswer, HoldRequest } from './records.ts';
import { type States, readStates, saveStates } from './states.ts';

const INSERT_HOLD = `INSERT INTO ledger_hold (request_id, account_id, allowance_id,
  allowance_start_ms, usd_nano, daily_nano, daily_day, epoch_id, created_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`;

/** Holds of this epoch survive every process: those of queued jobs. */
export const DURABLE_EPOCH = 'durable';

export interface HoldContext {
  readonly dialect: Dialect;
  readonly epochId: string;
  readonly nowMs: number;
}

export async function placeHolds(
  tx: Queryable,
  context: HoldContext,
  requests: readonly HoldRequest[],
): Promise<HoldAnswer[]> {
  const accountIds = requests.map((request) => request.accountId);
  const allowanceIds = requests.flatMap((request) => request.allowanceId ?? []);
  const states = await readStates(tx, context, accountIds, allowanceIds);
  const inserts: Statement[] = [];
  const answers = requests.map((request) => placeOne(context, states, request, inserts));
  if (inserts.length > 0) saveStates(inserts, states);
  await tx.run(inserts);
  return answers;
}

function placeOne(
  { epochId, nowMs }: HoldContext,
  states: States,
  request: HoldRequest,
  inserts: Statement[],
): HoldAnswer {
  const { requestId, accountId, allowanceId = null } = request;
  const account = states.accounts.get(accountId);
  if (account === undefined) return { ok: false, reason: 'balance', postedNano: ZERO };
  const allowance = allowanceId === null ? undefined : states.allowances.get(allowanceId);
  const planned = planHold(account, allowance, request, nowMs);
  if (!planned.ok) return planned;
  const { usdNano, dailyNano, reachNano, before } = planned;
  account.heldNano += usdNano;
  account.dailyHeldNano += dailyNano;
  if (allowance !== undefined) {
    allowance.usdHeldNano += usdNano;
    allowance.diemHeldNano += dailyNano;
  }
  const epoch = request.lifetime === 'durable' ? DURABLE_EPOCH : epochId;
  inserts.push({
    sql: INSERT_HOLD,
    parameters: [
      requestId,
      accountId,
      allowance === undefined ? null : allowanceId,
      allowance?.periodStartMs ?? 0,
      usdNano,
      dailyNano,
      account.dailyDay,
      epoch,
      nowMs,
    ],
  });
  const grantedNano = nano(dailyNano + usdNano);
  return { ok: true, hold: { requestId, accountId, grantedNano, dailyNano, reachNano, before } };
}
