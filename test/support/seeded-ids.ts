/** Ids that are the same in every run. */
import { type Ids, orderedBy } from '../../src/core/ids.ts';

/** A deterministic generator: the same seed yields the same ids. */
export function seededIds(seed: number): Ids {
  let state = seed >>> 0 || 1;
  // Mulberry32: small and well distributed, not cryptographic.
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  function bytes(size: number): Buffer {
    return Buffer.from(Array.from({ length: size }, () => Math.floor(next() * 256)));
  }
  const hex = (size: number): string => bytes(size).toString('hex');
  return {
    bytes,
    hex,
    ordered: orderedBy(hex),
    uuid: () => {
      const digits = hex(16);
      return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-4${digits.slice(13, 16)}-a${digits.slice(17, 20)}-${digits.slice(20)}`;
    },
    fraction: next,
  };
}
