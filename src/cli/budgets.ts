/** `farebox budgets`: the spending budgets of an account, over all requests or by tag. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { isoTimeOrNull } from '../core/clock.ts';
import {
  budgetSpending,
  changeBudget,
  createBudget,
  deleteBudget,
} from '../billing/budgets/budgets.ts';
import type { Nano } from '../core/money.ts';
import { isTagName, isTagValue, MAX_TAG_NAME_BYTES, MAX_TAG_VALUE_BYTES } from '../http/tags.ts';
import type { Budget } from '../identity/identity.ts';
import {
  ACCOUNT,
  APPLIES_SOON,
  type Cli,
  UsageError,
  jsonUsd,
  shownTime,
  shownUsd,
  usd,
} from './command.ts';
import { PERIOD, PERIOD_WORDS } from './keys.ts';
import { table } from './terminal.ts';

const USD = ['--usd <amount>', 'largest amount per period, in USD', usd] as const;
const BUDGET = ['<budget id>', 'id of the budget, as "farebox budgets list" shows it'] as const;

export function budgetsCommands(cli: Cli): void {
  listCommand(cli);
  createCommand(cli);
  updateCommand(cli);
  deleteCommand(cli);
}

function listCommand(cli: Cli): void {
  cli
    .group('budgets')
    .command('list')
    .description('List the budgets of an account with the amounts spent')
    .option(...ACCOUNT)
    .action((options) =>
      cli.withAccount(options, async ({ stores, clock, account }) => {
        const budgets = await stores.identity.budgets(account.id);
        const rows = await Promise.all(
          budgets.map(async (budget) => {
            const spentNano = await budgetSpending(stores.store, budget, clock.nowMs());
            return { budget, spentNano };
          }),
        );
        cli.print(
          rows.map(({ budget, spentNano }) => jsonBudget(budget, spentNano)),
          rows.length === 0
            ? `The account "${account.name}" has no budgets; "farebox budgets create" creates one\n`
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
    );
}

function createCommand(cli: Cli): void {
  cli
    .group('budgets')
    .command('create')
    .description(`Create a budget that limits the spending of an account per period

${APPLIES_SOON}

Example: farebox budgets create --usd 2 --period EPOCH --tag user`)
    .option(...ACCOUNT)
    .option(...USD)
    .option(...PERIOD)
    .option(
      '--tag <name>',
      'count only requests with this tag; each value of the tag has the whole amount',
      tagName,
    )
    .option('--value <text>', 'count only this value of the tag', tagValue)
    .action(({ account: wanted, usd: usdLimitNano, period, tag, value }) => {
      if (usdLimitNano === undefined || period === undefined) {
        throw new UsageError('The options --usd and --period are required');
      }
      if (tag === undefined && value !== undefined) throw new UsageError('--value needs --tag');
      return cli.withAccount({ account: wanted }, async ({ stores, account }) => {
        const accountId = account.id;
        const budget = await createBudget(stores, { accountId, tag, value, period, usdLimitNano });
        cli.print(
          jsonBudget(budget, undefined),
          `Created the budget ${budget.id} of the account "${account.name}": ${limitOf(budget)}\n`,
        );
      });
    });
}

function updateCommand(cli: Cli): void {
  cli
    .group('budgets')
    .command('update')
    .description(`Change the amount of a budget

${APPLIES_SOON}`)
    .argument(...BUDGET)
    .option(...ACCOUNT)
    .option(...USD)
    .action((id, { usd: usdLimitNano, ...options }) => {
      if (usdLimitNano === undefined) throw new UsageError('The option --usd is required');
      return cli.withAccount(options, async ({ stores, account }) => {
        const budget = await changeBudget(stores, { id, accountId: account.id }, usdLimitNano);
        if (budget === undefined) throw unknownBudget(id, account);
        cli.print(
          jsonBudget(budget, undefined),
          `Updated the budget ${budget.id}: ${limitOf(budget)}\n`,
        );
      });
    });
}

function deleteCommand(cli: Cli): void {
  cli
    .group('budgets')
    .command('delete')
    .description(`Delete a budget

${APPLIES_SOON}`)
    .argument(...BUDGET)
    .option(...ACCOUNT)
    .action((id, options) =>
      cli.withAccount(options, async ({ stores, account }) => {
        const isDeleted = await deleteBudget(stores, { id, accountId: account.id });
        if (!isDeleted) throw unknownBudget(id, account);
        cli.print({ id, deleted: true }, `Deleted the budget ${id}\n`);
      }),
    );
}

function tagName(text: string): string {
  if (isTagName(text)) return text;
  throw new InvalidArgumentError(`must have 1 to ${MAX_TAG_NAME_BYTES} bytes`);
}

function tagValue(text: string): string {
  if (text !== '' && isTagValue(text)) return text;
  throw new InvalidArgumentError(`must have 1 to ${MAX_TAG_VALUE_BYTES} bytes`);
}

function unknownBudget(id: string, { name }: { readonly name: string }): Error {
  return new Error(
    `The account "${name}" has no budget "${id}"; "farebox budgets list" lists its budgets`,
  );
}

function countsOf({ tag, value }: Budget): string {
  if (tag === undefined) return 'all requests';
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
