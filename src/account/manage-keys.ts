/**
 * API keys in the hands of their account's ADMIN key: made, listed, changed, revoked. A key and its
 * cap change in one transaction, so that no request ever meets one without the other.
 */
import type { ApiKey, Caller, Identity, KeyKind, LimitPeriod } from '../identity/identity.ts';
import { type Clock, dayOf } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import {
  type Ledger,
  NOTHING_SPENT,
  type Spending,
  cappedSpending,
  periodStartDay,
  spendingSince,
} from '../billing/ledger/ledger.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Queryable, Store } from '../db/db.ts';
import { refuseIssues } from '../json/validation.ts';
import { type RateRule, rateHeaders } from '../billing/sale.ts';

export interface ManageKeysParts {
  readonly store: Store;
  readonly identity: Identity;
  readonly ledger: Ledger;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly limits: () => { readonly keysPerAccount: number; readonly keysPerMinute: number };
  /** The id of the model that a name of an allow-list means; `undefined` when there is none. */
  readonly modelIdOf: (name: string) => string | undefined;
}

/** What an owner sets. */
export type KeySettings = Pick<
  ApiKey,
  | 'description'
  | 'expiresMs'
  | 'limitPeriod'
  | 'usdLimitNano'
  | 'diemLimitNano'
  | 'modelPrivacy'
  | 'models'
>;

export interface CreatedKey {
  readonly key: ApiKey;
  readonly secret: string;
  /** What is left of the keys of this minute. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A key with what it has spent. */
export interface KeyReport {
  readonly key: ApiKey;
  readonly trailingSevenDays: Spending;
  readonly currentPeriod: Spending;
}

const TRAILING_DAYS = 7;
const LOGGED_ENDPOINT = 'endpoint:api/v1/api_keys';

export class ManageKeys {
  readonly #parts: ManageKeysParts;

  constructor(parts: ManageKeysParts) {
    this.#parts = parts;
  }

  /**
   * Makes a key. The secret is in this answer and nowhere else. Throws 429 above the keys a
   * minute, 400 above the active keys an account.
   */
  async create(caller: Caller, kind: KeyKind, settings: KeySettings): Promise<CreatedKey> {
    const { store, identity, limits } = this.#parts;
    const models = this.#knownModels(settings.models);
    const headers = await this.#countCreation(caller);
    const made = await store.transaction(async (tx) => {
      const wanted = { ...settings, models, kind, accountId: caller.accountId, limits: {} };
      const { key, secret } = await identity.createKeyWithin(limits().keysPerAccount, wanted, tx);
      if (isCapped(key)) await this.#setCap(tx, key);
      return { key, secret };
    });
    return { ...made, headers };
  }

  /** Changes a key; `undefined` when the account has no such active key. */
  async update(
    caller: Caller,
    id: string,
    change: (key: ApiKey) => KeySettings,
  ): Promise<KeyReport | undefined> {
    const { store, identity } = this.#parts;
    const changed = await store.transaction(async (tx) => {
      await identity.lockAccount(caller.accountId, tx);
      const before = await identity.findKey(caller.accountId, id, tx);
      if (before === undefined) return undefined;
      const settings = change(before);
      const { models } = settings;
      const known = models === before.models ? models : this.#knownModels(models);
      const after: ApiKey = { ...before, ...settings, models: known };
      await identity.updateKey(after, tx);
      if (isCapped(before) || isCapped(after)) await this.#setCap(tx, after);
      return after;
    });
    identity.forget();
    return changed === undefined ? undefined : this.#reportOne(changed);
  }

  /** `false` when the account has no such active key. */
  revoke(caller: Caller, id: string): Promise<boolean> {
    return this.#parts.identity.revokeKey(caller.accountId, id);
  }

  async find(caller: Caller, id: string): Promise<KeyReport | undefined> {
    const key = await this.#parts.identity.findKey(caller.accountId, id);
    return key === undefined ? undefined : this.#reportOne(key);
  }

  /** Every active key, newest first; the caller shows a page of them. */
  async list(caller: Caller): Promise<ApiKey[]> {
    return this.#parts.identity.listKeys(caller.accountId);
  }

  /** What keys of one account have spent, in three reads for all of them and one a period kind. */
  async report(accountId: string, keys: readonly ApiKey[]): Promise<KeyReport[]> {
    const { store, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const firstDay = dayOf(nowMs) - TRAILING_DAYS + 1;
    const trailing = await spendingSince(store, accountId, firstDay);
    const capped = await cappedSpending(store, accountId, nowMs);
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

  async #reportOne(key: ApiKey): Promise<KeyReport> {
    const [report] = await this.report(key.accountId, [key]);
    if (report === undefined) throw new Error('A report has one entry a key');
    return report;
  }

  #setCap(tx: Queryable, key: ApiKey): Promise<void> {
    return this.#parts.ledger.setAllowance(tx, {
      id: key.id,
      accountId: key.accountId,
      period: key.limitPeriod,
      usdLimitNano: key.usdLimitNano,
      diemLimitNano: key.diemLimitNano,
    });
  }

  #knownModels(names: readonly string[] | undefined): readonly string[] | undefined {
    if (names === undefined) return undefined;
    const ids = names.map((name) => {
      const id = this.#parts.modelIdOf(name);
      if (id !== undefined) return id;
      const message = `There is no model "${name.slice(0, 100)}"`;
      throw refuseIssues([{ code: 'custom', path: ['models'], message }]);
    });
    return [...new Set(ids)];
  }

  /** decisions.md 6: at most 20 keys a minute. */
  async #countCreation(caller: Caller): Promise<Record<string, string>> {
    const { windows, clock, limitLog, limits } = this.#parts;
    const nowMs = clock.nowMs();
    const requestLimit = limits().keysPerMinute;
    const bucket = `${caller.accountId}|${LOGGED_ENDPOINT}`;
    const taken = await windows.take({ bucket, tokens: 0, requestLimit, tokenLimit: 0 }, nowMs);
    const rule: RateRule = { requestsPerMinute: requestLimit, tokensPerMinute: 0, type: 'user' };
    const headers = rateHeaders(taken.state, rule, nowMs);
    if (taken.ok) return headers;
    const { accountId, keyId, plan } = caller;
    limitLog.add({ accountId, keyId, modelId: LOGGED_ENDPOINT, tier: plan, type: 'RPM' });
    const seconds = Math.max(1, Math.ceil((taken.state.resetsAtMs - nowMs) / 1_000));
    throw new Fault('RATE_LIMIT_EXCEEDED', {
      message: `The limit of ${requestLimit} new API keys per minute is reached; try again in ${seconds} s`,
      retryAfterSeconds: seconds,
      headers,
    });
  }
}

function isCapped(key: ApiKey): boolean {
  return key.usdLimitNano !== undefined || key.diemLimitNano !== undefined;
}
