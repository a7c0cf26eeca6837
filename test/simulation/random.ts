/** Random numbers from a seed: equal on every machine. */
import { hash } from 'node:crypto';

export interface Random {
  /** A uniform number in [0, 1). */
  fraction(): number;
  /** A whole number from `from` to `to`, both included. */
  between(from: number, to: number): number;
  /** `true` once in `times` on average. */
  once(times: number): boolean;
  pick<T>(from: readonly T[]): T;
  bytes(size: number): Buffer;
}

/** xoshiro128** by Blackman and Vigna, seeded by SHA-256 of the text. */
export function randomOf(seed: string): Random {
  const state = hash('sha256', seed, 'buffer');
  let [a, b, c, d] = [0, 4, 8, 12].map((at) => state.readUInt32LE(at)) as [
    number,
    number,
    number,
    number,
  ];
  const next = (): number => {
    const word = Math.imul(rotated(Math.imul(b, 5), 7), 9) >>> 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = rotated(d, 11);
    return word;
  };
  const fraction = (): number => next() / 2 ** 32;
  const between = (from: number, to: number): number =>
    from + Math.floor(fraction() * (to - from + 1));
  return {
    fraction,
    between,
    once: (times) => fraction() * times < 1,
    pick: (from) => from[between(0, from.length - 1)]!,
    bytes: (size) => {
      const made = Buffer.alloc(size);
      for (let at = 0; at < size; at += 1) made[at] = next() >>> 24;
      return made;
    },
  };
}

function rotated(word: number, by: number): number {
  return (word << by) | (word >>> (32 - by));
}
