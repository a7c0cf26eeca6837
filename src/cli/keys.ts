/** `farebox keys`: makes, lists and revokes API keys. A secret is shown once, when it is made. */
import { type ApiKey, LIMIT_PERIODS, MODEL_PRIVACY, type NewKey } from '../identity/identity.ts';
import { systemClock } from '../core/clock.ts';
import { type Command, type Invocation, UsageError, printJson } from './command.ts';
import { table } from './table.ts';
import {
  amountOption,
  futureMs,
  isGiven,
  jsonTime,
  jsonUsd,
  listOption,
  shownTime,
  shownUsd,
  textOption,
  wordOption,
} from './values.ts';
import { type Desk, accountOf, withStores } from './with-stores.ts';

const MAX_DESCRIPTION_CHARACTERS = 200;

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
  options: {
    account: { type: 'string' },
    description: { type: 'string' },
    admin: { type: 'boolean' },
    expires: { type: 'string' },
    'limit-usd': { type: 'string' },
    'limit-diem': { type: 'string' },
    period: { type: 'string' },
    models: { type: 'string' },
    privacy: { type: 'string' },
  },
  run: (invocation) => {
    const wanted = wantedKey(invocation, systemClock().nowMs());
    return withStores(invocation, (desk) => createKey(invocation, desk, wanted));
  },
};

async function createKey(
  invocation: Invocation,
  { config, stores }: Desk,
  wanted: WantedKey,
): Promise<number> {
  const account = await accountOf(invocation, stores);
  const { keysPerAccount } = config.limits;
  const owned = { ...wanted, accountId: account.id };
  const { key, secret } = await stores.store.transaction(async (tx) => {
    const made = await stores.identity.createKeyWithin(keysPerAccount, owned, tx);
    const { usdLimitNano, diemLimitNano, limitPeriod } = wanted;
    if (usdLimitNano !== undefined || diemLimitNano !== undefined) {
      const cap = { id: made.key.id, accountId: account.id, usdLimitNano, diemLimitNano };
      await stores.ledger.setAllowance(tx, { ...cap, period: limitPeriod });
    }
    return made;
  });
  if (isGiven(invocation, 'json')) printJson(invocation, { ...jsonKey(key), secret });
  else {
    const what = key.kind === 'ADMIN' ? 'An ADMIN key' : 'A key';
    invocation.console.stdout.write(
      `${what} of the account "${account.name}" (${key.id}). It is shown only now:\n\n  ${secret}\n`,
    );
  }
  return 0;
}

/** What the words ask for; checked before anything is opened. */
type WantedKey = Omit<NewKey, 'accountId'>;

function wantedKey(invocation: Invocation, nowMs: number): WantedKey {
  const description = textOption(invocation, 'description') ?? '';
  if (description.length > MAX_DESCRIPTION_CHARACTERS) {
    throw new UsageError(`--description has at most ${MAX_DESCRIPTION_CHARACTERS} characters`);
  }
  const expires = textOption(invocation, 'expires');
  return {
    kind: isGiven(invocation, 'admin') ? 'ADMIN' : 'INFERENCE',
    description,
    expiresMs: expires === undefined ? undefined : futureMs(expires, nowMs),
    limitPeriod: wordOption(invocation, 'period', LIMIT_PERIODS) ?? 'EPOCH',
    usdLimitNano: amountOption(invocation, 'limit-usd'),
    diemLimitNano: amountOption(invocation, 'limit-diem'),
    modelPrivacy: wordOption(invocation, 'privacy', MODEL_PRIVACY) ?? 'ALL',
    models: listOption(invocation, 'models'),
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
  options: { account: { type: 'string' }, revoked: { type: 'boolean' } },
  run: (invocation) => withStores(invocation, (desk) => listKeys(invocation, desk)),
};

async function listKeys(invocation: Invocation, { stores }: Desk): Promise<number> {
  const account = await accountOf(invocation, stores);
  const revoked = isGiven(invocation, 'revoked');
  const keys = await stores.identity.listKeys(account.id, { revoked });
  if (isGiven(invocation, 'json')) {
    printJson(invocation, keys.map(jsonKey));
    return 0;
  }
  if (keys.length === 0) {
    invocation.console.stdout.write(
      `The account "${account.name}" has no keys; "farebox keys create" makes one\n`,
    );
    return 0;
  }
  const titles = ['ID', 'KIND', 'ENDS IN', 'DESCRIPTION', 'CREATED', 'LAST USED', 'EXPIRES'];
  const columns = [...titles, 'LIMIT', ...(revoked ? ['REVOKED'] : [])];
  const rows = keys.map((key) => [
    key.id,
    key.kind,
    key.last6,
    key.description,
    shownTime(key.createdMs),
    shownTime(key.lastUsedMs),
    shownTime(key.expiresMs),
    shownLimit(key),
    ...(revoked ? [shownTime(key.revokedMs)] : []),
  ]);
  invocation.console.stdout.write(
    table(
      columns.map((title) => ({ title })),
      rows,
    ),
  );
  return 0;
}

const PERIOD_WORDS = { EPOCH: 'a day', MONTH: 'a month', LIFETIME: 'in all' } as const;

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
  options: { account: { type: 'string' } },
  run: (invocation) => {
    const [id, ...rest] = invocation.positionals;
    if (id === undefined || rest.length > 0) throw new UsageError('Name one key by its id');
    return withStores(invocation, (desk) => revokeKey(invocation, desk, id));
  },
};

async function revokeKey(invocation: Invocation, { stores }: Desk, id: string): Promise<number> {
  const account = await accountOf(invocation, stores);
  if (!(await stores.identity.revokeKey(account.id, id))) {
    throw new Error(
      `The account "${account.name}" has no active key "${id}"; "farebox keys list" shows them`,
    );
  }
  if (isGiven(invocation, 'json')) printJson(invocation, { id, revoked: true });
  else invocation.console.stdout.write(`The key ${id} is revoked\n`);
  return 0;
}

function jsonKey(key: ApiKey): Record<string, unknown> {
  return {
    id: key.id,
    accountId: key.accountId,
    kind: key.kind,
    last6: key.last6,
    description: key.description,
    createdAt: jsonTime(key.createdMs),
    expiresAt: jsonTime(key.expiresMs),
    revokedAt: jsonTime(key.revokedMs),
    lastUsedAt: jsonTime(key.lastUsedMs),
    limitPeriod: key.limitPeriod,
    limitUsd: jsonUsd(key.usdLimitNano),
    limitDiem: jsonUsd(key.diemLimitNano),
    models: key.models ?? null,
    privacy: key.modelPrivacy,
  };
}
