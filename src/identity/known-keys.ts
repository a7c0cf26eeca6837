/**
 * The callers of API keys. Keys are cached for `REMEMBER_MS`, so a revocation by another process
 * takes effect within that time, and one by this process at once. One statement reads a key with
 * its parent keys and the budgets of its account; a refresh reads all keys in use.
 */
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import type { Row, Store } from '../db/db.ts';
import { type Budget, budgetOf } from './budgets.ts';
import type { PlanTerms } from './plan-terms.ts';
import { type Caller, type LimitOverrides, MODEL_PRIVACY } from './caller.ts';
import { type ApiKey, KEY_COLUMNS, callerOfKey, keyOf } from './keys.ts';

const REMEMBER_MS = 3_000;
const MAX_REMEMBERED = 50_000;
/** A key in use is refreshed together with others, up to this long before it expires. */
const RENEW_EARLY_MS = REMEMBER_MS / 2;
const RENEWED_AT_ONCE = 500;
/** Longer than any secret: bounds the input of the hash. */
const MAX_SECRET_LENGTH = 200;

interface KnownKeysParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly planTerms: PlanTerms;
}

interface Remembered {
  readonly caller: Caller;
  /** Unix time, set by the owner of the key. */
  readonly expiresMs: number | undefined;
  /** Monotonic time, so that caching does not depend on the system clock. */
  readonly untilMs: number;
  wasUsed: boolean;
}

export class KnownKeys {
  readonly #parts: KnownKeysParts;
  /** By digest, oldest read first. */
  readonly #remembered = new Map<string, Remembered>();
  readonly #renewals = new Map<string, Promise<ReadKeys>>();
  readonly #lastUsed = new Map<string, number>();
  /** Counts changes: a key that was read before a change is not cached after it. */
  #generation = 0;

  constructor(parts: KnownKeysParts) {
    this.#parts = parts;
  }

  /**
   * The caller of an API key, synchronously if it is cached. Throws `AUTHENTICATION_FAILED` for an unknown
   * key, `AUTHENTICATION_FAILED_INACTIVE_KEY` for a revoked or expired one, `API_ACCESS_DISABLED`.
   */
  callerOf(secret: string): Caller | Promise<Caller> {
    if (secret.length === 0 || secret.length > MAX_SECRET_LENGTH) throw unknownKey();
    const digest = sha256Hex(secret);
    const atMs = this.#parts.clock.monotonicMs();
    const known = this.#remembered.get(digest);
    if (known !== undefined && known.untilMs >= atMs) return this.#used(known);
    const found =
      known === undefined ? this.#lookUp('secret_sha256', digest) : this.#renew(digest, atMs);
    return found.then((one) => this.#used(one));
  }

  /** As `callerOf`, by the id of the key and without the cache: for work that was accepted earlier. */
  async callerOfId(keyId: string): Promise<Caller> {
    return this.#used(await this.#lookUp('id', keyId));
  }

  #used(remembered: Remembered): Caller {
    const nowMs = this.#parts.clock.nowMs();
    const { caller, expiresMs } = remembered;
    if (expiresMs !== undefined && expiresMs <= nowMs) throw inactiveKey();
    remembered.wasUsed = true;
    this.#lastUsed.set(caller.keyId, nowMs);
    return caller;
  }

  lastUsedMs(keyId: string): number | undefined {
    return this.#lastUsed.get(keyId);
  }

  forget(): void {
    this.#generation += 1;
    this.#remembered.clear();
    this.#renewals.clear();
  }

  async writeLastUse(): Promise<void> {
    if (this.#lastUsed.size === 0) return;
    const noted = [...this.#lastUsed].sort(([a], [b]) => (a < b ? -1 : 1));
    this.#lastUsed.clear();
    const statements = noted.map(([id, usedMs]) => ({
      sql: SET_LAST_USE,
      parameters: [usedMs, id],
    }));
    try {
      await this.#parts.store.transaction((tx) => tx.run(statements), { durable: false });
    } catch (error) {
      // The next call writes them, with newer times.
      for (const [id, usedMs] of noted) {
        if (!this.#lastUsed.has(id)) this.#lastUsed.set(id, usedMs);
      }
      throw error;
    }
  }

  async #lookUp(by: 'secret_sha256' | 'id', value: string): Promise<Remembered> {
    const generation = this.#generation;
    const atMs = this.#parts.clock.monotonicMs();
    const read = await this.#read(`k.${by} = $1`, value);
    const remembered = presentable(read.find(value, atMs));
    if (by === 'secret_sha256') this.#remember(value, remembered, generation);
    return remembered;
  }

  /** Returns the caller of a key id and its earliest expiry. Throws if the key is not usable. */
  bounded(
    keyId: string,
  ): Promise<{ readonly caller: Caller; readonly expiresMs: number | undefined }> {
    return this.#lookUp('id', keyId);
  }

  /** Returns the parent keys, nearest first. Throws if one of them is revoked or missing. */
  async above(key: ApiKey): Promise<ApiKey[]> {
    const above = (await this.#read('k.id = $1', key.id)).above(key);
    if (above === undefined) throw inactiveKey();
    return above;
  }

  #remember(digest: string, remembered: Remembered, generation: number): void {
    if (generation !== this.#generation) return;
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
    this.#remembered.delete(digest);
    this.#remembered.set(digest, remembered);
  }

  /** Refreshes a key together with the keys in use that expire soon. */
  async #renew(digest: string, atMs: number): Promise<Remembered> {
    const read = await (this.#renewals.get(digest) ?? this.#renewWith(digest, atMs));
    const known = this.#remembered.get(digest);
    return known !== undefined && known.untilMs > atMs
      ? known
      : presentable(read.find(digest, atMs));
  }

  async #renewWith(digest: string, atMs: number): Promise<ReadKeys> {
    const digests = [digest];
    for (const [other, { untilMs, wasUsed }] of this.#remembered) {
      if (untilMs - RENEW_EARLY_MS > atMs || digests.length >= RENEWED_AT_ONCE) break;
      if (other === digest || this.#renewals.has(other)) continue;
      if (wasUsed) digests.push(other);
      else if (untilMs < atMs) this.#remembered.delete(other);
    }
    const reading = this.#refresh(digests, atMs);
    for (const one of digests) this.#renewals.set(one, reading);
    try {
      return await reading;
    } finally {
      for (const one of digests) this.#renewals.delete(one);
    }
  }

  async #refresh(digests: readonly string[], atMs: number): Promise<ReadKeys> {
    const generation = this.#generation;
    const which = 'k.secret_sha256 IN (SELECT json_array_elements_text($1::json))';
    const read = await this.#read(which, JSON.stringify(digests));
    for (const digest of digests) {
      const key = read.find(digest, atMs);
      if (typeof key === 'string') this.#remembered.delete(digest);
      else this.#remember(digest, key, generation);
    }
    return read;
  }

  async #read(which: string, parameter: string): Promise<ReadKeys> {
    const { store, planTerms } = this.#parts;
    return new ReadKeys(await store.query(selectKeys(which), [parameter]), planTerms);
  }
}

type Refusal = 'unknown' | 'disabled' | 'inactive';

class ReadKeys {
  readonly #rows = new Map<string, Row>();
  readonly #budgets = new Map<string, Budget[]>();
  readonly #planTerms: PlanTerms;

  constructor(rows: readonly Row[], planTerms: PlanTerms) {
    this.#planTerms = planTerms;
    for (const row of rows) {
      this.#rows.set(String(row['id']), row);
      this.#rows.set(String(row['digest']), row);
      const { budget_id: id = null, budget_created_ms: created_ms = null } = row;
      if (id === null) continue;
      const accountId = String(row['account_id']);
      const budgets = this.#budgets.get(accountId) ?? [];
      budgets.push(budgetOf({ ...row, id, created_ms }));
      this.#budgets.set(accountId, budgets);
    }
  }

  /** Returns a key by id or digest with its restrictions; `atMs` is the monotonic read time. */
  find(name: string, atMs: number): Remembered | Refusal {
    const row = this.#rows.get(name);
    if (row === undefined) return 'unknown';
    if (row['disabled'] !== 0n) return 'disabled';
    const key = keyOf(row);
    const above = this.above(key);
    if (key.revokedMs !== undefined || above === undefined) return 'inactive';
    const caller = callerOfKey(key, row, this.#planTerms);
    const remembered = { untilMs: atMs + REMEMBER_MS, wasUsed: false };
    const budgets = this.#budgets.get(key.accountId) ?? [];
    if (above.length === 0 && budgets.length === 0) {
      return { ...remembered, caller, expiresMs: key.expiresMs };
    }
    const capped = above.filter((one) => (one.usdLimitNano ?? one.diemLimitNano) !== undefined);
    const counted = { parentIds: capped.map(({ id }) => id), budgets };
    const ends = [key, ...above].flatMap(({ expiresMs }) => expiresMs ?? []);
    const expiresMs = ends.length === 0 ? undefined : Math.min(...ends);
    const bounded = { ...caller, ...narrowed(caller, above), budgets: counted };
    return { ...remembered, caller: bounded, expiresMs };
  }

  /** Returns the parent keys, nearest first; `undefined` if one is revoked or missing. */
  above({ parentId }: ApiKey): ApiKey[] | undefined {
    const above: ApiKey[] = [];
    for (let id = parentId; id !== undefined;) {
      const row = this.#rows.get(id);
      const parent = row && keyOf(row);
      if (parent === undefined || parent.revokedMs !== undefined) return undefined;
      above.push(parent);
      id = parent.parentId;
    }
    return above;
  }
}

/**
 * Returns the models and limits that a key and all its parents allow, because a parent may have
 * been restricted later. A limit set only on a parent is shared with it.
 */
function narrowed(
  { models, modelPrivacy, keyLimits }: Caller,
  above: readonly ApiKey[],
): Pick<Caller, 'models' | 'modelPrivacy' | 'keyLimits' | 'limitKeyId'> {
  let allowed = models;
  let strictest = modelPrivacy;
  let limits = keyLimits;
  let limitKeyId: string | undefined;
  for (const key of above) {
    const ofKey = key.models && new Set(key.models);
    if (allowed === undefined) allowed = ofKey;
    else if (ofKey !== undefined) allowed = ofKey.intersection(allowed);
    const isStricter = MODEL_PRIVACY.indexOf(key.modelPrivacy) > MODEL_PRIVACY.indexOf(strictest);
    if (isStricter) strictest = key.modelPrivacy;
    if (Object.keys(key.limits).length === 0) continue;
    if (Object.keys(limits).length === 0) limitKeyId = key.id;
    limits = lowerOf(limits, key.limits);
  }
  const bounded = { models: allowed, modelPrivacy: strictest, keyLimits: limits };
  return limitKeyId === undefined ? bounded : { ...bounded, limitKeyId };
}

function lowerOf(a: LimitOverrides, b: LimitOverrides): LimitOverrides {
  const names = Object.keys({ ...a, ...b }) as (keyof LimitOverrides)[]; // its own names
  const lower = (name: keyof LimitOverrides) => Math.min(a[name] ?? Infinity, b[name] ?? Infinity);
  return Object.fromEntries(names.map((name) => [name, lower(name)]));
}

/**
 * Selects keys and, as further rows, their parents. The budgets of an account are joined to only
 * one of its keys, so that the number of rows stays linear.
 */
const selectKeys = (which: string): string => `WITH RECURSIVE found AS (
  SELECT k.* FROM identity_key k WHERE ${which}
  UNION SELECT p.* FROM found f
    JOIN identity_key p ON p.id = f.parent_id AND p.account_id = f.account_id
), numbered AS (
  SELECT f.*, row_number() OVER (PARTITION BY f.account_id ORDER BY f.id) AS nth FROM found f
)
SELECT ${KEY_COLUMNS.map((name) => `k.${name}`).join(', ')}, k.secret_sha256 AS digest,
  a.plan AS plan, a.disabled AS disabled, a.limits AS account_limits, a.prices AS prices,
  a.is_operator AS is_operator,
  b.id AS budget_id, b.tag AS tag, b.value AS value, b.period AS period, b.usd_nano AS usd_nano,
  b.created_ms AS budget_created_ms
FROM numbered k JOIN identity_account a ON a.id = k.account_id
  LEFT JOIN identity_budget b ON b.account_id = k.account_id AND k.nth = 1
ORDER BY b.created_ms, b.id`;

const SET_LAST_USE = 'UPDATE identity_key SET last_used_ms = $1 WHERE id = $2';

function presentable(key: Remembered | Refusal): Remembered {
  if (key === 'unknown') throw unknownKey();
  if (key === 'disabled') throw new Fault('API_ACCESS_DISABLED');
  if (key === 'inactive') throw inactiveKey();
  return key;
}

function unknownKey(): Fault {
  return new Fault('AUTHENTICATION_FAILED', {
    message: 'Authentication failed: unknown API key',
  });
}

function inactiveKey(): Fault {
  return new Fault('AUTHENTICATION_FAILED_INACTIVE_KEY');
}
