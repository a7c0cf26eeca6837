/** `farebox accounts`: who may call, on which plan, with how much daily credit. */
import { type Account, PLANS, type Plan } from '../identity/identity.ts';
import { type Nano, ZERO } from '../core/money.ts';
import { type Command, type Invocation, UsageError, printJson } from './command.ts';
import { table } from './table.ts';
import { printableLine } from './terminal.ts';
import { amountOption, isGiven, jsonTime, shownTime, shownUsd, wordOption } from './values.ts';
import { type Desk, findAccount, withStores } from './with-stores.ts';

const MAX_NAME_CHARACTERS = 100;

export const accountsListCommand: Command = {
  name: 'accounts list',
  summary: 'List the accounts with their balances',
  usage: 'accounts list',
  details: '',
  options: {},
  run: (invocation) => withStores(invocation, (desk) => listAccounts(invocation, desk)),
};

async function listAccounts(invocation: Invocation, desk: Desk): Promise<number> {
  const { identity, ledger } = desk.stores;
  const accounts = await identity.accounts();
  const rows = await Promise.all(
    accounts.map(async (account) => ({ account, has: await ledger.balances(account.id) })),
  );
  if (isGiven(invocation, 'json')) {
    const shown = await Promise.all(accounts.map((account) => jsonAccount(desk, account)));
    printJson(invocation, shown);
    return 0;
  }
  const columns = [
    { title: 'ID' },
    { title: 'NAME' },
    { title: 'PLAN' },
    { title: 'USD', align: 'right' },
    { title: 'DIEM TODAY', align: 'right' },
    { title: 'CREATED' },
    { title: 'STATE' },
  ] as const;
  const cells = rows.map(({ account, has }) => [
    account.id,
    account.name,
    account.plan,
    shownUsd(has.usdNano),
    shownUsd(has.diemNano),
    shownTime(account.createdMs),
    account.disabled ? 'disabled' : 'active',
  ]);
  invocation.console.stdout.write(table(columns, cells));
  return 0;
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
  options: { plan: { type: 'string' }, 'daily-diem': { type: 'string' } },
  run: (invocation) => {
    const wanted = wantedAccount(invocation);
    return withStores(invocation, (desk) => createAccount(invocation, desk, wanted));
  },
};

/** What the words ask for; checked before anything is opened. */
interface WantedAccount {
  readonly name: string;
  readonly plan: Plan | undefined;
  readonly daily: Nano | undefined;
}

function wantedAccount(invocation: Invocation): WantedAccount {
  return {
    name: requireName(invocation),
    plan: wordOption(invocation, 'plan', PLANS),
    daily: amountOption(invocation, 'daily-diem'),
  };
}

async function createAccount(
  invocation: Invocation,
  desk: Desk,
  { name, plan = 'paid', daily }: WantedAccount,
): Promise<number> {
  const { stores } = desk;
  const taken = (await stores.identity.accounts()).find((account) => account.name === name);
  if (taken !== undefined) {
    throw new Error(`There is an account "${name}" already (${taken.id}); choose another name`);
  }
  const account = await stores.store.transaction(async (tx) => {
    const made = await stores.identity.createAccount(name, plan, tx);
    await stores.ledger.openAccount(made.id, tx);
    return made;
  });
  if (daily !== undefined) await stores.ledger.setDailyAllocation(account.id, daily);
  if (isGiven(invocation, 'json')) printJson(invocation, await jsonAccount(desk, account));
  else {
    invocation.console.stdout.write(
      `The account "${name}" is ${account.id}. Next: farebox keys create --account ${account.id}\n`,
    );
  }
  return 0;
}

export const accountsUpdateCommand: Command = {
  name: 'accounts update',
  takesWords: true,
  summary: 'Change the plan, daily credit or access of an account',
  usage: 'accounts update <id or name> [options]',
  details: `
  --plan <plan>           ${PLANS.join(', ')}
  --daily-diem <amount>   daily credit in DIEM; 0 for none
  --disable               refuse every request of its keys
  --enable                take its requests again

A running server follows within three seconds.`,
  options: {
    plan: { type: 'string' },
    'daily-diem': { type: 'string' },
    disable: { type: 'boolean' },
    enable: { type: 'boolean' },
  },
  run: (invocation) => {
    const access = accessWish(invocation);
    const wanted = { ...wantedAccount(invocation), access };
    if (wanted.plan === undefined && wanted.daily === undefined && access === undefined) {
      throw new UsageError('Say what to change');
    }
    return withStores(invocation, (desk) => updateAccount(invocation, desk, wanted));
  },
};

async function updateAccount(
  invocation: Invocation,
  desk: Desk,
  { name, plan, daily, access }: WantedAccount & { readonly access: Access | undefined },
): Promise<number> {
  const { stores } = desk;
  const account = await findAccount(stores, name);
  const next: Account = {
    ...account,
    plan: plan ?? account.plan,
    disabled: access === undefined ? account.disabled : access === 'disable',
  };
  await stores.identity.updateAccount(next);
  if (daily !== undefined) await stores.ledger.setDailyAllocation(account.id, daily);
  if (isGiven(invocation, 'json')) printJson(invocation, await jsonAccount(desk, next));
  else {
    const state = next.disabled ? 'disabled' : 'active';
    const credit = daily === undefined ? '' : `, ${shownUsd(daily)} DIEM a day`;
    invocation.console.stdout.write(
      `The account "${next.name}": plan ${next.plan}${credit}, ${state}\n`,
    );
  }
  return 0;
}

type Access = 'disable' | 'enable';

function accessWish(invocation: Invocation): Access | undefined {
  const disable = isGiven(invocation, 'disable');
  const enable = isGiven(invocation, 'enable');
  if (disable && enable) throw new UsageError('Choose --disable or --enable');
  if (disable) return 'disable';
  return enable ? 'enable' : undefined;
}

function requireName({ positionals }: Invocation): string {
  const [name = '', ...rest] = positionals;
  if (name.trim() === '' || rest.length > 0) throw new UsageError('Name one account');
  if (name.length > MAX_NAME_CHARACTERS) {
    throw new UsageError(`A name has at most ${MAX_NAME_CHARACTERS} characters`);
  }
  if (name !== printableLine(name)) {
    throw new UsageError('A name has no line ends and no control characters');
  }
  return name;
}

async function jsonAccount({ stores }: Desk, account: Account): Promise<Record<string, unknown>> {
  const { usdNano, diemNano } = await stores.ledger.balances(account.id);
  return {
    id: account.id,
    name: account.name,
    plan: account.plan,
    disabled: account.disabled,
    balanceUsd: shownUsd(usdNano),
    diemLeftToday: shownUsd(diemNano > 0n ? diemNano : ZERO),
    createdAt: jsonTime(account.createdMs),
  };
}
