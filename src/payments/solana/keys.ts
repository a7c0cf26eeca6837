/**
 * Solana keys as operators have them: a keypair file (JSON array), base58 of a wallet export, or
 * the hex of a seed. The secret never appears in an error.
 */
import { createKeyPairSignerFromBytes, createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import { SEED_BYTES, solanaKeyBytes } from '../../core/wallet-keys.ts';

/** Throws a RangeError that names the accepted forms, never the key. */
export async function readSolanaKey(text: string): Promise<KeyPairSigner> {
  const bytes = solanaKeyBytes(text);
  if (bytes === undefined) {
    throw new RangeError(
      'A Solana key must be base58 of 64 or 32 bytes, 64 hex digits, or the JSON array of a keypair file',
    );
  }
  return bytes.length === SEED_BYTES
    ? await createKeyPairSignerFromPrivateKeyBytes(bytes)
    : await createKeyPairSignerFromBytes(bytes);
}
