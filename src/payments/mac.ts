/** Message authentication codes under the secrets that all processes of the service share. */
import { createHmac, timingSafeEqual } from 'node:crypto';

/** HMAC-SHA-256 of a text, base64url. */
export function macOf(secret: string, text: string): string {
  return createHmac('sha256', secret).update(text).digest('base64url');
}

/** Compares in a time that does not depend on where they differ. */
export function isSameMac(given: string, expected: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(expected)];
  return one.length === other.length && timingSafeEqual(one, other);
}
