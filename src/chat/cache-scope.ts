/**
 * Keeps the prompt caches of model servers apart by account. A server that caches prompts tells by its
 * cached-token counts and its speed whether a prompt was sent before; without a scope one account could
 * find out what another one sent. So the `prompt_cache_key` of a caller is replaced by a keyed hash of
 * account and key, and engines with a salt field (`cache_salt`) get one salt per account.
 *
 * Both are stable over restarts and processes, because the key is stored with the ledger. They reveal
 * neither the account nor the caller's own key.
 */
import { createHmac } from 'node:crypto';
import type { Ids } from '../core/ids.ts';
import type { Store } from '../db/db.ts';
import { storedKey } from './agents/stored-key.ts';

const KEY_NAME = 'prompt-cache';
/** Hosted engines take keys of up to 64 characters; these are 32. */
const SCOPED_BYTES = 24;
/** Salts that are kept in memory, one per account; the oldest is computed again. */
const MAX_SALTS = 10_000;

/** The current settings; a whole `ConfigInForce` fits. */
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
   * The salt of an account: base64url, so that it needs no escapes in JSON. `given` is a `cache_salt`
   * of the caller, which parts the caches of its account further. `undefined` when caches are shared.
   */
  saltOf(accountId: string, given?: unknown): string | undefined {
    if (!this.#config.current.promptCaches.perAccount) return undefined;
    if (typeof given === 'string') return this.#scoped('salt', accountId, given);
    let salt = this.#salts.get(accountId);
    if (salt !== undefined) return salt;
    salt = this.#scoped('salt', accountId);
    for (const oldest of this.#salts.keys()) {
      if (this.#salts.size < MAX_SALTS) break;
      this.#salts.delete(oldest);
    }
    this.#salts.set(accountId, salt);
    return salt;
  }

  /** As a JSON list, so that no two lists of parts are the same text. */
  #scoped(...parts: readonly string[]): string {
    const hash = createHmac('sha256', this.#key).update(JSON.stringify(parts)).digest();
    return hash.toString('base64url', 0, SCOPED_BYTES);
  }
}
