/** Keccak-256, not SHA3-256, from OpenSSL: more than ten times as fast as JavaScript. */
import { hash } from 'node:crypto';

export function keccak256(data: Uint8Array): Buffer {
  return hash('keccak-256', data, 'buffer');
}
