/**
 * Signed receipts of top-ups (the offer-receipt extension): a compact JWS over canonical JSON,
 * EdDSA, under a key of this service that is made once. The `kid` is a `did:key`, so that anybody
 * can check a receipt without asking us.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { base58Encode } from '../core/base58.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import { sharedSecret } from './secrets.ts';

/** The multicodec prefix of an Ed25519 public key. */
const ED25519_CODEC = Buffer.from([0xed, 0x01]);

/** Gives the `extensions` of a settlement answer. */
export type SignReceipt = (
  network: string,
  payer: string,
  transaction: string,
) => Readonly<Record<string, unknown>>;

/** Signs with a key that all processes share. */
export async function openReceiptSigner(
  store: Store,
  clock: Clock,
  resourceUrl: string,
): Promise<SignReceipt> {
  const pem = await sharedSecret(store, 'receipt-key', () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    return privateKey.export({ type: 'pkcs8', format: 'pem' });
  });
  const key = createPrivateKey(pem);
  const { x } = createPublicKey(key).export({ format: 'jwk' });
  const publicBytes = Buffer.concat([ED25519_CODEC, Buffer.from(x ?? '', 'base64url')]);
  const identifier = `z${base58Encode(publicBytes)}`;
  const header = encode({ alg: 'EdDSA', kid: `did:key:${identifier}#${identifier}` });
  return (network, payer, transaction) => {
    const issuedAt = Math.floor(clock.nowMs() / SECOND_MS);
    // Canonical JSON: the keys stand in order of their names.
    const claims = encode({ issuedAt, network, payer, resourceUrl, transaction, version: 1 });
    const signature = sign(null, Buffer.from(`${header}.${claims}`), key).toString('base64url');
    const receipt = { format: 'jws', signature: `${header}.${claims}.${signature}` };
    return { 'offer-receipt': { info: { receipt } } };
  };
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
