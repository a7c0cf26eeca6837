/**
 * Separates the prompt caches of model servers by account. Cached-token counts and latency show
 * whether a prompt was sent before, so without separation an account could find out what another
 * one sent. The caller's `prompt_cache_key` is replaced by a keyed hash of account and key, and
 * engines with `cache_salt` get a salt per account.
 *
 * Both are the same after restarts and in all processes, and reveal neither account nor key.
 */
import { createHmac } from 'node:crypto';
import type { Ids } from '../core/ids.ts';
import type { Store } from '../db/db.ts';
import { storedKey } from './agents/stored-key.ts';

const KEY_NAME = 'prompt-cache';
/** Hosted engines accept keys of up to 64 characters; these have 32. */
const SCOPED_BYTES = 24;
const MAX_SALTS = 10_000;

interface ScopeConfig {
  readonly current: { readonly promptCaches: { readonly perAccount: boolean } };
}

export async function openCacheScope(
  store: Store,
  ids: Ids,
  config: ScopeConfig,
): Promise<CacheScope> {
  return new CacheScope(await storedKey(store, ids, KEY_NAME), config);
}

export class CacheScope {
  readonly #key: Buffer;
  readonly #config: ScopeConfig;
  readonly #salts = new Map<string, string>();

  constructor(key: Buffer, config: ScopeConfig) {
    this.#key = key;
    this.#config = config;
  }

  keyOf(accountId: string, key: string): string {
    return this.#config.current.promptCaches.perAccount ? this.#scoped('key', accountId, key) : key;
  }

  /**
   * Returns the salt as base64url, which needs no escapes in JSON; `undefined` if caches are
   * shared. `given`: the caller's `cache_salt`, which separates the caches of its account further.
   */
  saltOf(accountId: string, given?: unknown): string | undefined {
    if (!this.#config.current.promptCaches.perAccount) return undefined;
    if (typeof given === 'string') return this.#scoped('salt', accountId, given);
    let salt = this.#salts.get(accountId);
    if (salt !== undefined) return salt;
    salt = this.#scoped('salt', accountId);
    const [oldest = ''] = this.#salts.keys();
    if (this.#salts.size >= MAX_SALTS) this.#salts.delete(oldest);
    this.#salts.set(accountId, salt);
    return salt;
  }

  /** Hashes a JSON list, so that different lists have different texts. */
  #scoped(...parts: readonly string[]): string {
    const hash = createHmac('sha256', this.#key).update(JSON.stringify(parts)).digest();
    return hash.toString('base64url', 0, SCOPED_BYTES);
  }
}
