/** `farebox accounts`: who may call, on which plan, with how much daily credit. */
import { isoTimeOrNull } from '../core/clock.ts';
import { type Nano, ZERO } from '../core/money.ts';
import { type Account, PLANS, type Plan } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import {
  type Command,
  type Invocation,
  UsageError,
  openedAccount,
  shownTime,
  shownUsd,
  withStores,
} from './command.ts';
import { Columns, printableLine } from './terminal.ts';

const MAX_NAME_CHARACTERS = 100;
const ACCOUNTS_A_PAGE = 500;

export const accountsListCommand: Command = {
  name: 'accounts list',
  summary: 'List the accounts with their balances, wallets included',
  usage: 'accounts list [--search <text>]',
  details: `
  --search <text>   the beginning of an id, or a part of a name or of a wallet address`,
  run: (invocation) =>
    withStores(invocation, async ({ stores }) => {
      await invocation.answerPages(
        () => accountPages(stores, invocation.text('search')),
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
      );
    }),
};

/**
 * Every account with its balances, oldest first, or those that a search finds, newest first; a page in
 * memory at a time.
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

export const accountsCreateCommand: Command = {
  name: 'accounts create',
  takesWords: true,
  summary: 'Make an account',
  usage: 'accounts create <name> [--plan <plan>] [--daily-diem <amount>]',
  details: `
  --plan <plan>           ${PLANS.join(', ')} (default: paid)
  --daily-diem <amount>   daily credit in DIEM (1 DIEM pays for 1 USD), anew at 00:00 UTC

Next: farebox keys create --account <name>, farebox credit 25 --account <name>`,
  run: (invocation) => {
    const { name, plan = 'paid', daily } = wantedAccount(invocation);
    return withStores(invocation, async ({ stores }) => {
      const { identity, ledger, store } = stores;
      const account = await store.transaction(async (tx) => {
        const made = await identity.createNamedAccount(name, plan, tx);
        await ledger.openAccount(made.id, tx);
        return made;
      });
      if (daily !== undefined) await ledger.setDailyAllocation(account.id, daily);
      const balances = await ledger.balances(account.id);
      invocation.answer(
        () => jsonAccount({ account, balances }),
        () =>
          `The account "${name}" is ${account.id}. Next: farebox keys create --account ${account.id}\n`,
      );
    });
  },
};

export const accountsUpdateCommand: Command = {
  name: 'accounts update',
  takesWords: true,
  summary: 'Change the plan, daily credit or access of an account',
  usage: 'accounts update <id, name or wallet address> [options]',
  details: `
  --plan <plan>           ${PLANS.join(', ')}
  --daily-diem <amount>   daily credit in DIEM; 0 for none
  --disable               refuse every request of its keys
  --enable                take its requests again
  --operator              its ADMIN keys run the service
  --no-operator           they do not any more

A running server follows within three seconds.`,
  run: (invocation) => {
    const disable = invocation.given('disable');
    const enable = invocation.given('enable');
    if (disable && enable) throw new UsageError('Choose --disable or --enable');
    const operator = invocation.given('operator');
    const noOperator = invocation.given('no-operator');
    if (operator && noOperator) throw new UsageError('Choose --operator or --no-operator');
    const { name, plan, daily } = wantedAccount(invocation);
    const isSwitched = disable || enable || operator || noOperator;
    if (plan === undefined && daily === undefined && !isSwitched) {
      throw new UsageError('Say what to change');
    }
    return withStores(invocation, async ({ stores }) => {
      const before = await openedAccount(stores, name);
      const disabled = disable || (before.disabled && !enable);
      const isOperator = operator || (before.isOperator && !noOperator);
      const account: Account = { ...before, plan: plan ?? before.plan, disabled, isOperator };
      await stores.identity.updateAccount(account);
      if (daily !== undefined) await stores.ledger.setDailyAllocation(account.id, daily);
      const balances = await stores.ledger.balances(account.id);
      const credit = daily === undefined ? '' : `, ${shownUsd(daily)} DIEM a day`;
      invocation.answer(
        () => jsonAccount({ account, balances }),
        () => `The account "${account.name}": plan ${account.plan}${credit}, ${stateOf(account)}\n`,
      );
    });
  },
};

/** What the words ask for; checked before anything is opened. */
function wantedAccount(invocation: Invocation): {
  readonly name: string;
  readonly plan: Plan | undefined;
  readonly daily: Nano | undefined;
} {
  const name = invocation.only('Name one account');
  if (name.trim() === '') throw new UsageError('Name one account');
  if (name.length > MAX_NAME_CHARACTERS) {
    throw new UsageError(`A name has at most ${MAX_NAME_CHARACTERS} characters`);
  }
  if (name !== printableLine(name)) {
    throw new UsageError('A name has no line ends and no control characters');
  }
  return { name, plan: invocation.word('plan', PLANS), daily: invocation.amount('daily-diem') };
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
