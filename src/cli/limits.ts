/**
 * `farebox accounts limit` and `farebox keys limit`: the rate limits of one account or key where they
 * differ from those of its plan.
 */
import type { LimitOverrides } from '../identity/identity.ts';
import {
  type Command,
  type CommandContext,
  type Invocation,
  UsageError,
  findAccount,
  openedAccount,
  withStores,
} from './command.ts';

/** As the API for operators takes them. */
const MAX_LIMIT = 1_000_000_000;
const NO_LIMIT_OF_ITS_OWN = 'default';

const OPTIONS = [
  { name: 'requestsPerMinute', option: 'requests-per-minute' },
  { name: 'tokensPerMinute', option: 'tokens-per-minute' },
  { name: 'rpcRequestsPerMinute', option: 'rpc-requests-per-minute' },
  { name: 'rpcCreditsPerDay', option: 'rpc-credits-per-day' },
] as const satisfies readonly { readonly name: keyof LimitOverrides; readonly option: string }[];

const OPTION_LINES = `
  --requests-per-minute <number>       requests to each model
  --tokens-per-minute <number>         tokens of each text model
  --rpc-requests-per-minute <number>   requests of blockchain RPC
  --rpc-credits-per-day <number>       credits of blockchain RPC in 24 hours`;
const FOLLOWS = 'A running server follows within three seconds.';

/** For each limit that was named its number, or `null` for none of its own. */
type Change = Partial<Record<keyof LimitOverrides, number | null>>;

export const accountsLimitCommand: Command = {
  name: 'accounts limit',
  takesWords: true,
  summary: 'Show or set the rate limits of an account',
  usage: 'accounts limit <id, name or wallet address> [options]',
  details: `${OPTION_LINES}

The word ${NO_LIMIT_OF_ITS_OWN} in place of a number takes the account back to the limits of its plan.
Without an option the command shows the limits that the account has of its own. ${FOLLOWS}

Example: farebox accounts limit alice --requests-per-minute 60`,
  run: (invocation) => {
    const wanted = invocation.only('Name one account');
    const change = wantedChange(invocation);
    return withStores(invocation, async (context) => {
      const find = Object.keys(change).length > 0 ? openedAccount : findAccount;
      const { id, name } = await find(context.stores, wanted);
      const limits = await changeAccount(context, id, change);
      invocation.answer(
        () => ({ accountId: id, limits: jsonLimits(limits) }),
        () => shownLimits(`The account "${name}" (${id})`, limits),
      );
    });
  },
};

export const keysLimitCommand: Command = {
  name: 'keys limit',
  takesWords: true,
  summary: 'Show or set the rate limits of an API key',
  usage: 'keys limit <key id> [--account <account>] [options]',
  details: `
  --account <id or name>               whose key it is (default: the owner)${OPTION_LINES}

A key with limits of its own is counted by itself, and not with its account. The word
${NO_LIMIT_OF_ITS_OWN} in place of a number takes the key back to the limits of its account. Without one of these
numbers the command shows the limits that the key has of its own. ${FOLLOWS}

Example: farebox keys limit key_019aa3f1c0de --tokens-per-minute 20000`,
  run: (invocation) => {
    const id = invocation.only('Name one key by its id');
    const change = wantedChange(invocation);
    return withStores(invocation, async (context) => {
      const account = await findAccount(context.stores, invocation.text('account'));
      const limits = await changeKey(context, account, id, change);
      invocation.answer(
        () => ({ accountId: account.id, keyId: id, limits: jsonLimits(limits) }),
        () => shownLimits(`The key ${id} of the account "${account.name}"`, limits),
      );
    });
  },
};

/** The limits that the options name. Throws a UsageError for one that is no limit. */
function wantedChange(invocation: Invocation): Change {
  const change: Change = {};
  for (const { name, option } of OPTIONS) {
    const text = invocation.text(option);
    if (text !== undefined) change[name] = limitOf(text, option);
  }
  return change;
}

function limitOf(text: string, option: string): number | null {
  if (text.toLowerCase() === NO_LIMIT_OF_ITS_OWN) return null;
  const limit = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new UsageError(
    `--${option} must be a whole number from 1 to ${MAX_LIMIT}, or "${NO_LIMIT_OF_ITS_OWN}", not "${text}"`,
  );
}

function changed(before: LimitOverrides, change: Change): LimitOverrides {
  const after = Object.entries({ ...before, ...change });
  return Object.fromEntries(
    after.flatMap(([name, limit]) => (limit === null ? [] : [[name, limit]])),
  );
}

function changeAccount(
  { stores: { store, identity } }: CommandContext,
  id: string,
  change: Change,
): Promise<LimitOverrides> {
  return store.transaction(async (tx) => {
    await identity.lockAccount(id, tx);
    const account = await identity.findAccount(id, tx);
    if (account === undefined) throw new Error(`There is no account "${id}"`);
    const limits = changed(account.limits, change);
    if (Object.keys(change).length > 0) await identity.updateAccount({ ...account, limits }, tx);
    return limits;
  });
}

function changeKey(
  { stores: { store, identity } }: CommandContext,
  account: { readonly id: string; readonly name: string },
  id: string,
  change: Change,
): Promise<LimitOverrides> {
  return store.transaction(async (tx) => {
    await identity.lockAccount(account.id, tx);
    const key = await identity.findKey(account.id, id, tx);
    if (key === undefined) {
      throw new Error(
        `The account "${account.name}" has no active key "${id}"; "farebox keys list" shows them`,
      );
    }
    const limits = changed(key.limits, change);
    if (Object.keys(change).length > 0) await identity.updateKey({ ...key, limits }, tx);
    return limits;
  });
}

function jsonLimits(limits: LimitOverrides) {
  return Object.fromEntries(OPTIONS.map(({ name }) => [name, limits[name] ?? null]));
}

function shownLimits(what: string, limits: LimitOverrides): string {
  const width = Math.max(...OPTIONS.map(({ option }) => option.length));
  const lines = OPTIONS.map(
    ({ name, option }) => `  ${option.padEnd(width)}  ${limits[name] ?? NO_LIMIT_OF_ITS_OWN}\n`,
  );
  return `${what}:\n${lines.join('')}`;
}
