/** `/admin/accounts/{id}/budgets`: the budgets of an account, for the operator. */
import type { Route } from '../../http/route.ts';
import type { AccountParts } from '../account-parts.ts';
import { BUDGET_DESCRIPTIONS, budgetRoutesAt } from '../budgets.ts';
import { accountOf } from './operator-accounts.ts';
import { ACCOUNT_PATH, ofAccount } from './operator-accounts-schema.ts';

const BUDGET_PATH = [
  ...ACCOUNT_PATH,
  { name: 'budgetId', in: 'path', about: 'Id of the budget.', example: 'budget_019aa3f1c0de' },
] as const;

export function operatorBudgetRoutes(parts: AccountParts): Route[] {
  const { list, create, get, update, delete: remove } = BUDGET_DESCRIPTIONS;
  return budgetRoutesAt(parts, {
    path: '/admin/accounts/:id/budgets',
    idName: 'budgetId',
    auth: 'operator',
    describe: {
      list: ofAccount(list, 'List budgets of an account'),
      create: ofAccount(create, 'Create a budget of an account'),
      get: ofAccount(get, 'Get a budget of an account', BUDGET_PATH),
      update: ofAccount(update, 'Change the amount of a budget of an account', BUDGET_PATH),
      delete: ofAccount(remove, 'Delete a budget of an account', BUDGET_PATH),
    },
    accountOf: async (context) => (await accountOf(parts, context)).id,
  });
}
