/**
 * `/budgets`, for ADMIN keys: what an account may spend in a day, week or month, in all, by what is
 * tagged alike, or by each value of a tag for itself: an end user each, without a key each. They bind
 * requests that are made with API keys.
 */
import { z } from 'zod';
import { cappedSpending } from '../billing/ledger/ledger.ts';
import { setBudgetCap } from '../billing/budgets/budgets.ts';
import { isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { toUsdNumber, usdToNano } from '../core/money.ts';
import { type RouteDescription, jsonAnswer, jsonContent } from '../http/describe.ts';
import { readBody, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, SMALL_JSON_BODY, get } from '../http/route.ts';
import { type Budget, budgetCap } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { AccountParts } from './account-parts.ts';
import { Amount, PERIOD, Time } from './api-key-schema.ts';

const PATH = '/budgets';
const MAX_BUDGETS = 50;
const MAX_TAG = 64;
const MAX_VALUE = 512;

const Tag = z.string().min(1).max(MAX_TAG);
const Value = z.string().min(1).max(MAX_VALUE);
const Usd = Amount.describe('Most USD a period; work that could cost more does not begin.');

const CreateBudgetRequest = z
  .object({
    tag: Tag.nullish().describe(
      'Name of a tag of `metadata`, such as `user`: only requests with it count. Null, the default: all.',
    ),
    value: Value.nullish().describe(
      'Value of the tag that counts. Null, the default: each value has the budget for itself.',
    ),
    period: PERIOD.describe(
      'When spending starts again from zero, at 00:00 UTC: each day (EPOCH), each week on Monday, each month, never.',
    ),
    usd: Usd,
  })
  .meta({ id: 'CreateBudgetRequest', examples: [{ tag: 'user', period: 'EPOCH', usd: 2 }] });

const UpdateBudgetRequest = z
  .object({ usd: Usd })
  .meta({ id: 'UpdateBudgetRequest', examples: [{ usd: 5 }] });

type BudgetItem = z.infer<typeof BudgetItem>;
const BudgetItem = z
  .object({
    id: z.string().describe('Id of the budget.'),
    tag: z.string().nullable().describe('Tag whose requests count; null: all requests count.'),
    value: z.string().nullable().describe('Value that counts; null: each value for itself.'),
    period: PERIOD.describe('When spending starts again from zero, at 00:00 UTC.'),
    usd: z.number().describe('Most USD a period.'),
    spentUsd: z
      .number()
      .nullable()
      .describe('USD spent in the running period; null where each value counts for itself.'),
    createdAt: Time,
  })
  .meta({ id: 'Budget' });

const BudgetAnswer = z.object({ data: BudgetItem.describe('The budget.') });
const BudgetList = z.object({
  object: z.literal('list').describe('Kind of the object.'),
  data: z.array(BudgetItem).describe('The budgets, oldest first.'),
});

const EXAMPLE: BudgetItem = {
  id: 'budget_019aa3f1c0de',
  tag: 'user',
  value: null,
  period: 'EPOCH',
  usd: 2,
  spentUsd: null,
  createdAt: '2026-11-21T04:00:00.000Z',
};
const ID = [{ name: 'id', in: 'path', about: 'Id of the budget.', example: EXAMPLE.id }] as const;

const LIST: RouteDescription = {
  tag: 'API keys',
  summary: 'List budgets',
  answers: [jsonAnswer('All of the account.', BudgetList, { object: 'list', data: [EXAMPLE] })],
};
const CREATE: RouteDescription = {
  tag: 'API keys',
  summary: 'Set a budget',
  about:
    'Begins with what was spent in the running period so far. A request that a budget does not cover is refused with 402 like one above the limit of its key; the message names the budget and when it starts again.',
  request: jsonContent(CreateBudgetRequest, { tag: 'user', period: 'EPOCH', usd: 2 }),
  answers: [jsonAnswer('The budget.', BudgetAnswer, { data: EXAMPLE })],
};
const UsageQuery = z.object({
  value: Value.optional().describe('A value of the tag, where each has the budget for itself.'),
});
const GET: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a budget',
  parameters: ID,
  query: UsageQuery,
  answers: [jsonAnswer('With what was spent of it.', BudgetAnswer, { data: EXAMPLE })],
  refusals: ['BUDGET_NOT_FOUND'],
};
const UPDATE: RouteDescription = {
  tag: 'API keys',
  summary: 'Change the amount of a budget',
  parameters: ID,
  request: jsonContent(UpdateBudgetRequest, { usd: 5 }),
  answers: [jsonAnswer('The budget as it is now.', BudgetAnswer, { data: EXAMPLE })],
  refusals: ['BUDGET_NOT_FOUND'],
};
const DELETE: RouteDescription = {
  tag: 'API keys',
  summary: 'Take a budget away',
  parameters: ID,
  answers: [
    jsonAnswer(
      'It bounds nothing any more.',
      z.object({ success: z.literal(true).describe('It is gone.') }),
      { success: true },
    ),
  ],
  refusals: ['BUDGET_NOT_FOUND'],
};

export function budgetRoutes(parts: AccountParts): Route[] {
  const { store, identity, ledger } = parts.stores;
  return [
    get(PATH, 'admin', LIST, async (context) => {
      const { accountId } = context.caller;
      const budgets = await identity.budgets(accountId);
      const data = await Promise.all(budgets.map((budget) => reportOf(parts, budget)));
      await context.json(200, { object: 'list', data });
    }),
    {
      method: 'POST',
      path: PATH,
      auth: 'admin',
      describe: CREATE,
      body: SMALL_JSON_BODY,
      handle: (context) => answerCreate(parts, context),
    },
    get(`${PATH}/:id`, 'admin', GET, async (context) => {
      const { value } = readQuery(context, UsageQuery);
      await context.json(200, {
        data: await reportOf(parts, await budgetIn(parts, context), value),
      });
    }),
    {
      method: 'PATCH',
      path: `${PATH}/:id`,
      auth: 'admin',
      describe: UPDATE,
      body: SMALL_JSON_BODY,
      handle: async (context) => {
        const { usd } = readBody(context, UpdateBudgetRequest);
        const changed = { ...(await budgetIn(parts, context)), usdLimitNano: usdToNano(usd) };
        await store.transaction(async (tx) => {
          await identity.updateBudget(changed, tx);
          await ledger.setBudgetLimit(tx, changed.accountId, changed.id, changed.usdLimitNano);
        });
        identity.forget();
        await context.json(200, { data: await reportOf(parts, changed) });
      },
    },
    {
      method: 'DELETE',
      path: `${PATH}/:id`,
      auth: 'admin',
      describe: DELETE,
      handle: async (context) => {
        const budget = await budgetIn(parts, context);
        await store.transaction(async (tx) => {
          await identity.deleteBudget(budget, tx);
          await ledger.dropBudget(tx, budget.accountId, budget.id);
        });
        identity.forget();
        await context.json(200, { success: true });
      },
    },
  ];
}

async function answerCreate(parts: AccountParts, context: RequestContext): Promise<void> {
  const { store, identity, ledger } = parts.stores;
  const { tag, value, period, usd } = readBody(context, CreateBudgetRequest);
  if ((tag ?? undefined) === undefined && (value ?? undefined) !== undefined) {
    throw refuse('value', 'Needs a `tag` whose value it is');
  }
  const { accountId } = context.caller;
  const wanted = {
    accountId,
    tag: tag ?? undefined,
    value: value ?? undefined,
    period,
    usdLimitNano: usdToNano(usd),
  };
  const made = await store.transaction(async (tx) => {
    await identity.lockAccount(accountId, tx);
    if ((await identity.budgets(accountId, tx)).length >= MAX_BUDGETS) {
      throw refuse('usd', `An account has ${MAX_BUDGETS} budgets at most; delete one first`);
    }
    const budget = await identity.createBudget(wanted, tx);
    if (!isEach(budget)) await setBudgetCap(ledger, tx, budgetCap(budget));
    return budget;
  });
  identity.forget();
  await context.json(200, { data: await reportOf(parts, made) });
}

function isEach({ tag, value }: Budget): boolean {
  return tag !== undefined && value === undefined;
}

/** Throws for one that the account does not have. */
async function budgetIn({ stores }: AccountParts, context: RequestContext): Promise<Budget> {
  const { accountId } = context.caller;
  const found = await stores.identity.findBudget(accountId, context.parameters['id'] ?? '');
  if (found === undefined) throw new Fault('BUDGET_NOT_FOUND');
  return found;
}

/** With what was spent, where that is one sum: of `value` where each value has the budget for itself. */
async function reportOf(
  { stores: { store }, clock }: AccountParts,
  budget: Budget,
  value = budget.value,
): Promise<BudgetItem> {
  const { tag, id, period, usdLimitNano, createdMs } = budget;
  const { capId } = budgetCap(budget, value);
  const isOneSum = !isEach(budget) || value !== undefined;
  const spent = isOneSum ? await cappedSpending(store, [capId], clock.nowMs()) : undefined;
  return {
    id,
    tag: tag ?? null,
    value: value ?? null,
    period,
    usd: toUsdNumber(usdLimitNano),
    spentUsd: spent === undefined ? null : toUsdNumber(spent.get(capId)?.usdNano ?? 0n),
    createdAt: isoTime(createdMs),
  };
}

function refuse(path: string, message: string): Fault {
  return refuseIssues([{ code: 'custom', path: [path], message }]);
}
