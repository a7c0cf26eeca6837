/** `/admin/accounts/{id}/budgets`: the budgets of an account in the hands of the operator. */
import type { RouteDescription } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import type { AccountParts } from '../account-parts.ts';
import { BUDGET_DESCRIPTIONS, budgetRoutesAt } from '../budgets.ts';
import { accountOf } from './operator-accounts.ts';
import { ACCOUNT_PATH } from './operator-accounts-schema.ts';

const BUDGET_PATH = [
  ...ACCOUNT_PATH,
  { name: 'budgetId', in: 'path', about: 'Id of the budget.', example: 'budget_019aa3f1c0de' },
] as const;

function ofAccount(
  description: RouteDescription,
  summary: string,
  parameters: RouteDescription['parameters'] = BUDGET_PATH,
): RouteDescription {
  const refusals = ['ACCOUNT_NOT_FOUND', ...(description.refusals ?? [])] as const;
  return { ...description, tag: 'Operator', summary, parameters, refusals };
}

export function operatorBudgetRoutes(parts: AccountParts): Route[] {
  const { list, create, get, update, delete: remove } = BUDGET_DESCRIPTIONS;
  return budgetRoutesAt(parts, {
    path: '/admin/accounts/:id/budgets',
    idName: 'budgetId',
    auth: 'operator',
    describe: {
      list: ofAccount(list, 'List budgets of an account', ACCOUNT_PATH),
      create: ofAccount(create, 'Set a budget of an account', ACCOUNT_PATH),
      get: ofAccount(get, 'Get a budget of an account'),
      update: ofAccount(update, 'Change the amount of a budget of an account'),
      delete: ofAccount(remove, 'Take a budget of an account away'),
    },
    accountOf: async (context) => (await accountOf(parts, context)).id,
  });
}
