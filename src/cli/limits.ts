/** `farebox accounts limit`, `farebox keys limit`: rate limits that differ from the plan. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import type { LimitOverrides } from '../identity/identity.ts';
import { ACCOUNT, type Cli, FOLLOWS, findAccount, openedAccount } from './command.ts';
import { unknownKey } from './keys.ts';
import { listing } from './terminal.ts';

/** The same bound as in the API for operators. */
const MAX_LIMIT = 1_000_000_000;
const DEFAULT = 'default';

const LIMITS = {
  requestsPerMinute: '--requests-per-minute',
  tokensPerMinute: '--tokens-per-minute',
  rpcRequestsPerMinute: '--rpc-requests-per-minute',
  rpcCreditsPerDay: '--rpc-credits-per-day',
} as const satisfies Record<keyof LimitOverrides, string>;

/** The limits that were named; the word goes back to the limit of the plan. */
type Change = Partial<Record<keyof LimitOverrides, number | typeof DEFAULT>>;

export function limitCommands(cli: Cli): void {
  limitCommand(cli, 'accounts')
    .description(`Show or set the rate limits of an account

The word ${DEFAULT} in place of a number takes the account back to the limits of its plan. Without an
option the command shows the limits that the account has of its own.
${FOLLOWS}

Example: farebox accounts limit alice --requests-per-minute 60`)
    .argument('<account>', 'Name one account')
    .action((wanted, change) =>
      cli.withStores(async ({ stores: { store, identity }, stores }) => {
        const find = Object.keys(change).length > 0 ? openedAccount : findAccount;
        const { id, name } = await find(stores, wanted);
        const limits = await store.transaction(async (tx) => {
          await identity.lockAccount(id, tx);
          const account = await identity.findAccount(id, tx);
          if (account === undefined) throw new Error(`There is no account "${id}"`);
          return await applied(account, change, (after) => identity.updateAccount(after, tx));
        });
        cli.print(
          { accountId: id, limits: jsonLimits(limits) },
          shownLimits(`The account "${name}" (${id})`, limits),
        );
      }),
    );
  limitCommand(cli, 'keys')
    .description(`Show or set the rate limits of an API key

A key with limits of its own is counted by itself, and not with its account. The word ${DEFAULT} in
place of a number takes the key back to the limits of its account. Without one of these numbers the
command shows the limits that the key has of its own.
${FOLLOWS}

Example: farebox keys limit key_019aa3f1c0de --tokens-per-minute 20000`)
    .argument('<key id>', 'Name one key by its id')
    .option(...ACCOUNT)
    .action((id, { account: wanted, ...change }) =>
      cli.withAccount({ account: wanted }, async ({ stores: { store, identity }, account }) => {
        const limits = await store.transaction(async (tx) => {
          await identity.lockAccount(account.id, tx);
          const key = await identity.findKey(account.id, id, tx);
          if (key === undefined) throw unknownKey(id, account);
          return await applied(key, change, (after) => identity.updateKey(after, tx));
        });
        cli.print(
          { accountId: account.id, keyId: id, limits: jsonLimits(limits) },
          shownLimits(`The key ${id} of the account "${account.name}"`, limits),
        );
      }),
    );
}

function limitCommand(cli: Cli, group: 'accounts' | 'keys') {
  return cli
    .group(group)
    .command('limit')
    .option(`${LIMITS.requestsPerMinute} <number>`, 'requests to each model', limitOf)
    .option(`${LIMITS.tokensPerMinute} <number>`, 'tokens of each text model', limitOf)
    .option(`${LIMITS.rpcRequestsPerMinute} <number>`, 'requests of blockchain RPC', limitOf)
    .option(
      `${LIMITS.rpcCreditsPerDay} <number>`,
      'credits of blockchain RPC in 24 hours',
      limitOf,
    );
}

function limitOf(text: string): number | typeof DEFAULT {
  if (text.toLowerCase() === DEFAULT) return DEFAULT;
  const limit = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new InvalidArgumentError(
    `must be a whole number from 1 to ${MAX_LIMIT}, or "${DEFAULT}", not "${text}"`,
  );
}

/** The limits after a change, which is written unless it is empty. */
async function applied<Holder extends { readonly limits: LimitOverrides }>(
  holder: Holder,
  change: Change,
  write: (after: Holder) => Promise<unknown>,
): Promise<LimitOverrides> {
  const changed = Object.entries({ ...holder.limits, ...change });
  const limits: LimitOverrides = Object.fromEntries(
    changed.filter(([, limit]) => limit !== DEFAULT),
  );
  if (Object.keys(change).length > 0) await write({ ...holder, limits });
  return limits;
}

function jsonLimits(limits: LimitOverrides) {
  const names = Object.keys(LIMITS) as (keyof LimitOverrides)[]; // its own keys
  return Object.fromEntries(names.map((name) => [name, limits[name] ?? null]));
}

function shownLimits(what: string, limits: LimitOverrides): string {
  const lines = Object.entries(LIMITS).map(
    ([name, option]) =>
      [
        `  ${option.slice(2)}`,
        String(limits[name as keyof LimitOverrides] ?? DEFAULT), // a key of the table
      ] as const,
  );
  return `${what}:\n${listing(lines)}`;
}
