/** `farebox accounts`: who may call, on which plan, with how much daily credit. */
import { isoTimeOrNull } from '../core/clock.ts';
import { ZERO } from '../core/money.ts';
import { type Account, PLANS } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import {
  type Cli,
  FOLLOWS,
  UsageError,
  oneOf,
  openedAccount,
  shownTime,
  shownUsd,
  usd,
} from './command.ts';
import { Columns, printableLine } from './terminal.ts';

const MAX_NAME_CHARACTERS = 100;
const ACCOUNTS_A_PAGE = 500;
const PLAN = ['--plan <plan>', PLANS.join(', '), oneOf(PLANS)] as const;
const DAILY = [
  '--daily-diem <amount>',
  'daily credit in DIEM (1 DIEM pays for 1 USD), anew at 00:00 UTC; 0 for none',
  usd,
] as const;

export function accountsCommands(cli: Cli): void {
  listCommand(cli);
  createCommand(cli);
  updateCommand(cli);
}

function listCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('list')
    .description('List the accounts with their balances, wallets included')
    .option('--search <text>', 'the beginning of an id, or a part of a name or of a wallet address')
    .action(({ search }) =>
      cli.withStores(({ stores }) =>
        cli.printPages(
          () => accountPages(stores, search),
          jsonAccount,
          new Columns(
            ['ID', 'NAME', 'PLAN', 'USD', 'DIEM TODAY', 'CREATED', 'STATE'],
            ['USD', 'DIEM TODAY'],
          ),
          ({ account, balances }) => [
            account.id,
            account.name,
            account.plan,
            shownUsd(balances.usdNano),
            shownUsd(balances.diemNano),
            shownTime(account.createdMs),
            stateOf(account),
          ],
        ),
      ),
    );
}

function createCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('create')
    .description(`Make an account

Next: farebox keys create --account <name>, farebox credit 25 --account <name>`)
    .argument('<name>', 'Name one account', accountName)
    .option(...PLAN, 'paid')
    .option(...DAILY)
    .action((name, { plan, dailyDiem: daily }) =>
      cli.withStores(async ({ stores }) => {
        const { identity, ledger, store } = stores;
        const account = await store.transaction(async (tx) => {
          const made = await identity.createNamedAccount(name, plan, tx);
          await ledger.openAccount(made.id, tx);
          return made;
        });
        if (daily !== undefined) await ledger.setDailyAllocation(account.id, daily);
        const balances = await ledger.balances(account.id);
        cli.print(
          jsonAccount({ account, balances }),
          `The account "${name}" is ${account.id}. Next: farebox keys create --account ${account.id}\n`,
        );
      }),
    );
}

function updateCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('update')
    .description(`Change the plan, daily credit or access of an account

Names an account by its id, name or wallet address. ${FOLLOWS}`)
    .argument('<account>', 'Name one account', accountName)
    .option(...PLAN)
    .option(...DAILY)
    .option('--disable', 'refuse every request of its keys')
    .option('--enable', 'take its requests again')
    .option('--operator', 'its ADMIN keys run the service')
    .option('--no-operator', 'they do not any more')
    .action((name, { plan, dailyDiem: daily, disable, enable, operator }) => {
      if (disable && enable) throw new UsageError('Choose --disable or --enable');
      const isBoth = ['--operator', '--no-operator'].every((word) =>
        cli.console.argv.includes(word),
      );
      if (isBoth) throw new UsageError('Choose --operator or --no-operator');
      const disabled = disable ?? (enable === true ? false : undefined);
      if ((plan ?? daily ?? disabled ?? operator) === undefined) {
        throw new UsageError('Say what to change');
      }
      return cli.withStores(async ({ stores }) => {
        const before = await openedAccount(stores, name);
        const account: Account = {
          ...before,
          plan: plan ?? before.plan,
          disabled: disabled ?? before.disabled,
          isOperator: operator ?? before.isOperator,
        };
        await stores.identity.updateAccount(account);
        if (daily !== undefined) await stores.ledger.setDailyAllocation(account.id, daily);
        const balances = await stores.ledger.balances(account.id);
        const credit = daily === undefined ? '' : `, ${shownUsd(daily)} DIEM a day`;
        cli.print(
          jsonAccount({ account, balances }),
          `The account "${account.name}": plan ${account.plan}${credit}, ${stateOf(account)}\n`,
        );
      });
    });
}

function accountName(name: string): string {
  if (name.trim() === '') throw new UsageError('Name one account');
  if (name.length > MAX_NAME_CHARACTERS) {
    throw new UsageError(`A name has at most ${MAX_NAME_CHARACTERS} characters`);
  }
  if (name === printableLine(name)) return name;
  throw new UsageError('A name has no line ends and no control characters');
}

/**
 * Accounts with balances, oldest first, or found ones, newest first; one page in memory at a time.
 */
async function* accountPages(
  { identity, ledger }: Stores,
  search: string | undefined,
): AsyncGenerator<AccountWithBalances[]> {
  for (let after: Account | undefined; ;) {
    const page = { limit: ACCOUNTS_A_PAGE, after };
    const accounts =
      search === undefined
        ? await identity.accounts(page)
        : await identity.searchAccounts({ search }, page);
    after = accounts.at(-1);
    if (after === undefined) return;
    yield await Promise.all(
      accounts.map(async (account) => ({ account, balances: await ledger.balances(account.id) })),
    );
  }
}

function stateOf({ disabled }: Account): string {
  return disabled ? 'disabled' : 'active';
}

interface AccountWithBalances {
  readonly account: Account;
  readonly balances: Awaited<ReturnType<Stores['ledger']['balances']>>;
}

function jsonAccount({ account, balances }: AccountWithBalances) {
  const { usdNano, diemNano } = balances;
  return {
    id: account.id,
    name: account.name,
    plan: account.plan,
    disabled: account.disabled,
    isOperator: account.isOperator,
    balanceUsd: shownUsd(usdNano),
    diemLeftToday: shownUsd(diemNano > 0n ? diemNano : ZERO),
    createdAt: isoTimeOrNull(account.createdMs),
  };
}
