/** `farebox keys`: creates, lists and revokes API keys. A secret is shown once, at creation. */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config/config.ts';
import { isoTimeOrNull, systemClock } from '../core/clock.ts';
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
import { offeredModels } from './models.ts';
import { Columns } from './terminal.ts';

const MAX_DESCRIPTION_CHARACTERS = 200;
const KEYS_A_PAGE = 1_000;
export const PERIOD = [
  '--period <period>',
  'EPOCH (a UTC day), WEEK (from Monday), MONTH or LIFETIME',
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
    .description(`Create an API key and print its secret once

Example: farebox keys create --description laptop --limit-usd 5 --period MONTH`)
    .option(...ACCOUNT)
    .option('--description <text>', 'purpose of the key', shortText(MAX_DESCRIPTION_CHARACTERS))
    .option('--admin', 'create an ADMIN key, which also manages keys over the API')
    .option(
      '--expires <when>',
      'a span or a time: 12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z (default: never)',
      futureMs,
    )
    .option('--limit-usd <amount>', 'spend limit per period, in USD (default: none)', usd)
    .option(
      '--limit-diem <amount>',
      'spend limit of daily credit per period, in DIEM (default: none)',
      usd,
    )
    .option(...PERIOD, 'EPOCH')
    .option('--models <a,b>', 'the models that the key may use (default: all)', names)
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
          models: options.models && (await modelIds(config, options.models)),
          limits: {},
        });
        cli.print(
          { ...jsonKey(key), secret },
          `Created the ${key.kind} key ${key.id} of the account "${account.name}". Copy the secret now, it is not shown again:\n\n  ${secret}\n`,
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
    .option('--revoked', 'include revoked keys')
    .action((options) =>
      cli.withAccount(options, async ({ stores, account }) => {
        const { revoked = false } = options;
        const titles = ['ID', 'KIND', 'ENDS IN', 'DESCRIPTION', 'CREATED', 'LAST USED', 'EXPIRES'];
        await cli.printPages({
          pages: () => keyPages(stores, account.id, revoked),
          json: jsonKey,
          columns: new Columns([...titles, 'LIMIT', ...(revoked ? ['REVOKED'] : [])]),
          cells: cellsOf,
          empty: `The account "${account.name}" has no keys; "farebox keys create" creates one\n`,
        });
      }),
    );
}

function revokeCommand(cli: Cli): void {
  cli
    .group('keys')
    .command('revoke')
    .description(`Revoke an API key permanently

A running server rejects the key within 3 seconds.`)
    .argument('<key id>', 'id of the key, as "farebox keys list" shows it')
    .option(...ACCOUNT)
    .action((id, options) =>
      cli.withAccount(options, async ({ stores, account }) => {
        if (!(await stores.identity.revokeKey(account.id, id))) throw unknownKey(id, account);
        await stores.ledger.holds.recall(account.id);
        cli.print({ id, revoked: true }, `Revoked the key ${id}\n`);
      }),
    );
}

/** Parses `a, b` to `['a', 'b']`; at least one name. */
function names(text: string): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.every((item) => item !== '')) return [...new Set(items)];
  throw new InvalidArgumentError('must be names separated by commas, such as a,b');
}

/**
 * The ids of models by id or alias. A model that the server itself has found has no alias here.
 * Throws for an unknown name.
 */
async function modelIds(config: Config, given: readonly string[]): Promise<readonly string[]> {
  const catalog = new Catalog({ settings: config, clock: systemClock() });
  const ids = given.map((name) => catalog.named(name)?.id ?? name);
  const unknown = ids.filter((id) => catalog.get(id) === undefined);
  const { models } = unknown.length === 0 ? { models: [] } : await offeredModels(config);
  const missing = unknown.find((id) => models.every((model) => model.id !== id));
  if (missing === undefined) return [...new Set(ids)];
  throw new Error(`Model not found: "${missing}"; "farebox models" lists the models`);
}

export function unknownKey(id: string, { name }: { readonly name: string }): Error {
  return new Error(
    `The account "${name}" has no active key "${id}"; "farebox keys list" lists its keys`,
  );
}

/** Creates a key and its cap in one transaction. Throws if the account has too many keys. */
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
  LIFETIME: 'in total',
} as const;

function shownLimit(key: ApiKey): string {
  const caps = [
    ...(key.usdLimitNano === undefined ? [] : [`${shownUsd(key.usdLimitNano)} USD`]),
    ...(key.diemLimitNano === undefined ? [] : [`${shownUsd(key.diemLimitNano)} DIEM`]),
  ];
  return caps.length === 0 ? '-' : `${caps.join(', ')} ${PERIOD_WORDS[key.limitPeriod]}`;
}

function jsonKey(key: ApiKey) {
  const { id, accountId, kind, last6, description, limitPeriod } = key;
  return {
    id,
    accountId,
    kind,
    last6,
    description,
    createdAt: isoTimeOrNull(key.createdMs),
    expiresAt: isoTimeOrNull(key.expiresMs),
    revokedAt: isoTimeOrNull(key.revokedMs),
    lastUsedAt: isoTimeOrNull(key.lastUsedMs),
    limitPeriod,
    limitUsd: jsonUsd(key.usdLimitNano),
    limitDiem: jsonUsd(key.diemLimitNano),
    models: key.models ?? null,
    privacy: key.modelPrivacy,
  };
}
