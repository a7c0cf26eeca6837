/**
 * Signed receipts of top-ups (the offer-receipt extension): a compact JWS over canonical JSON,
 * EdDSA, under a key of this service that is made once. The `kid` is a `did:key`, so that anybody
 * can check a receipt without asking us.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import { base58Encode } from '../core/base58.ts';
import { sharedSecret } from './secrets.ts';

/** The multicodec prefix of an Ed25519 public key. */
const ED25519_CODEC = Buffer.from([0xed, 0x01]);

export class ReceiptSigner {
  readonly #key: KeyObject;
  readonly #clock: Clock;
  readonly #resourceUrl: string;
  /** DID URL of the key that signs. */
  readonly kid: string;

  constructor(key: KeyObject, clock: Clock, resourceUrl: string) {
    this.#key = key;
    this.#clock = clock;
    this.#resourceUrl = resourceUrl;
    const { x } = createPublicKey(key).export({ format: 'jwk' });
    const publicBytes = Buffer.concat([ED25519_CODEC, Buffer.from(x ?? '', 'base64url')]);
    const identifier = `z${base58Encode(publicBytes)}`;
    this.kid = `did:key:${identifier}#${identifier}`;
  }

  /** The `extensions` of a settlement answer. */
  sign(network: string, payer: string, transaction: string): Record<string, unknown> {
    const header = encode({ alg: 'EdDSA', kid: this.kid });
    // Canonical JSON: the keys stand in order of their names.
    const payload = encode({
      issuedAt: Math.floor(this.#clock.nowMs() / 1000),
      network,
      payer,
      resourceUrl: this.#resourceUrl,
      transaction,
      version: 1,
    });
    const signature = sign(null, Buffer.from(`${header}.${payload}`), this.#key).toString(
      'base64url',
    );
    const receipt = { format: 'jws', signature: `${header}.${payload}.${signature}` };
    return { 'offer-receipt': { info: { receipt } } };
  }
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** The signer whose key all processes share. */
export async function openReceiptSigner(
  store: Store,
  clock: Clock,
  resourceUrl: string,
): Promise<ReceiptSigner> {
  const pem = await sharedSecret(store, 'receipt-key', () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    return privateKey.export({ type: 'pkcs8', format: 'pem' });
  });
  return new ReceiptSigner(createPrivateKey(pem), clock, resourceUrl);
}
