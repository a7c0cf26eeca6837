/** `farebox accounts limit` and `farebox keys limit`: rate limits of one account or key. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import type { LimitOverrides } from '../identity/identity.ts';
import { ACCOUNT, APPLIES_SOON, type Cli, findAccount, openedAccount } from './command.ts';
import { unknownKey } from './keys.ts';
import { listing } from './terminal.ts';

/** The operator API has the same bound. */
const MAX_LIMIT = 1_000_000_000;
const DEFAULT = 'default';

const LIMITS = {
  requestsPerMinute: '--requests-per-minute',
  tokensPerMinute: '--tokens-per-minute',
  rpcRequestsPerMinute: '--rpc-requests-per-minute',
  rpcCreditsPerDay: '--rpc-credits-per-day',
} as const satisfies Record<keyof LimitOverrides, string>;

/** The limits to change; `default` removes the override. */
type Change = Partial<Record<keyof LimitOverrides, number | typeof DEFAULT>>;

export function limitCommands(cli: Cli): void {
  limitCommand(cli, 'accounts')
    .description(`Show or set the rate limits of an account

"${DEFAULT}" instead of a number restores the limit of the plan. Without options, the command shows the
limits that are set for the account.
${APPLIES_SOON}

Example: farebox accounts limit alice --requests-per-minute 60`)
    .argument('<account>', 'id, name or wallet address of the account')
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
        printLimits(cli, `The account "${name}" (${id})`, { accountId: id }, limits);
      }),
    );
  limitCommand(cli, 'keys')
    .description(`Show or set the rate limits of an API key

Requests of a key that has its own limits count against the key instead of the account. "${DEFAULT}"
instead of a number restores the limit of the account. Without a limit option, the command shows the
limits that are set for the key.
${APPLIES_SOON}

Example: farebox keys limit key_019aa3f1c0de --tokens-per-minute 20000`)
    .argument('<key id>', 'id of the key, as "farebox keys list" shows it')
    .option(...ACCOUNT)
    .action((id, { account: wanted, ...change }) =>
      cli.withAccount({ account: wanted }, async ({ stores: { store, identity }, account }) => {
        const limits = await store.transaction(async (tx) => {
          await identity.lockAccount(account.id, tx);
          const key = await identity.findKey(account.id, id, tx);
          if (key === undefined) throw unknownKey(id, account);
          return await applied(key, change, (after) => identity.updateKey(after, tx));
        });
        const title = `The key ${id} of the account "${account.name}"`;
        printLimits(cli, title, { accountId: account.id, keyId: id }, limits);
      }),
    );
}

function limitCommand(cli: Cli, group: 'accounts' | 'keys') {
  return cli
    .group(group)
    .command('limit')
    .option(`${LIMITS.requestsPerMinute} <number>`, 'requests per model', limitOf)
    .option(`${LIMITS.tokensPerMinute} <number>`, 'tokens per text model', limitOf)
    .option(`${LIMITS.rpcRequestsPerMinute} <number>`, 'blockchain RPC requests', limitOf)
    .option(`${LIMITS.rpcCreditsPerDay} <number>`, 'blockchain RPC credits in 24 hours', limitOf);
}

function limitOf(text: string): number | typeof DEFAULT {
  if (text.toLowerCase() === DEFAULT) return DEFAULT;
  const limit = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new InvalidArgumentError(
    `must be a whole number from 1 to ${MAX_LIMIT}, or "${DEFAULT}", not "${text}"`,
  );
}

/** Writes the change, unless it is empty, and returns the limits after it. */
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

function printLimits(cli: Cli, title: string, ids: object, limits: LimitOverrides): void {
  const names = Object.keys(LIMITS) as (keyof LimitOverrides)[]; // its own keys
  const lines = names.map(
    (name) => [`  ${LIMITS[name].slice(2)}`, String(limits[name] ?? DEFAULT)] as const,
  );
  cli.print(
    { ...ids, limits: Object.fromEntries(names.map((name) => [name, limits[name] ?? null])) },
    `${title}:\n${listing(lines)}`,
  );
}
