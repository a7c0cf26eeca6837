/**
 * Seals reasoning text that agents send back with their next request, so that they can neither read
 * nor change it. Format: `fbx1.` and base64url of nonce, AES-256-GCM ciphertext and tag.
 *
 * Each account has its own key, derived from the server's, and the account id is authenticated too:
 * no other account can open the text.
 */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import type { Ids } from '../../core/ids.ts';
import type { Store } from '../../db/db.ts';
import { storedKey } from './stored-key.ts';

/**
 * Begins a sealed text that is not reasoning but the engine's signature of it, for the tool call
 * that follows.
 */
export const SIGNATURE_MARK = '\0signature:';
/** Begins a sealed entry of `reasoning_details` as JSON. */
export const DETAIL_MARK = '\0detail:';
const PREFIX = 'fbx1.';
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_NAME = 'seal';

/** Whether a server like this one sealed the text. */
export function isSealed(text: string): boolean {
  return text.startsWith(PREFIX);
}

export async function openSealer(store: Store, ids: Ids): Promise<Sealer> {
  return new Sealer(await storedKey(store, ids, KEY_NAME), ids);
}

export class Sealer {
  readonly #key: Buffer;
  readonly #ids: Pick<Ids, 'bytes'>;

  constructor(key: Buffer, ids: Pick<Ids, 'bytes'>) {
    this.#key = key;
    this.#ids = ids;
  }

  seal(text: string, accountId: string): string {
    const nonce = this.#ids.bytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#keyOf(accountId), nonce);
    cipher.setAAD(Buffer.from(accountId));
    const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final()]);
    return PREFIX + Buffer.concat([sealed, cipher.getAuthTag()]).toString('base64url');
  }

  /**
   * Returns the text; `undefined` if this server did not seal it for this account. Never throws.
   */
  open(sealed: unknown, accountId: string): string | undefined {
    if (typeof sealed !== 'string' || !sealed.startsWith(PREFIX)) return undefined;
    const bytes = Buffer.from(sealed.slice(PREFIX.length), 'base64url');
    if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(CIPHER, this.#keyOf(accountId), nonce, {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(accountId));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      // Sealed for another account or server, or changed: ignored like missing reasoning.
      return undefined;
    }
  }

  #keyOf(accountId: string): Buffer {
    return createHmac('sha256', this.#key).update(accountId).digest();
  }
}
