/**
 * Tokens for the facilitator of Coinbase Developer Platform: a JWT for each request, which names its
 * method, host and path, and is valid for two minutes. The key is an Ed25519 key (base64 of seed and
 * public key) or a P-256 key (PEM).
 */
import { type KeyObject, createHmac, createPrivateKey } from 'node:crypto';

export interface CdpKey {
  readonly keyId: string;
  readonly keySecret: string;
}

const LIFE_SECONDS = 120;
const NONCE_DIGITS = 32;
const SEED_BYTES = 32;
const MS_PER_SECOND = 1_000;

/** Returns the value of the header `Authorization` for one request. `count` differs for each one. */
export async function cdpAuthorization(
  { keyId, keySecret }: CdpKey,
  method: string,
  url: string,
  nowMs: number,
  count: number,
): Promise<string> {
  // Only services with this facilitator load the package.
  const { SignJWT } = await import('jose');
  const { host, pathname } = new URL(url);
  const key = privateKeyOf(keySecret);
  const alg = key.asymmetricKeyType === 'ed25519' ? 'EdDSA' : 'ES256';
  const unique = createHmac('sha256', keySecret).update(`${url} ${nowMs} ${count}`);
  const nonce = unique.digest('hex').slice(0, NONCE_DIGITS);
  const seconds = Math.floor(nowMs / MS_PER_SECOND);
  const token = await new SignJWT({ uris: [`${method} ${host}${pathname}`] })
    .setProtectedHeader({ alg, kid: keyId, typ: 'JWT', nonce })
    .setSubject(keyId)
    .setIssuer('cdp')
    .setAudience(['cdp_service'])
    .setIssuedAt(seconds)
    .setNotBefore(seconds)
    .setExpirationTime(seconds + LIFE_SECONDS)
    .sign(key);
  return `Bearer ${token}`;
}

function privateKeyOf(secret: string): KeyObject {
  // A PEM in an environment variable often has `\n` as text.
  if (secret.includes('-----BEGIN')) return createPrivateKey(secret.replaceAll('\\n', '\n'));
  const bytes = Buffer.from(secret, 'base64');
  const [d, x] = [bytes.subarray(0, SEED_BYTES), bytes.subarray(SEED_BYTES)];
  return createPrivateKey({
    format: 'jwk',
    key: { kty: 'OKP', crv: 'Ed25519', d: d.toString('base64url'), x: x.toString('base64url') },
  });
}
