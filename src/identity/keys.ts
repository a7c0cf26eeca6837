/** API keys as their owner sees them, their database rows, and their secrets. */
import type { Ids } from '../core/ids.ts';
import { type Nano, nano } from '../core/money.ts';
import type { Queryable, Row } from '../db/db.ts';
import type { LimitPeriod } from './budgets.ts';
import { storedPrices } from './accounts.ts';
import type { Caller, KeyKind, LimitOverrides, ModelPrivacy } from './caller.ts';
import type { PlanTerms } from './plan-terms.ts';

export interface ApiKey {
  readonly id: string;
  readonly accountId: string;
  readonly kind: KeyKind;
  /** The key that created it: this key expires with its parent and counts in its cap. */
  readonly parentId?: string | undefined;
  readonly last6: string;
  readonly description: string;
  readonly createdMs: number;
  readonly expiresMs: number | undefined;
  readonly revokedMs: number | undefined;
  readonly lastUsedMs: number | undefined;
  readonly limitPeriod: LimitPeriod;
  readonly usdLimitNano: Nano | undefined;
  readonly diemLimitNano: Nano | undefined;
  readonly modelPrivacy: ModelPrivacy;
  readonly models: readonly string[] | undefined;
  readonly limits: LimitOverrides;
}

export const OWNER_COLUMNS = [
  'description',
  'expires_ms',
  'limit_period',
  'usd_limit_nano',
  'diem_limit_nano',
  'model_privacy',
  'models',
  'limits',
] as const;
export const KEY_COLUMNS = [
  'id',
  'account_id',
  'kind',
  'parent_id',
  'last6',
  'created_ms',
  'revoked_ms',
  'last_used_ms',
  ...OWNER_COLUMNS,
] as const;

/** Turns a row of `identity_key` into a key; the columns are those of `KEY_COLUMNS`. */
export function keyOf(row: Row): ApiKey {
  const text = (name: string): string => String(row[name] ?? '');
  return {
    id: text('id'),
    accountId: text('account_id'),
    kind: text('kind') as KeyKind, // written by this folder only
    parentId: text('parent_id') === '' ? undefined : text('parent_id'),
    last6: text('last6'),
    description: text('description'),
    createdMs: Number(row['created_ms']),
    expiresMs: optionalNumber(row['expires_ms']),
    revokedMs: optionalNumber(row['revoked_ms']),
    lastUsedMs: optionalNumber(row['last_used_ms']),
    limitPeriod: text('limit_period') as LimitPeriod, // written by this folder only
    usdLimitNano: optionalNano(row['usd_limit_nano']),
    diemLimitNano: optionalNano(row['diem_limit_nano']),
    modelPrivacy: text('model_privacy') as ModelPrivacy, // written by this folder only
    models: row['models'] === null ? undefined : (JSON.parse(text('models')) as string[]), // ours
    limits: row['limits'] === null ? {} : (JSON.parse(text('limits')) as LimitOverrides), // ours
  };
}

/** Returns the caller of a key; `row` adds `plan`, `account_limits`, `prices` and `is_operator`. */
export function callerOfKey(key: ApiKey, row: Row, terms: PlanTerms): Caller {
  const capped = key.usdLimitNano !== undefined || key.diemLimitNano !== undefined;
  return {
    kind: 'key',
    accountId: key.accountId,
    keyId: key.id,
    // The row of a member is a key that no list contains.
    keyKind: key.kind,
    ...terms.of(String(row['plan']), storedPrices(row)),
    capId: capped ? key.id : undefined,
    modelPrivacy: key.modelPrivacy,
    models: key.models === undefined ? undefined : new Set(key.models),
    accountLimits: JSON.parse(String(row['account_limits'] ?? '{}')) as LimitOverrides, // ours
    keyLimits: key.limits,
    isOperator: row['is_operator'] === 1n,
  };
}

function optionalNumber(value: Row[string] | undefined): number | undefined {
  return value === null || value === undefined ? undefined : Number(value);
}

function optionalNano(value: Row[string] | undefined): Nano | undefined {
  return typeof value === 'bigint' ? nano(value) : undefined;
}

/** Returns what an owner can change of a key, in the order of `OWNER_COLUMNS`. */
export function ownerValues(key: ApiKey): (string | number | bigint | null)[] {
  return [
    key.description,
    key.expiresMs ?? null,
    key.limitPeriod,
    key.usdLimitNano ?? null,
    key.diemLimitNano ?? null,
    key.modelPrivacy,
    key.models === undefined ? null : JSON.stringify(key.models),
    JSON.stringify(key.limits),
  ];
}

const SECRET_BYTES = 32;

/**
 * Returns `<NAME>_INFERENCE_KEY_` or `<NAME>_ADMIN_KEY_` followed by 256 random bits; `name` is the
 * service name in upper case. It is shown once; the database stores its SHA-256, which needs no
 * salt at that entropy.
 */
export function newSecret(ids: Ids, name: string, kind: KeyKind): string {
  return `${name}_${kind}_KEY_${ids.bytes(SECRET_BYTES).toString('base64url')}`;
}

/** Also of a revoked key. */
export async function accountOfKey(store: Queryable, id: string): Promise<string | undefined> {
  const sql = 'SELECT account_id FROM identity_key WHERE id = $1';
  const [row] = await store.query<{ account_id: string }>(sql, [id]);
  return row?.account_id;
}
