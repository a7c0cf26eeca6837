/** Creates, lists and changes API keys. A key and its cap change in one transaction. */
import {
  NOTHING_SPENT,
  type Spending,
  cappedSpending,
  periodStartDay,
  spendingSince,
} from '../billing/ledger/ledger.ts';
import { bucketOf } from '../billing/limits/limits.ts';
import { type RateRule, rateHeaders } from '../billing/sale.ts';
import type { LimitsSection } from '../config/config.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { dayOf } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Queryable } from '../db/db.ts';
import type { ApiKey, Caller, KeyKind, LimitPeriod, NewKey } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { AccountParts } from './account-parts.ts';

/** The settings of a key that its owner can set. */
export type KeySettings = Pick<
  ApiKey,
  | 'description'
  | 'expiresMs'
  | 'limitPeriod'
  | 'usdLimitNano'
  | 'diemLimitNano'
  | 'modelPrivacy'
  | 'models'
  | 'limits'
  | 'parentId'
>;

export interface CreatedKey {
  readonly key: ApiKey;
  readonly secret: string;
  /** Rate limit headers of the creation of keys. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A key with its spending. */
export interface KeyReport {
  readonly key: ApiKey;
  readonly trailingSevenDays: Spending;
  readonly currentPeriod: Spending;
}

const TRAILING_DAYS = 7;
export const KEYS_ENDPOINT = 'endpoint:api/v1/api_keys';

/** Creates a key for known models. Throws 429 above the keys per minute, 400 above those per account. */
export async function createKey(
  parts: AccountParts,
  caller: Caller,
  kind: KeyKind,
  settings: KeySettings,
): Promise<CreatedKey> {
  const headers = await countCreation(parts, caller);
  const made = await parts.stores.store.transaction((tx) =>
    makeKey(parts, tx, { ...settings, kind, accountId: caller.accountId }),
  );
  return { ...made, headers };
}

/** Inserts a key whose models exist. Throws 400 above the keys per account. */
export async function makeKey(
  parts: AccountParts,
  tx: Queryable,
  wanted: NewKey,
): Promise<Pick<CreatedKey, 'key' | 'secret'>> {
  const { keysPerAccount } = parts.config.current.limits;
  const made = await parts.stores.identity.createKeyWithin(keysPerAccount, wanted, tx);
  if (isCapped(made.key)) await setCap(parts, tx, made.key);
  return made;
}

/** The settings with ids instead of aliases of models. Throws 400 for an unknown model. */
export function withKnownModels({ catalog }: AccountParts, settings: KeySettings): KeySettings {
  return { ...settings, models: knownModels(catalog, settings.models) };
}

/** Changes a key; returns `undefined` if the account has no such active key. */
export async function updateKey(
  parts: AccountParts,
  accountId: string,
  id: string,
  change: (key: ApiKey) => KeySettings,
): Promise<ApiKey | undefined> {
  const { store, identity } = parts.stores;
  const changed = await store.transaction(async (tx) => {
    await identity.lockAccount(accountId, tx);
    const before = await identity.findKey(accountId, id, tx);
    if (before === undefined) return undefined;
    const settings = change(before);
    const { models } = settings;
    const known = models === before.models ? models : knownModels(parts.catalog, models);
    const after: ApiKey = { ...before, ...settings, models: known };
    await identity.updateKey(after, tx);
    if (isCapped(before) || isCapped(after)) await setCap(parts, tx, after);
    return after;
  });
  identity.forget();
  return changed;
}

/** The spending of keys of one account. */
export async function reportKeys(
  { stores: { store }, clock }: AccountParts,
  accountId: string,
  keys: readonly ApiKey[],
): Promise<KeyReport[]> {
  const nowMs = clock.nowMs();
  const firstDay = dayOf(nowMs) - TRAILING_DAYS + 1;
  const trailing = await spendingSince(store, accountId, firstDay);
  const ids = keys.map(({ id }) => id);
  const capped = await cappedSpending(store, ids, nowMs);
  const open = new Map<LimitPeriod, ReadonlyMap<string, Spending>>();
  for (const { id, limitPeriod } of keys) {
    if (capped.has(id) || open.has(limitPeriod)) continue;
    const startDay = periodStartDay(limitPeriod, nowMs);
    open.set(limitPeriod, await spendingSince(store, accountId, startDay));
  }
  return keys.map((key) => ({
    key,
    trailingSevenDays: trailing.get(key.id) ?? NOTHING_SPENT,
    currentPeriod: capped.get(key.id) ?? open.get(key.limitPeriod)?.get(key.id) ?? NOTHING_SPENT,
  }));
}

/** The cap counts the spending of child keys too. */
async function setCap({ stores }: AccountParts, tx: Queryable, key: ApiKey): Promise<void> {
  const { id, accountId, limitPeriod: period, usdLimitNano, diemLimitNano } = key;
  const counts = { keyIds: await stores.identity.idsFrom(accountId, id, tx) };
  const cap = { id, accountId, period, usdLimitNano, diemLimitNano, counts };
  await stores.ledger.setCap(tx, cap);
}

/** The ids of models by id or alias. Throws 400 for an unknown name. */
function knownModels(
  catalog: Catalog,
  names: readonly string[] | undefined,
): readonly string[] | undefined {
  if (names === undefined) return undefined;
  const ids = names.map((name) => {
    const found = catalog.named(name);
    if (found !== undefined) return found.id;
    const message = `Model not found: "${name.slice(0, 100)}"`;
    throw refuseIssues([{ code: 'custom', path: ['models'], message }]);
  });
  return [...new Set(ids)];
}

export function creationRate({ keysPerMinute }: LimitsSection): RateRule {
  return { requestsPerMinute: keysPerMinute, tokensPerMinute: 0, type: 'user' };
}

/** Counts the creation of a key against `limits.keysPerMinute`. Throws 429. */
async function countCreation(
  { windows, clock, limitLog, config }: AccountParts,
  { accountId, keyId, plan }: Caller,
): Promise<Record<string, string>> {
  const nowMs = clock.nowMs();
  const rule = creationRate(config.current.limits);
  const { requestsPerMinute: requestLimit } = rule;
  const bucket = bucketOf({ accountId, keyId }, rule, KEYS_ENDPOINT);
  const taken = await windows.take({ bucket, tokens: 0, requestLimit, tokenLimit: 0 }, nowMs);
  const headers = rateHeaders(taken.state, rule, nowMs);
  if (taken.ok) return headers;
  limitLog.add({ accountId, keyId, modelId: KEYS_ENDPOINT, tier: plan, type: 'RPM' });
  const seconds = Math.max(1, Math.ceil((taken.state.resetsAtMs - nowMs) / 1_000));
  throw new Fault('RATE_LIMIT_EXCEEDED', {
    message: `The limit of ${requestLimit} new API keys per minute is reached; try again in ${seconds} s`,
    retryAfterSeconds: seconds,
    headers,
  });
}

function isCapped(key: ApiKey): boolean {
  return key.usdLimitNano !== undefined || key.diemLimitNano !== undefined;
}
