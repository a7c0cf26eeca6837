/** Generated secrets that all processes share through the database, and their message authentication codes. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Store } from '../db/db.ts';

/** Returns the secret with this name; the first process stores the result of `make`. */
export async function sharedSecret(
  store: Store,
  name: string,
  make: () => string,
): Promise<string> {
  const found = await readSecret(store, name);
  if (found !== undefined) return found;
  await store.query(
    'INSERT INTO payments_secret (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING',
    [name, make()],
  );
  const secret = await readSecret(store, name);
  if (secret === undefined) throw new Error(`the secret ${name} could not be stored`);
  return secret;
}

async function readSecret(store: Store, name: string): Promise<string | undefined> {
  const rows = await store.query<{ secret: string }>(
    'SELECT secret FROM payments_secret WHERE name = $1',
    [name],
  );
  return rows[0]?.secret;
}

/** HMAC-SHA-256 of a text, base64url. */
export function macOf(secret: string, text: string): string {
  return createHmac('sha256', secret).update(text).digest('base64url');
}

/** Compares in constant time. */
export function isSameMac(given: string, expected: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(expected)];
  return one.length === other.length && timingSafeEqual(one, other);
}
