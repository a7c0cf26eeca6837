/**
 * API keys in the hands of their account's ADMIN key: made, listed, changed, revoked. A key and its
 * cap change in one transaction, so that no request ever meets one without the other.
 */
import type {
  ApiKey,
  Caller,
  Identity,
  KeyKind,
  LimitPeriod,
  ModelPrivacy,
} from '../identity/identity.ts';
import { type Clock, DAY_MS, dayOf } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Nano } from '../core/money.ts';
import {
  type Ledger,
  NOTHING_SPENT,
  type Spending,
  cappedSpending,
  periodStartDay,
  spendingSince,
} from '../billing/ledger/ledger.ts';
import type { LimitLog, WindowState, Windows } from '../billing/limits/limits.ts';
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

/** What an owner sets; in a change, a missing field stays as it is. */
export interface KeyWish {
  readonly description: string;
  readonly expiresMs: number | undefined;
  readonly limitPeriod: LimitPeriod;
  readonly usdLimitNano: Nano | undefined;
  readonly diemLimitNano: Nano | undefined;
  readonly modelPrivacy: ModelPrivacy;
  /** `undefined` is every model. */
  readonly models: readonly string[] | undefined;
}

/** A key with what it has spent. */
export interface KeyReport {
  readonly key: ApiKey;
  readonly trailingSevenDays: Spending;
  readonly currentPeriod: Spending;
}

const TRAILING_DAYS = 7;
const LOGGED_ENDPOINT = 'endpoint:api/v1/api_keys';
const CREATION_RATE_TYPE = 'user';

export class ManageKeys {
  readonly #parts: ManageKeysParts;

  constructor(parts: ManageKeysParts) {
    this.#parts = parts;
  }

  /**
   * Makes a key. The secret is in this answer and nowhere else. Throws 429 above the keys a
   * minute, 400 above the active keys an account. `headers` say what is left of the minute.
   */
  async create(
    caller: Caller,
    kind: KeyKind,
    wish: KeyWish,
  ): Promise<{ key: ApiKey; secret: string; headers: Record<string, string> }> {
    const { store, identity, limits } = this.#parts;
    const models = this.#knownModels(wish.models);
    const headers = await this.#countCreation(caller);
    const made = await store.transaction(async (tx) => {
      const wanted = { ...wish, models, kind, accountId: caller.accountId, limits: {} };
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
    change: (key: ApiKey) => KeyWish,
  ): Promise<KeyReport | undefined> {
    const { store, identity } = this.#parts;
    const changed = await store.transaction(async (tx) => {
      await identity.lockAccount(caller.accountId, tx);
      const before = await identity.findKey(caller.accountId, id, tx);
      if (before === undefined) return undefined;
      const wish = change(before);
      const models = wish.models === before.models ? before.models : this.#knownModels(wish.models);
      const after: ApiKey = { ...before, ...wish, models };
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
    const trailing = await spendingSince(
      store,
      accountId,
      dayOf(nowMs - TRAILING_DAYS * DAY_MS) + 1,
    );
    const capped = await cappedSpending(store, accountId, nowMs);
    const open = new Map<LimitPeriod, ReadonlyMap<string, Spending>>();
    const periods = new Set(
      keys.filter((key) => !capped.has(key.id)).map((key) => key.limitPeriod),
    );
    for (const period of periods) {
      open.set(period, await spendingSince(store, accountId, periodStartDay(period, nowMs)));
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
    const headers = creationHeaders(taken.state, nowMs);
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

function creationHeaders(state: WindowState, nowMs: number): Record<string, string> {
  const rule: RateRule = {
    requestsPerMinute: state.requestLimit,
    tokensPerMinute: 0,
    type: CREATION_RATE_TYPE,
  };
  return rateHeaders(state, rule, nowMs);
}

function isCapped(key: ApiKey): boolean {
  return key.usdLimitNano !== undefined || key.diemLimitNano !== undefined;
}
