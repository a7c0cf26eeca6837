/**
 * Text that a caller keeps for us and cannot read or change: the reasoning of a turn, which agents
 * send back with the next one. `fbx1.` and base64url of nonce, AES-256-GCM cipher text and tag.
 *
 * Each account has a key of its own, derived from the server's, and is bound into the seal besides:
 * what one account was given opens for no other.
 */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import type { Ids } from '../../core/ids.ts';
import type { Store } from '../../db/db.ts';
import { storedKey } from './stored-key.ts';

const PREFIX = 'fbx1.';
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_NAME = 'seal';

/** The sealer of this database: its key is made once and shared by all processes. */
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

  /** The text, or `undefined` for what this server has not sealed for this account. Never throws. */
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
      // Of another account or server, or changed on its way: it is worth nothing, and no error.
      return undefined;
    }
  }

  #keyOf(accountId: string): Buffer {
    return createHmac('sha256', this.#key).update(accountId).digest();
  }
}
