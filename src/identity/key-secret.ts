/**
 * Secrets of API keys: `<NAME>_INFERENCE_KEY_` or `<NAME>_ADMIN_KEY_`, then 256 random bits. A
 * secret is shown once; the database keeps its SHA-256, which needs no salt at that entropy.
 */
import { type Ids, sha256Hex } from '../core/ids.ts';
import type { KeyKind } from './caller.ts';

const SECRET_BYTES = 32;
/** Longer than any secret: a caller cannot make the server hash megabytes. */
const MAX_SECRET_LENGTH = 200;

export interface KeySecret {
  readonly secret: string;
  readonly sha256: string;
  readonly last6: string;
}

/** `name` is the service name in upper case, such as `SVC`. */
export function mintSecret(ids: Ids, name: string, kind: KeyKind): KeySecret {
  const secret = `${name}_${kind}_KEY_${ids.bytes(SECRET_BYTES).toString('base64url')}`;
  return { secret, sha256: sha256Hex(secret), last6: secret.slice(-6) };
}

/** The digest to look a presented secret up by; `undefined` when it cannot be one. */
export function digestOf(presented: string): string | undefined {
  if (presented.length === 0 || presented.length > MAX_SECRET_LENGTH) return undefined;
  return sha256Hex(presented);
}
