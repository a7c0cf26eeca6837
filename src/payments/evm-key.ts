/**
 * A secp256k1 private key: its EVM address and its signatures, in native code. In JavaScript the first
 * address takes 40 ms of every start.
 */
import secp256k1 from 'secp256k1';
import { checksumAddress } from '../core/addresses.ts';
import { keccak256 } from '../core/keccak.ts';

export class EvmKey {
  readonly address: `0x${string}`;
  readonly #bytes: Uint8Array;

  /** Throws if the 32 bytes are not a valid key. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const lower = addressOf(secp256k1.publicKeyCreate(bytes, false));
    this.address = checksumAddress(lower) as `0x${string}`; // the same digits
  }

  /** Signs a digest of 32 bytes: `0x`, then r, s and v (27 or 28) in hex. Deterministic. */
  sign(digest: Uint8Array): `0x${string}` {
    const { signature, recid } = secp256k1.ecdsaSign(digest, this.#bytes);
    return `0x${Buffer.concat([signature, Buffer.from([27 + recid])]).toString('hex')}`;
  }
}

/** The lower-case address of an uncompressed public key (65 bytes). */
export function addressOf(publicKey: Uint8Array): `0x${string}` {
  return `0x${keccak256(publicKey.subarray(1)).toString('hex', 12)}`;
}
