/**
 * The database, accounts and money for a command that runs beside a server or without one. It
 * starts no epoch and closes none: holds of a running server stay as they are.
 */
import { type Stores, openStores } from '../server/stores.ts';
import { logWriter } from '../observability/log-writer.ts';
import type { Config } from '../config/config.ts';
import type { Account } from '../identity/identity.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { type Ids, systemIds } from '../core/ids.ts';
import { nearestOf } from '../core/nearest.ts';
import { type Invocation, requireConfig } from './command.ts';
import { textOption } from './values.ts';

/** What a command works with; everything is closed when it ends. */
export interface Desk {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Opens the stores for one command and closes it, however the command ends. */
export async function withStores<T>(
  invocation: Invocation,
  work: (desk: Desk) => Promise<T>,
): Promise<T> {
  const { console } = invocation;
  const config = await requireConfig(console);
  const clock = systemClock();
  const ids = systemIds();
  const log = logWriter({
    level: 'warn',
    pretty: true,
    clock,
    write: (text) => console.stderr.write(text),
  });
  const stores = await openStores({ config, clock, ids, log });
  try {
    return await work({ config, stores, clock, ids });
  } finally {
    await stores.close();
  }
}

/** The account that `--account` names by id or name; without it the owner, the oldest account. */
export async function accountOf(invocation: Invocation, stores: Stores): Promise<Account> {
  return findAccount(stores, textOption(invocation, 'account'));
}

/** The account with this id or name; `undefined` means the owner, the oldest account. */
export async function findAccount(stores: Stores, wanted: string | undefined): Promise<Account> {
  const accounts = await stores.identity.accounts();
  const [owner] = accounts;
  if (owner === undefined) {
    throw new Error('There is no account yet: start the server once with "farebox serve"');
  }
  if (wanted === undefined) return owner;
  const byId = accounts.find((account) => account.id === wanted);
  if (byId !== undefined) return byId;
  const named = accounts.filter((account) => account.name === wanted);
  const [account] = named;
  if (account === undefined) throw new Error(unknownAccount(accounts, wanted));
  if (named.length === 1) return account;
  const ids = named.map((one) => one.id).join(', ');
  throw new Error(`${named.length} accounts are called "${wanted}": name one by its id (${ids})`);
}

function unknownAccount(accounts: readonly Account[], wanted: string): string {
  const near = nearestOf(
    wanted,
    accounts.map((account) => account.name),
  );
  const guess = near === undefined ? '' : ` (did you mean "${near}"?)`;
  return `There is no account "${wanted}"${guess}; "farebox accounts list" shows them all`;
}
