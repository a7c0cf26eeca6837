/** `farebox accounts prices`: the prices of one account beside list prices and costs. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parse } from 'yaml';
import { Catalog, isLoss, pricesFor } from '../catalog/catalog.ts';
import { PriceRules, priceRuleProblems } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { APPLIES_SOON, type Cli, UsageError, findAccount, openedAccount } from './command.ts';
import { table } from './terminal.ts';

export function ownPricesCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('prices')
    .description(`Show or set the prices of one account

Without options, the command shows the list price, the price of the account, the cost of the supplier and
the margin of each price. The file has the members of "plans.<name>.prices" of the configuration:

  discountPercent: 10
  kinds: { embedding: { discountPercent: 30 } }
  models: { claude: { price: { input: 2.5, output: 12 } } }
  rpc: { usdPerCredit: 5e-7 }

${APPLIES_SOON}

Example: farebox accounts prices alice --discount 10`)
    .argument('<account>', 'id, name or wallet address of the account')
    .option('--discount <percent>', 'discount on all list prices; keeps the other rules')
    .option('--file <file>', 'YAML or JSON file with the prices, which replace the earlier ones')
    .option('--clear', 'remove the prices of the account; those of its plan apply')
    .action((wanted, { discount, file, clear }) => {
      const given = [discount, file, clear].filter((one) => one !== undefined);
      if (given.length > 1) throw new UsageError('Use one of --discount, --file and --clear');
      return cli.withStores(async ({ stores: { store, identity }, stores, config }) => {
        const find = given.length > 0 ? openedAccount : findAccount;
        const { id } = await find(stores, wanted);
        const catalog = new Catalog({ settings: config, clock: systemClock() });
        const fromFile = file === undefined ? undefined : await readRules(cli, file);
        const account = await store.transaction(async (tx) => {
          await identity.lockAccount(id, tx);
          const before = await identity.findAccount(id, tx);
          if (before === undefined) throw new Error(`There is no account "${id}"`);
          if (given.length === 0) return before;
          const changed =
            discount === undefined ? fromFile : { ...before.prices, discountPercent: discount };
          const prices = clear === true ? undefined : checkedRules(changed, catalog);
          await identity.updateAccount({ ...before, prices }, tx);
          return { ...before, prices };
        });
        const prices = {
          account: account.prices,
          plan: config.resolvedPlans.byName.get(account.plan)?.prices,
        };
        const rows = catalog.models().flatMap((model) => {
          const { source, lines } = pricesFor(model, prices);
          return lines.map((line) => ({ model: model.id, source: source ?? 'list', ...line }));
        });
        const cells = rows.map((row) => [
          row.model,
          [row.kind, row.tier, row.above > 0 ? `above ${row.above}` : undefined, row.from]
            .filter((part) => part !== undefined)
            .join(' '),
          row.list ?? '-',
          row.sold,
          row.cost ?? '-',
          marginText(row),
          row.source,
        ]);
        const titles = ['MODEL', 'PRICE OF', 'LIST', 'SOLD', 'COST', 'MARGIN', 'FROM'];
        cli.print(
          { accountId: id, plan: account.plan, own: account.prices ?? null, prices: rows },
          `Prices of "${account.name}" (${id}, plan ${account.plan}) for the configured models, in USD:\n\n${table(titles, cells, ['LIST', 'SOLD', 'COST', 'MARGIN'])}`,
        );
      });
    });
}

type Line = ReturnType<typeof pricesFor>['lines'][number];

function marginText(line: Line): string {
  const { engine, cost, list, percent } = line;
  if (engine === null || cost === null || list === null) return '-';
  const text = percent === null ? '-' : `${percent} %`;
  return isLoss({ ...line, engine, cost, list }) ? `loss ${text}` : text;
}

async function readRules(cli: Cli, file: string): Promise<unknown> {
  try {
    return parse(await readFile(resolve(cli.console.cwd, file), 'utf8'));
  } catch (error) {
    // The message names the file or the line.
    throw new Error(`The prices cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

/** Throws an Error with the place and the reason of the first problem. */
function checkedRules(given: unknown, catalog: Catalog): PriceRules {
  const parsed = PriceRules.safeParse(given);
  const [problem] = parsed.success
    ? [
        ...Object.keys(parsed.data.models ?? {}).flatMap((id) =>
          catalog.get(id) === undefined
            ? [{ path: ['models', id], message: 'No configured model has this id' }]
            : [],
        ),
        ...priceRuleProblems(parsed.data, (id) => catalog.get(id)),
      ]
    : parsed.error.issues;
  if (parsed.success && problem === undefined) return parsed.data;
  throw new Error(`${problem?.path.join('.') ?? 'prices'}: ${problem?.message}`);
}
