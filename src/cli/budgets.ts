/** `farebox budgets`: what an account may spend in a period, in all or by the tags of its requests. */
import { isoTimeOrNull } from '../core/clock.ts';
import {
  budgetSpending,
  changeBudget,
  createBudget,
  deleteBudget,
} from '../billing/budgets/budgets.ts';
import type { Nano } from '../core/money.ts';
import { isTagName, isTagValue, MAX_TAG_NAME_BYTES, MAX_TAG_VALUE_BYTES } from '../http/tags.ts';
import { type Account, type Budget, LIMIT_PERIODS } from '../identity/identity.ts';
import {
  type Command,
  type CommandContext,
  type Invocation,
  UsageError,
  findAccount,
  jsonUsd,
  shownTime,
  shownUsd,
  withStores,
} from './command.ts';
import { PERIOD_WORDS } from './keys.ts';
import { table } from './terminal.ts';

const WHOSE = `
  --account <id or name>   whose budget it is (default: the owner)`;
const FOLLOWS = 'A running server follows within three seconds.';

export const budgetsListCommand: Command = {
  name: 'budgets list',
  summary: 'List the budgets of an account with what is spent',
  usage: 'budgets list [--account <account>]',
  details: `
  --account <id or name>   whose budgets (default: the owner)`,
  run: (invocation) =>
    withStores(invocation, async ({ stores, clock }) => {
      const account = await findAccount(stores, invocation.text('account'));
      const budgets = await stores.identity.budgets(account.id);
      const spent = await Promise.all(
        budgets.map((budget) => budgetSpending(stores.store, budget, clock.nowMs())),
      );
      const rows = budgets.map((budget, at) => ({ budget, spentNano: spent[at] }));
      invocation.answer(
        () => rows.map(({ budget, spentNano }) => jsonBudget(budget, spentNano)),
        () =>
          rows.length === 0
            ? `The account "${account.name}" has no budgets; "farebox budgets create" makes one\n`
            : table(
                ['ID', 'COUNTS', 'LIMIT', 'SPENT', 'CREATED'],
                rows.map(({ budget, spentNano }) => [
                  budget.id,
                  countsOf(budget),
                  limitOf(budget),
                  spentNano === undefined ? '-' : `${shownUsd(spentNano)} USD`,
                  shownTime(budget.createdMs),
                ]),
              ),
      );
    }),
};

export const budgetsCreateCommand: Command = {
  name: 'budgets create',
  summary: 'Set what an account may spend in a period',
  usage: 'budgets create --usd <amount> --period <period> [options]',
  details: `${WHOSE}
  --usd <amount>           the most that is spent in a period
  --period <period>        EPOCH (a day, from 00:00 UTC), WEEK (from Monday), MONTH or LIFETIME
  --tag <name>             only requests with this tag count; each value has the amount for itself
  --value <text>           only this value of the tag counts

${FOLLOWS}

Example: farebox budgets create --usd 2 --period EPOCH --tag user`,
  run: (invocation) => {
    const wanted = wantedBudget(invocation);
    return withStores(invocation, async ({ stores }) => {
      const account = await findAccount(stores, invocation.text('account'));
      const budget = await createBudget(stores, { ...wanted, accountId: account.id });
      invocation.answer(
        () => jsonBudget(budget, undefined),
        () => `The budget ${budget.id} of the account "${account.name}": ${limitOf(budget)}\n`,
      );
    });
  },
};

/** What the words ask for; checked before anything is opened. */
function wantedBudget(invocation: Invocation): Omit<Budget, 'id' | 'accountId' | 'createdMs'> {
  const usdLimitNano = invocation.amount('usd');
  const period = invocation.word('period', LIMIT_PERIODS);
  const [tag, value] = [invocation.text('tag'), invocation.text('value')];
  if (usdLimitNano === undefined || period === undefined) {
    throw new UsageError('Say --usd and --period');
  }
  if (tag === undefined && value !== undefined) throw new UsageError('--value needs a --tag');
  if (tag !== undefined && !isTagName(tag)) {
    throw new UsageError(`--tag has 1 to ${MAX_TAG_NAME_BYTES} bytes`);
  }
  if (value === '' || (value !== undefined && !isTagValue(value))) {
    throw new UsageError(`--value has 1 to ${MAX_TAG_VALUE_BYTES} bytes`);
  }
  return { tag, value, period, usdLimitNano };
}

export const budgetsUpdateCommand: Command = {
  name: 'budgets update',
  takesWords: true,
  summary: 'Change the amount of a budget',
  usage: 'budgets update <budget id> --usd <amount>',
  details: `${WHOSE}
  --usd <amount>           the most that is spent in a period

${FOLLOWS}`,
  run: (invocation) => {
    const usdLimitNano = invocation.amount('usd');
    if (usdLimitNano === undefined) throw new UsageError('Say --usd');
    return withBudget(invocation, async ({ stores }, of, account) => {
      const budget = await changeBudget(stores, of, usdLimitNano);
      if (budget === undefined) throw unknownBudget(of.id, account);
      invocation.answer(
        () => jsonBudget(budget, undefined),
        () => `The budget ${budget.id}: ${limitOf(budget)}\n`,
      );
    });
  },
};

export const budgetsDeleteCommand: Command = {
  name: 'budgets delete',
  takesWords: true,
  summary: 'Take a budget away',
  usage: 'budgets delete <budget id>',
  details: `${WHOSE}

${FOLLOWS}`,
  run: (invocation) =>
    withBudget(invocation, async ({ stores }, of, account) => {
      if (!(await deleteBudget(stores, of))) throw unknownBudget(of.id, account);
      invocation.answer(
        () => ({ id: of.id, deleted: true }),
        () => `The budget ${of.id} is gone\n`,
      );
    }),
};

function withBudget(
  invocation: Invocation,
  work: (
    context: CommandContext,
    of: Pick<Budget, 'id' | 'accountId'>,
    account: Account,
  ) => Promise<void>,
) {
  const id = invocation.only('Name one budget by its id');
  return withStores(invocation, async (context) => {
    const account = await findAccount(context.stores, invocation.text('account'));
    await work(context, { id, accountId: account.id }, account);
  });
}

function unknownBudget(id: string, account: Account): Error {
  return new Error(
    `The account "${account.name}" has no budget "${id}"; "farebox budgets list" shows them`,
  );
}

function countsOf({ tag, value }: Budget): string {
  if (tag === undefined) return 'everything';
  return value === undefined ? `each ${tag}` : `${tag} ${value}`;
}

function limitOf({ usdLimitNano, period }: Budget): string {
  return `${shownUsd(usdLimitNano)} USD ${PERIOD_WORDS[period]}`;
}

function jsonBudget(budget: Budget, spentNano: Nano | undefined) {
  return {
    id: budget.id,
    accountId: budget.accountId,
    tag: budget.tag ?? null,
    value: budget.value ?? null,
    period: budget.period,
    usd: jsonUsd(budget.usdLimitNano),
    spentUsd: jsonUsd(spentNano),
    createdAt: isoTimeOrNull(budget.createdMs),
  };
}
