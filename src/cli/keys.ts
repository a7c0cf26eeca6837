/** `farebox keys`: makes, lists and revokes API keys. A secret is shown once, when it is made. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import type { Config } from '../config/config.ts';
import { isoTimeOrNull } from '../core/clock.ts';
import { type ApiKey, LIMIT_PERIODS, MODEL_PRIVACY, type NewKey } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import {
  ACCOUNT,
  type Cli,
  futureMs,
  jsonUsd,
  oneOf,
  shortText,
  shownTime,
  shownUsd,
  usd,
} from './command.ts';
import { Columns } from './terminal.ts';

const MAX_DESCRIPTION_CHARACTERS = 200;
const KEYS_A_PAGE = 1_000;
export const PERIOD = [
  '--period <period>',
  'EPOCH (a day, from 00:00 UTC), WEEK (from Monday), MONTH or LIFETIME',
  oneOf(LIMIT_PERIODS),
] as const;

export function keysCommands(cli: Cli): void {
  createCommand(cli);
  listCommand(cli);
  revokeCommand(cli);
}

function createCommand(cli: Cli): void {
  cli
    .group('keys')
    .command('create')
    .description(`Make an API key; its secret is shown once

Example: farebox keys create --description laptop --limit-usd 5 --period MONTH`)
    .option(...ACCOUNT)
    .option('--description <text>', 'what it is for', shortText(MAX_DESCRIPTION_CHARACTERS))
    .option('--admin', 'a key that may also manage keys over the API')
    .option('--expires <when>', '12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z', futureMs)
    .option('--limit-usd <amount>', 'the most that it may spend in a period', usd)
    .option('--limit-diem <amount>', 'the most daily credit that it may spend in a period', usd)
    .option(...PERIOD, 'EPOCH')
    .option('--models <a,b>', 'the only models that it may use', names)
    .option('--privacy <kind>', 'ALL, PRIVATE_TEXT or PRIVATE_ONLY', oneOf(MODEL_PRIVACY), 'ALL')
    .action((options) =>
      cli.withAccount(options, async ({ config, stores, account }) => {
        const { key, secret } = await createKey(stores, config, {
          accountId: account.id,
          kind: options.admin === true ? 'ADMIN' : 'INFERENCE',
          description: options.description ?? '',
          expiresMs: options.expires,
          limitPeriod: options.period,
          usdLimitNano: options.limitUsd,
          diemLimitNano: options.limitDiem,
          modelPrivacy: options.privacy,
          models: options.models,
          limits: {},
        });
        const what = key.kind === 'ADMIN' ? 'An ADMIN key' : 'A key';
        cli.print(
          { ...jsonKey(key), secret },
          `${what} of the account "${account.name}" (${key.id}). It is shown only now:\n\n  ${secret}\n`,
        );
      }),
    );
}

function listCommand(cli: Cli): void {
  cli
    .group('keys')
    .command('list')
    .description('List the API keys of an account')
    .option(...ACCOUNT)
    .option('--revoked', 'show revoked keys too')
    .action((options) =>
      cli.withAccount(options, async ({ stores, account }) => {
        const { revoked = false } = options;
        const [first] = await stores.identity.listKeys(
          account.id,
          { revoked },
          { limit: 1, offset: 0 },
        );
        if (first === undefined && !cli.isJson) {
          cli.console.stdout.write(
            `The account "${account.name}" has no keys; "farebox keys create" makes one\n`,
          );
          return;
        }
        const titles = ['ID', 'KIND', 'ENDS IN', 'DESCRIPTION', 'CREATED', 'LAST USED', 'EXPIRES'];
        const columns = new Columns([...titles, 'LIMIT', ...(revoked ? ['REVOKED'] : [])]);
        await cli.printPages(
          () => keyPages(stores, account.id, revoked),
          jsonKey,
          columns,
          cellsOf,
        );
      }),
    );
}

function revokeCommand(cli: Cli): void {
  cli
    .group('keys')
    .command('revoke')
    .description(`Revoke an API key for good

A running server stops taking the key within three seconds.`)
    .argument('<key id>', 'Name one key by its id')
    .option(...ACCOUNT)
    .action((id, options) =>
      cli.withAccount(options, async ({ stores, account }) => {
        if (!(await stores.identity.revokeKey(account.id, id))) throw unknownKey(id, account);
        await stores.ledger.recall(account.id);
        cli.print({ id, revoked: true }, `The key ${id} is revoked\n`);
      }),
    );
}

/** Parses `a, b` to `['a', 'b']`; at least one name. */
function names(text: string): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.every((item) => item !== '')) return [...new Set(items)];
  throw new InvalidArgumentError('must be names with commas between them, such as a,b');
}

export function unknownKey(id: string, { name }: { readonly name: string }): Error {
  return new Error(
    `The account "${name}" has no active key "${id}"; "farebox keys list" shows them`,
  );
}

/** Makes a key with its caps, in one transaction. Throws when the account has too many. */
export function createKey(stores: Stores, { limits }: Config, wanted: NewKey) {
  return stores.store.transaction(async (tx) => {
    const made = await stores.identity.createKeyWithin(limits.keysPerAccount, wanted, tx);
    const { usdLimitNano, diemLimitNano, limitPeriod, accountId } = wanted;
    if (usdLimitNano !== undefined || diemLimitNano !== undefined) {
      const cap = { id: made.key.id, accountId, usdLimitNano, diemLimitNano };
      await stores.ledger.setCap(tx, { ...cap, period: limitPeriod });
    }
    return made;
  });
}

/** The keys of an account, newest first, one page in memory at a time. */
export async function* keyPages(
  { identity }: Stores,
  accountId: string,
  revoked: boolean,
): AsyncGenerator<ApiKey[]> {
  for (let offset = 0; ; offset += KEYS_A_PAGE) {
    const keys = await identity.listKeys(accountId, { revoked }, { limit: KEYS_A_PAGE, offset });
    if (keys.length > 0) yield keys;
    if (keys.length < KEYS_A_PAGE) return;
  }
}

function cellsOf(key: ApiKey): string[] {
  return [
    key.id,
    key.kind,
    key.last6,
    key.description,
    shownTime(key.createdMs),
    shownTime(key.lastUsedMs),
    shownTime(key.expiresMs),
    shownLimit(key),
    shownTime(key.revokedMs),
  ];
}

export const PERIOD_WORDS = {
  EPOCH: 'a day',
  WEEK: 'a week',
  MONTH: 'a month',
  LIFETIME: 'in all',
} as const;

function shownLimit(key: ApiKey): string {
  const caps = [
    ...(key.usdLimitNano === undefined ? [] : [`${shownUsd(key.usdLimitNano)} USD`]),
    ...(key.diemLimitNano === undefined ? [] : [`${shownUsd(key.diemLimitNano)} DIEM`]),
  ];
  return caps.length === 0 ? '-' : `${caps.join(', ')} ${PERIOD_WORDS[key.limitPeriod]}`;
}

function jsonKey(key: ApiKey) {
  return {
    id: key.id,
    accountId: key.accountId,
    kind: key.kind,
    last6: key.last6,
    description: key.description,
    createdAt: isoTimeOrNull(key.createdMs),
    expiresAt: isoTimeOrNull(key.expiresMs),
    revokedAt: isoTimeOrNull(key.revokedMs),
    lastUsedAt: isoTimeOrNull(key.lastUsedMs),
    limitPeriod: key.limitPeriod,
    limitUsd: jsonUsd(key.usdLimitNano),
    limitDiem: jsonUsd(key.diemLimitNano),
    models: key.models ?? null,
    privacy: key.modelPrivacy,
  };
}
