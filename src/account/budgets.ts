/**
 * `/budgets`, for ADMIN keys: limits on the spending of an account per period, for all requests, for requests with
 * a tag, or for each value of a tag (for example for each end user).
 */
import * as z from 'zod';
import {
  budgetSpending,
  changeBudget,
  createBudget,
  deleteBudget,
} from '../billing/budgets/budgets.ts';
import { isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { toUsdNumber, usdToNano } from '../core/money.ts';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { readBody, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get, post, patch, remove } from '../http/route.ts';
import { type Budget, isEachValue } from '../identity/identity.ts';
import { isTagName, isTagValue, MAX_TAG_NAME_BYTES, MAX_TAG_VALUE_BYTES } from '../http/tags.ts';
import { refuseIssues } from '../json/validation.ts';
import type { AccountParts } from './account-parts.ts';
import { Amount, PERIOD, Time } from './api-key-schema.ts';

const PATH = '/budgets';

const Tag = z
  .string()
  .min(1)
  .max(MAX_TAG_NAME_BYTES)
  .refine(isTagName, `Must have at most ${MAX_TAG_NAME_BYTES} bytes of well-formed text`);
const Value = z
  .string()
  .min(1)
  .max(MAX_TAG_VALUE_BYTES)
  .refine(isTagValue, `Must have at most ${MAX_TAG_VALUE_BYTES} bytes of well-formed text`);
const Usd = Amount.describe('Maximum USD per period; requests that could exceed it are rejected.');

const CreateBudgetRequest = z
  .object({
    tag: Tag.nullish().describe(
      'Name of a tag in `metadata`, such as `user`: only requests with it count. Null (the default): all requests.',
    ),
    value: Value.nullish().describe(
      'Value of the tag that counts. Null (the default): each value has a budget of its own.',
    ),
    period: PERIOD.describe(
      'Start of a new period, at 00:00 UTC: each day (EPOCH), each week on Monday, each month, or never (LIFETIME).',
    ),
    usd: Usd,
  })
  .meta({ id: 'CreateBudgetRequest', examples: [{ tag: 'user', period: 'EPOCH', usd: 2 }] });

const UpdateBudgetRequest = z
  .object({ usd: Usd })
  .meta({ id: 'UpdateBudgetRequest', examples: [{ usd: 5 }] });

export type BudgetItem = z.infer<typeof BudgetItem>;
const BudgetItem = z
  .object({
    id: z.string().describe('Id of the budget.'),
    tag: z.string().nullable().describe('Tag of the requests that count; null: all requests.'),
    value: z.string().nullable().describe('Value that counts; null: each value separately.'),
    period: PERIOD.describe('Start of a new period, at 00:00 UTC.'),
    usd: z.number().describe('Maximum USD per period.'),
    spentUsd: z
      .number()
      .nullable()
      .describe('USD spent in the current period; null if each value counts separately.'),
    createdAt: Time,
  })
  .meta({ id: 'Budget' });

const BudgetResponse = z.object({ data: BudgetItem.describe('The budget.') });
const BudgetList = listOf(BudgetItem, 'The budgets, oldest first.');

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

const list: RouteDescription = {
  tag: 'API keys',
  summary: 'List budgets',
  response: jsonResponse('All budgets of the account.', BudgetList, {
    object: 'list',
    data: [EXAMPLE],
  }),
};
const create: RouteDescription = {
  tag: 'API keys',
  summary: 'Create a budget',
  about:
    'Includes the earlier spending of the current period. A request that exceeds a budget is rejected with 402; the message contains the budget and the start of its next period.',
  request: jsonContent(CreateBudgetRequest, { tag: 'user', period: 'EPOCH', usd: 2 }),
  response: jsonResponse('The budget.', BudgetResponse, { data: EXAMPLE }),
  refusals: ['BUDGET_LIMIT_REACHED'],
};
const UsageQuery = z.object({
  value: Value.optional().describe('A value of the tag, if each value has a budget of its own.'),
});
const getOne: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a budget',
  parameters: ID,
  query: UsageQuery,
  response: jsonResponse('The budget with its spending.', BudgetResponse, { data: EXAMPLE }),
  refusals: ['BUDGET_NOT_FOUND'],
};
const update: RouteDescription = {
  tag: 'API keys',
  summary: 'Change the amount of a budget',
  parameters: ID,
  request: jsonContent(UpdateBudgetRequest, { usd: 5 }),
  response: jsonResponse('The changed budget.', BudgetResponse, { data: EXAMPLE }),
  refusals: ['BUDGET_NOT_FOUND'],
};
const deleteOne: RouteDescription = {
  tag: 'API keys',
  summary: 'Delete a budget',
  parameters: ID,
  response: jsonResponse(
    'The budget is deleted.',
    z.object({ success: z.literal(true).describe('The budget was deleted.') }),
    { success: true },
  ),
  refusals: ['BUDGET_NOT_FOUND'],
};

export const BUDGET_DESCRIPTIONS = {
  list,
  create,
  get: getOne,
  update,
  delete: deleteOne,
} as const;

/** The differences between the routes of an account and those of the operator. */
interface BudgetPlace {
  readonly path: string;
  /** Name of the budget id in the path. */
  readonly idName: string;
  readonly auth: 'admin' | 'operator';
  readonly describe: Readonly<Record<keyof typeof BUDGET_DESCRIPTIONS, RouteDescription>>;
  readonly accountOf: (context: RequestContext) => Promise<string>;
}

export function budgetRoutes(parts: AccountParts): Route[] {
  return budgetRoutesAt(parts, {
    path: PATH,
    idName: 'id',
    auth: 'admin',
    describe: BUDGET_DESCRIPTIONS,
    accountOf: async ({ caller }) => caller.accountId,
  });
}

export function budgetRoutesAt(parts: AccountParts, place: BudgetPlace): Route[] {
  const { path, idName, auth, describe, accountOf } = place;
  const { stores } = parts;
  const idOf = async (context: RequestContext) => ({
    accountId: await accountOf(context),
    id: context.parameters[idName] ?? '',
  });
  return [
    get(path, auth, describe.list, async (context) => {
      const budgets = await stores.identity.budgets(await accountOf(context));
      const data = await Promise.all(budgets.map((budget) => reportOf(parts, budget)));
      await context.json(200, { object: 'list', data });
    }),
    post(path, auth, describe.create, async (context) => {
      const wanted = wantedBudget(readBody(context, CreateBudgetRequest));
      const accountId = await accountOf(context);
      const { wallet } = context.caller;
      if (wallet !== undefined) await stores.identity.openWalletAccount(wallet);
      const created = await createBudget(stores, { ...wanted, accountId });
      await context.json(200, { data: await reportOf(parts, created) });
    }),
    get(`${path}/:${idName}`, auth, describe.get, async (context) => {
      const { value } = readQuery(context, UsageQuery);
      const { accountId, id } = await idOf(context);
      const found = known(await stores.identity.findBudget(accountId, id));
      await context.json(200, { data: await reportOf(parts, found, value) });
    }),
    patch(`${path}/:${idName}`, auth, describe.update, async (context) => {
      const { usd } = readBody(context, UpdateBudgetRequest);
      const changed = known(await changeBudget(stores, await idOf(context), usdToNano(usd)));
      await context.json(200, { data: await reportOf(parts, changed) });
    }),
    remove(`${path}/:${idName}`, auth, describe.delete, async (context) => {
      const isDeleted = await deleteBudget(stores, await idOf(context));
      if (!isDeleted) throw new Fault('BUDGET_NOT_FOUND');
      await context.json(200, { success: true });
    }),
  ];
}

function wantedBudget({ tag, value, period, usd }: z.infer<typeof CreateBudgetRequest>) {
  if (typeof tag !== 'string' && typeof value === 'string') {
    const message = 'Needs the `tag` of the value';
    throw refuseIssues([{ code: 'custom', path: ['value'], message }]);
  }
  const usdLimitNano = usdToNano(usd);
  return { tag: tag ?? undefined, value: value ?? undefined, period, usdLimitNano };
}

function known(budget: Budget | undefined): Budget {
  if (budget === undefined) throw new Fault('BUDGET_NOT_FOUND');
  return budget;
}

/** The budget with its spending, or with that of `wanted` if each value has a budget of its own. */
async function reportOf(
  { stores: { store }, clock }: AccountParts,
  budget: Budget,
  wanted?: string,
): Promise<BudgetItem> {
  const value = isEachValue(budget) ? wanted : budget.value;
  const { tag, id, period, usdLimitNano, createdMs } = budget;
  const spent = await budgetSpending(store, budget, clock.nowMs(), value);
  return {
    id,
    tag: tag ?? null,
    value: value ?? null,
    period,
    usd: toUsdNumber(usdLimitNano),
    spentUsd: spent === undefined ? null : toUsdNumber(spent),
    createdAt: isoTime(createdMs),
  };
}
