/**
 * Solana keys as operators have them: a keypair file (JSON array), base58 of a wallet export, or
 * the hex of a seed. The secret never appears in an error.
 */
import { createKeyPairSignerFromBytes, createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import { base58Decode } from '../base58.ts';

const SEED_BYTES = 32;
const PAIR_BYTES = 64;

/** Throws a RangeError that names the accepted forms, never the key. */
export async function readSolanaKey(text: string): Promise<KeyPairSigner> {
  const bytes = keyBytes(text.trim());
  if (bytes?.length === PAIR_BYTES) return await createKeyPairSignerFromBytes(bytes);
  if (bytes?.length === SEED_BYTES) return await createKeyPairSignerFromPrivateKeyBytes(bytes);
  throw new RangeError(
    'A Solana key must be base58 of 64 or 32 bytes, 64 hex digits, or the JSON array of a keypair file',
  );
}

function keyBytes(text: string): Uint8Array | undefined {
  if (text.startsWith('[')) return readArray(text);
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text.replace(/^0x/, ''), 'hex');
  return base58Decode(text, PAIR_BYTES);
}

function readArray(text: string): Uint8Array | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? Uint8Array.from(value as number[]) : undefined; // length is checked
  } catch {
    // Not a keypair file.
    return undefined;
  }
}
