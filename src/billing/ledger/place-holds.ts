/**
 * Places holds as rows, inside one transaction: those of queued jobs, which outlive every process,
 * and on PostgreSQL those of requests where there is too little to lease. Each request gets its plan
 * in the order of arrival, and what is granted is set aside before the next one is looked at.
 */
import { type Nano, ZERO, nano } from '../../core/money.ts';
import type { Dialect, Queryable, Statement } from '../../db/db.ts';
import { type AccountState, type BudgetState, type HoldRefusal, planHold } from './hold-plan.ts';
import type { Balances, HoldResult, HoldRequest } from './records.ts';
import { type States, lockStates, readStates, saveStates } from './states.ts';

export const INSERT_HOLD = `INSERT INTO ledger_hold (request_id, account_id, allowance_id,
  allowance_start_ms, usd_nano, daily_nano, daily_day, epoch_id, created_ms, budget_ids)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`;

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
): Promise<HoldResult[]> {
  const accountIds = requests.map((request) => request.accountId);
  const allowanceIds = requests.flatMap((request) => capIdsOf(request));
  const states = await lockStates(tx, context, accountIds, allowanceIds);
  const inserts: Statement[] = [];
  const answers = requests.map((request) => {
    const planned = planFor(states, request, context.nowMs);
    return planned.ok ? insertHold(inserts, context, request, planned) : planned;
  });
  if (inserts.length > 0) saveStates(inserts, states);
  await tx.run(inserts);
  return answers;
}

/** All caps that a request, or its hold, counts against. */
export function capIdsOf(of: Pick<HoldRequest, 'allowanceId' | 'budgetIds'>): readonly string[] {
  const { allowanceId, budgetIds = [] } = of;
  return allowanceId === undefined ? budgetIds : [allowanceId, ...budgetIds];
}

/** A hold that has been set aside in the states of its account and its allowance. */
export interface PlannedHold {
  readonly ok: true;
  readonly usdNano: Nano;
  readonly dailyNano: Nano;
  readonly spendableNano: Nano;
  readonly before: Balances;
  readonly dailyDay: number;
  /** Missing without a cap. */
  readonly allowanceStartMs: number | undefined;
  /** Since when it counts. */
  readonly createdMs: number;
}

/** Plans one request and sets aside what it gets, so that the next one sees it. */
export function planFor(
  states: States,
  request: HoldRequest,
  nowMs: number,
): PlannedHold | HoldRefusal {
  const account = states.accounts.get(request.accountId);
  if (account === undefined) return { ok: false, reason: 'balance', postedNano: ZERO };
  const allowance = states.allowances.get(request.allowanceId ?? '');
  const budgets = request.budgetIds && budgetsOf(states, request.budgetIds);
  const planned = planHold(account, allowance, request, nowMs, undefined, undefined, budgets);
  if (!planned.ok) return planned;
  const { usdNano, dailyNano } = planned;
  account.heldNano += usdNano;
  account.dailyHeldNano += dailyNano;
  if (allowance !== undefined) {
    allowance.usdHeldNano += usdNano;
    allowance.diemHeldNano += dailyNano;
  }
  for (const { state } of budgets ?? []) {
    state.usdHeldNano += usdNano;
    state.diemHeldNano += dailyNano;
  }
  const createdMs = createdMsOf(nowMs, budgets);
  const { dailyDay } = account;
  return { ...planned, dailyDay, allowanceStartMs: allowance?.periodStartMs, createdMs };
}

/**
 * The cap that refuses a hold also when `creditNano` more is posted; `undefined` without one. A look
 * ahead: it locks nothing and sets nothing aside.
 */
export async function refusalByCap(
  store: Queryable,
  request: HoldRequest,
  creditNano: bigint,
  nowMs: number,
): Promise<HoldRefusal | undefined> {
  const { accountId, allowanceId = '', budgetIds = [] } = request;
  const capIds = capIdsOf(request);
  if (capIds.length === 0) return undefined;
  const states = await readStates(store, nowMs, [accountId], capIds);
  const account = states.accounts.get(accountId) ?? NEW_ACCOUNT;
  const credited = { ...account, balanceNano: account.balanceNano + creditNano };
  const allowance = states.allowances.get(allowanceId);
  const budgets = budgetsOf(states, budgetIds);
  const planned = planHold(credited, allowance, request, nowMs, undefined, undefined, budgets);
  if (planned.ok || planned.reason === 'balance' || planned.reason === 'held') return undefined;
  return planned;
}

const NEW_ACCOUNT: AccountState = {
  balanceNano: 0n,
  heldNano: 0n,
  dailyAllocationNano: 0n,
  dailyDay: 0,
  dailySpentNano: 0n,
  dailyHeldNano: 0n,
  debtNano: 0n,
};

/**
 * A hold counts in the periods of its budgets that began by then: in those that it was planned in,
 * also where the clock of another process is ahead of this one and has begun them.
 */
export function createdMsOf(nowMs: number, budgets: readonly BudgetState[] = []): number {
  return budgets.reduce((ms, { state }) => Math.max(ms, state.periodStartMs), nowMs);
}

/** Those that are there; a budget that was deleted bounds nothing. */
export function budgetsOf(states: States, budgetIds: readonly string[]): BudgetState[] {
  return budgetIds.flatMap((id) => {
    const state = states.allowances.get(id);
    return state === undefined ? [] : { id, state, beside: NOTHING_BESIDE };
  });
}

const NOTHING_BESIDE = { usdNano: 0n, diemNano: 0n };

/** Adds the row of a planned hold. */
export function insertHold(
  inserts: Statement[],
  { epochId }: Pick<HoldContext, 'epochId'>,
  { requestId, accountId, allowanceId, budgetIds, lifetime }: HoldRequest,
  planned: PlannedHold,
): HoldResult & { readonly ok: true } {
  const { usdNano, dailyNano, dailyDay, allowanceStartMs, createdMs, spendableNano, before } =
    planned;
  inserts.push({
    sql: INSERT_HOLD,
    parameters: [
      requestId,
      accountId,
      allowanceStartMs === undefined ? null : (allowanceId ?? null),
      allowanceStartMs ?? 0,
      usdNano,
      dailyNano,
      dailyDay,
      lifetime === 'durable' ? DURABLE_EPOCH : epochId,
      createdMs,
      budgetIds === undefined ? null : JSON.stringify(budgetIds),
    ],
  });
  const grantedNano = nano(dailyNano + usdNano);
  return {
    ok: true,
    hold: { requestId, accountId, grantedNano, dailyNano, spendableNano, before },
  };
}
