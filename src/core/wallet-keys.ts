/** Validates wallet private keys from the configuration. A key never appears in an error. */
import { type KeyObject, createPrivateKey, createPublicKey } from 'node:crypto';
import { base58Decode } from './base58.ts';

/** The group order of secp256k1: a private key is from 1 to this minus 1. */
const SECP256K1_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

export function isEvmKey(text: string): boolean {
  if (!/^0x[0-9a-fA-F]{64}$/.test(text)) return false;
  const key = BigInt(text);
  return key > 0n && key < SECP256K1_ORDER;
}

export const SEED_BYTES = 32;
const PAIR_BYTES = 64;
/** PKCS #8 header of an Ed25519 seed (RFC 8410); the seed follows. */
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

/**
 * Parses a seed (32 bytes) or a seed with its public key (64 bytes) from a keypair file (JSON
 * array), base58 of a wallet export, or hex of the seed. `undefined` for anything else, including a
 * public key that does not match the seed.
 */
export function solanaKeyBytes(text: string): Uint8Array | undefined {
  const bytes = decode(text.trim());
  if (bytes?.length === SEED_BYTES) return bytes;
  if (bytes?.length !== PAIR_BYTES) return undefined;
  const own = publicKeyOf(bytes.subarray(0, SEED_BYTES));
  return own.equals(bytes.subarray(SEED_BYTES)) ? bytes : undefined;
}

export function ed25519KeyOf(seed: Uint8Array): KeyObject {
  const key = Buffer.concat([PKCS8_HEAD, seed]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

function publicKeyOf(seed: Uint8Array): Buffer {
  const { x } = createPublicKey(ed25519KeyOf(seed)).export({ format: 'jwk' });
  return Buffer.from(x ?? '', 'base64url');
}

function decode(text: string): Uint8Array | undefined {
  if (text.startsWith('[')) return readArray(text);
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text.replace(/^0x/, ''), 'hex');
  return base58Decode(text, PAIR_BYTES);
}

function readArray(text: string): Uint8Array | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every(isByte) ? Uint8Array.from(value) : undefined;
  } catch {
    // Not a keypair file.
    return undefined;
  }
}

function isByte(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255;
}
