/** Generated secrets that all processes share through the database, and their message authentication codes. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { assert } from '../core/assert.ts';
import type { Store } from '../db/db.ts';

/** Returns the secret with this name; the first process stores the result of `make`. */
export async function sharedSecret(
  store: Store,
  name: string,
  make: () => string,
): Promise<string> {
  await store.query(
    'INSERT INTO payments_secret (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING',
    [name, make()],
  );
  const sql = 'SELECT secret FROM payments_secret WHERE name = $1';
  const [row] = await store.query<{ secret: string }>(sql, [name]);
  assert(row !== undefined, 'a secret was stored');
  return row.secret;
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
