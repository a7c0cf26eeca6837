/**
 * API keys as their owner sees them: rows, changes and reads. Every statement names the account,
 * so that no owner reaches another's key.
 */
import { type Nano, nano } from '../core/money.ts';
import type { Queryable, Row } from '../db/db.ts';
import type { KeyKind, LimitOverrides, ModelPrivacy } from './caller.ts';

export const LIMIT_PERIODS = ['EPOCH', 'MONTH', 'LIFETIME'] as const;
export type LimitPeriod = (typeof LIMIT_PERIODS)[number];

export interface ApiKey {
  readonly id: string;
  readonly accountId: string;
  readonly kind: KeyKind;
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

export const KEY_COLUMNS = `id, account_id, kind, last6, description, created_ms, expires_ms,
  revoked_ms, last_used_ms, limit_period, usd_limit_nano, diem_limit_nano, model_privacy, models,
  limits`;

/** Turns a row of `identity_key` into a key; the columns are those of `KEY_COLUMNS`. */
export function keyOf(row: Row): ApiKey {
  const text = (name: string): string => String(row[name] ?? '');
  return {
    id: text('id'),
    accountId: text('account_id'),
    kind: text('kind') as KeyKind, // written by this folder only
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

function optionalNumber(value: Row[string] | undefined): number | undefined {
  return value === null || value === undefined ? undefined : Number(value);
}

function optionalNano(value: Row[string] | undefined): Nano | undefined {
  return typeof value === 'bigint' ? nano(value) : undefined;
}

/** Newest first; revoked keys are left out unless asked for. */
export async function listKeys(
  store: Queryable,
  accountId: string,
  options: { readonly revoked: boolean },
): Promise<ApiKey[]> {
  const rows = await store.query(
    `SELECT ${KEY_COLUMNS} FROM identity_key WHERE account_id = $1
     AND (revoked_ms IS NULL OR $2 = 1) ORDER BY created_ms DESC, id`,
    [accountId, options.revoked ? 1 : 0],
  );
  return rows.map(keyOf);
}

/** Keys that are neither revoked nor expired. */
export async function countActiveKeys(
  store: Queryable,
  accountId: string,
  nowMs: number,
): Promise<number> {
  const [row] = await store.query<{ total: bigint }>(
    `SELECT count(*) AS total FROM identity_key WHERE account_id = $1 AND revoked_ms IS NULL
     AND (expires_ms IS NULL OR expires_ms > $2)`,
    [accountId, nowMs],
  );
  return Number(row?.total ?? 0n);
}

export async function findKey(
  store: Queryable,
  accountId: string,
  id: string,
): Promise<ApiKey | undefined> {
  const [row] = await store.query(
    `SELECT ${KEY_COLUMNS} FROM identity_key WHERE account_id = $1 AND id = $2 AND revoked_ms IS NULL`,
    [accountId, id],
  );
  return row === undefined ? undefined : keyOf(row);
}

export async function insertKey(
  store: Queryable,
  key: ApiKey,
  secretSha256: string,
): Promise<void> {
  await store.query(
    `INSERT INTO identity_key (${KEY_COLUMNS}, secret_sha256)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
    [
      key.id,
      key.accountId,
      key.kind,
      key.last6,
      key.description,
      key.createdMs,
      key.expiresMs ?? null,
      null,
      null,
      key.limitPeriod,
      key.usdLimitNano ?? null,
      key.diemLimitNano ?? null,
      key.modelPrivacy,
      key.models === undefined ? null : JSON.stringify(key.models),
      JSON.stringify(key.limits),
      secretSha256,
    ],
  );
}

/** Writes the fields that an owner can change. */
export async function updateKey(store: Queryable, key: ApiKey): Promise<void> {
  await store.query(
    `UPDATE identity_key SET description = $3, expires_ms = $4, limit_period = $5,
     usd_limit_nano = $6, diem_limit_nano = $7, model_privacy = $8, models = $9, limits = $10
     WHERE account_id = $1 AND id = $2 AND revoked_ms IS NULL`,
    [
      key.accountId,
      key.id,
      key.description,
      key.expiresMs ?? null,
      key.limitPeriod,
      key.usdLimitNano ?? null,
      key.diemLimitNano ?? null,
      key.modelPrivacy,
      key.models === undefined ? null : JSON.stringify(key.models),
      JSON.stringify(key.limits),
    ],
  );
}

/** `false` when there is no such active key. */
export async function revokeKey(
  store: Queryable,
  accountId: string,
  id: string,
  nowMs: number,
): Promise<boolean> {
  const rows = await store.query(
    `UPDATE identity_key SET revoked_ms = $3 WHERE account_id = $1 AND id = $2
     AND revoked_ms IS NULL RETURNING id`,
    [accountId, id, nowMs],
  );
  return rows.length > 0;
}
