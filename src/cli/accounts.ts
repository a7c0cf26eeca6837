/** `farebox accounts`: lists, creates and updates accounts. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { type Config, DEFAULT_PLANS, MEMBER_ROLES } from '../config/config.ts';
import { isoTimeOrNull } from '../core/clock.ts';
import { ZERO } from '../core/money.ts';
import { didYouMean } from '../core/nearest-word.ts';
import type { Account } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import {
  APPLIES_SOON,
  type Cli,
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
const PLAN = [
  '--plan <plan>',
  `${DEFAULT_PLANS.join(', ')}, or a plan of the configuration`,
] as const;
const DAILY = [
  '--daily-diem <amount>',
  'daily credit in DIEM (1 DIEM pays for 1 USD), renewed at 00:00 UTC; 0 for none',
  usd,
] as const;

export function accountsCommands(cli: Cli): void {
  listCommand(cli);
  createCommand(cli);
  updateCommand(cli);
  inviteCommand(cli);
}

function listCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('list')
    .description('List all accounts with their balances')
    .option('--search <text>', 'start of an id, or part of a name or wallet address')
    .action(({ search }) =>
      cli.withStores(({ stores }) =>
        cli.printPages({
          pages: () => accountPages(stores, search),
          json: jsonAccount,
          columns: new Columns(
            ['ID', 'NAME', 'PLAN', 'USD', 'DIEM TODAY', 'CREATED', 'STATE'],
            ['USD', 'DIEM TODAY'],
          ),
          cells: ({ account, balances }) => [
            account.id,
            account.name,
            account.plan,
            shownUsd(balances.usdNano),
            shownUsd(balances.diemNano),
            shownTime(account.createdMs),
            stateOf(account),
          ],
          empty:
            search === undefined
              ? 'There are no accounts; "farebox accounts create" creates one\n'
              : `No account matches "${search}"\n`,
        }),
      ),
    );
}

function createCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('create')
    .description(`Create an account

Next: farebox credit 25 --account <name>, farebox keys create --account <name>`)
    .argument('<name>', 'name of the account', accountName)
    .option(...PLAN, 'paid')
    .option(...DAILY)
    .action((name, { plan, dailyDiem: daily }) =>
      cli.withStores(async ({ stores, config }) => {
        requirePlan(config, plan);
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
          `Created the account "${name}" (${account.id}). It has no credit and no key. Next:

  farebox credit 25 --account ${account.id}
  farebox keys create --account ${account.id}
`,
        );
      }),
    );
}

function updateCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('update')
    .description(`Change the plan, daily credit or access of an account

${APPLIES_SOON}`)
    .argument('<account>', 'id, name or wallet address of the account', accountName)
    .option(...PLAN)
    .option(...DAILY)
    .option('--disable', 'reject every request of the account')
    .option('--enable', 'accept requests of the account again')
    .option('--operator', 'let ADMIN keys of the account operate the server')
    .option('--no-operator', 'stop its ADMIN keys from operating the server')
    .action((name, { plan, dailyDiem: daily, disable, enable, operator }) => {
      if (disable && enable) throw new UsageError('Use --disable or --enable, not both');
      const { argv } = cli.console;
      if (argv.includes('--operator') && argv.includes('--no-operator')) {
        throw new UsageError('Use --operator or --no-operator, not both');
      }
      const disabled = disable ?? (enable === true ? false : undefined);
      if ((plan ?? daily ?? disabled ?? operator) === undefined) {
        throw new UsageError('Give at least one option that changes the account');
      }
      return cli.withStores(async ({ stores, config }) => {
        if (plan !== undefined) requirePlan(config, plan);
        const { identity, ledger, store } = stores;
        const { id } = await openedAccount(stores, name);
        const account = await store.transaction(async (tx) => {
          // A running server can change the other settings at the same time.
          await identity.lockAccount(id, tx);
          const before = await identity.findAccount(id, tx);
          if (before === undefined) throw new Error(`There is no account "${id}"`);
          const after: Account = {
            ...before,
            plan: plan ?? before.plan,
            disabled: disabled ?? before.disabled,
            isOperator: operator ?? before.isOperator,
          };
          await identity.updateAccount(after, tx);
          if (daily !== undefined) await ledger.allocateDailyIn(tx, id, daily);
          return after;
        });
        const balances = await ledger.balances(id);
        const credit = daily === undefined ? '' : `, ${shownUsd(daily)} DIEM a day`;
        cli.print(
          jsonAccount({ account, balances }),
          `Updated the account "${account.name}": plan ${account.plan}${credit}, ${stateOf(account)}\n`,
        );
      });
    });
}

function inviteCommand(cli: Cli): void {
  cli
    .group('accounts')
    .command('invite')
    .description(`Print a link that makes a person a member of an account

The link works once. The person signs in at a provider of the section "signIn" of the configuration.`)
    .argument('<account>', 'id, name or wallet address of the account', accountName)
    .option('--role <role>', MEMBER_ROLES.join(', '), oneOf(MEMBER_ROLES), 'owner')
    .option('--email <address>', 'only a person with this verified address can accept')
    .action((name, { role, email = '' }) =>
      cli.withStores(async ({ stores, config }) => {
        const { providers, invitationDays } = config.signIn;
        if (providers.length === 0) {
          throw new Error(
            'Members sign in at a provider; add one to "signIn.providers" of the configuration first',
          );
        }
        const { id: accountId, name: accountNamed } = await openedAccount(stores, name);
        const wanted = { accountId, role, email: email.toLowerCase(), createdBy: '' };
        const { members } = stores.identity;
        const { invitation, secret } = await members.invite(wanted, invitationDays);
        const link = `${config.publicUrl}/console/join#${secret}`;
        cli.print(
          { link, accountId, role, expiresAt: isoTimeOrNull(invitation.expiresMs) },
          `This link makes a person a member of "${accountNamed}" with the role ${role}. It works once, within ${invitationDays} days:\n\n  ${link}\n`,
        );
      }),
    );
}

function requirePlan({ resolvedPlans: { byName } }: Config, plan: string): void {
  if (byName.has(plan)) return;
  throw new UsageError(
    `There is no plan "${plan}"${didYouMean(plan, byName.keys())}; the plans are ${[...byName.keys()].join(', ')}`,
  );
}

function accountName(name: string): string {
  const isPrintable = name === printableLine(name) && name.trim() !== '';
  if (isPrintable && name.length <= MAX_NAME_CHARACTERS) return name;
  throw new InvalidArgumentError(
    `must have 1 to ${MAX_NAME_CHARACTERS} characters without line breaks or control characters`,
  );
}

/** Yields pages of all accounts, oldest first, or of the accounts that match, newest first. */
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
  const { id, name, plan, disabled, isOperator } = account;
  return {
    id,
    name,
    plan,
    disabled,
    isOperator,
    balanceUsd: shownUsd(usdNano),
    diemLeftToday: shownUsd(diemNano > 0n ? diemNano : ZERO),
    createdAt: isoTimeOrNull(account.createdMs),
  };
}
