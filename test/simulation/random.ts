/** Random numbers from a seed: equal on every machine. */
import { hash } from 'node:crypto';
import { seededIds } from '../support/seeded-ids.ts';

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

export function randomOf(seed: string): Random {
  const ids = seededIds(hash('sha256', seed, 'buffer').readUInt32LE());
  const fraction = (): number => ids.fraction();
  const between = (from: number, to: number): number =>
    from + Math.floor(fraction() * (to - from + 1));
  return {
    fraction,
    between,
    once: (times) => fraction() * times < 1,
    pick: (from) => from[between(0, from.length - 1)]!,
    bytes: (size) => ids.bytes(size),
  };
}
