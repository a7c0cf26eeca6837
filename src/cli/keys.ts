/** `farebox keys`: makes, lists and revokes API keys. A secret is shown once, when it is made. */
import type { Config } from '../config/config.ts';
import { isoTimeOrNull, systemClock } from '../core/clock.ts';
import { type ApiKey, LIMIT_PERIODS, MODEL_PRIVACY, type NewKey } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import {
  type Command,
  type Invocation,
  UsageError,
  findAccount,
  futureMs,
  jsonUsd,
  shownTime,
  shownUsd,
  withStores,
} from './command.ts';
import { Columns } from './terminal.ts';

const MAX_DESCRIPTION_CHARACTERS = 200;
const KEYS_A_PAGE = 1_000;

export const keysCreateCommand: Command = {
  name: 'keys create',
  summary: 'Make an API key; its secret is shown once',
  usage: 'keys create [--account <account>] [options]',
  details: `
  --account <id or name>   whose key it is (default: the owner)
  --description <text>     what it is for
  --admin                  a key that may also manage keys over the API
  --expires <when>         12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z (default: never)
  --limit-usd <amount>     the most that it may spend in a period
  --limit-diem <amount>    the most daily credit that it may spend in a period
  --period <period>        EPOCH (a day, from 00:00 UTC), MONTH or LIFETIME (default: EPOCH)
  --models <a,b>           the only models that it may use
  --privacy <kind>         ALL, PRIVATE_TEXT or PRIVATE_ONLY (default: ALL)

Example: farebox keys create --description laptop --limit-usd 5 --period MONTH`,
  run: (invocation) => {
    const wanted = wantedKey(invocation);
    return withStores(invocation, async ({ config, stores }) => {
      const account = await findAccount(stores, invocation.text('account'));
      const owned = { ...wanted, accountId: account.id };
      const { key, secret } = await createKey(stores, config, owned);
      const what = key.kind === 'ADMIN' ? 'An ADMIN key' : 'A key';
      invocation.answer(
        () => ({ ...jsonKey(key), secret }),
        () =>
          `${what} of the account "${account.name}" (${key.id}). It is shown only now:\n\n  ${secret}\n`,
      );
    });
  },
};

/** Makes a key with its caps, in one transaction. Throws when the account has too many. */
export function createKey(stores: Stores, { limits }: Config, wanted: NewKey) {
  return stores.store.transaction(async (tx) => {
    const made = await stores.identity.createKeyWithin(limits.keysPerAccount, wanted, tx);
    const { usdLimitNano, diemLimitNano, limitPeriod, accountId } = wanted;
    if (usdLimitNano !== undefined || diemLimitNano !== undefined) {
      const cap = { id: made.key.id, accountId, usdLimitNano, diemLimitNano };
      await stores.ledger.setAllowance(tx, { ...cap, period: limitPeriod });
    }
    return made;
  });
}

/** What the words ask for; checked before anything is opened. */
function wantedKey(invocation: Invocation): Omit<NewKey, 'accountId'> {
  const description = invocation.text('description') ?? '';
  if (description.length > MAX_DESCRIPTION_CHARACTERS) {
    throw new UsageError(`--description has at most ${MAX_DESCRIPTION_CHARACTERS} characters`);
  }
  const expires = invocation.text('expires');
  return {
    kind: invocation.given('admin') ? 'ADMIN' : 'INFERENCE',
    description,
    expiresMs: expires === undefined ? undefined : futureMs(expires, systemClock().nowMs()),
    limitPeriod: invocation.word('period', LIMIT_PERIODS) ?? 'EPOCH',
    usdLimitNano: invocation.amount('limit-usd'),
    diemLimitNano: invocation.amount('limit-diem'),
    modelPrivacy: invocation.word('privacy', MODEL_PRIVACY) ?? 'ALL',
    models: invocation.list('models'),
    limits: {},
  };
}

export const keysListCommand: Command = {
  name: 'keys list',
  summary: 'List the API keys of an account',
  usage: 'keys list [--account <account>] [--revoked]',
  details: `
  --account <id or name>   whose keys (default: the owner)
  --revoked                show revoked keys too`,
  run: (invocation) =>
    withStores(invocation, async ({ stores }) => {
      const account = await findAccount(stores, invocation.text('account'));
      const revoked = invocation.given('revoked');
      const pages = () => keyPages(stores, account.id, revoked);
      const [first] = await stores.identity.listKeys(
        account.id,
        { revoked },
        { limit: 1, offset: 0 },
      );
      if (first === undefined && !invocation.isJson) {
        invocation.console.stdout.write(
          `The account "${account.name}" has no keys; "farebox keys create" makes one\n`,
        );
        return;
      }
      const titles = ['ID', 'KIND', 'ENDS IN', 'DESCRIPTION', 'CREATED', 'LAST USED', 'EXPIRES'];
      const columns = new Columns([...titles, 'LIMIT', ...(revoked ? ['REVOKED'] : [])]);
      await invocation.answerPages(pages, jsonKey, columns, cellsOf);
    }),
};

/** The keys of an account, newest first, a page in memory at a time: any number are expired or revoked. */
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

export const keysRevokeCommand: Command = {
  name: 'keys revoke',
  takesWords: true,
  summary: 'Revoke an API key for good',
  usage: 'keys revoke <key id> [--account <account>]',
  details: `
  --account <id or name>   whose key it is (default: the owner)

A running server stops taking the key within three seconds.`,
  run: (invocation) => {
    const id = invocation.only('Name one key by its id');
    return withStores(invocation, async ({ stores }) => {
      const account = await findAccount(stores, invocation.text('account'));
      if (!(await stores.identity.revokeKey(account.id, id))) {
        throw new Error(
          `The account "${account.name}" has no active key "${id}"; "farebox keys list" shows them`,
        );
      }
      await stores.ledger.recall(account.id);
      invocation.answer(
        () => ({ id, revoked: true }),
        () => `The key ${id} is revoked\n`,
      );
    });
  },
};

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
