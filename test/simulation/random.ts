/** Random numbers from a seed: equal on every machine. */
import { hash } from 'node:crypto';
import type { Ids } from '../../src/core/ids.ts';
import { seededIds } from '../support/seeded-ids.ts';

/** `fraction` is uniform in [0, 1). */
export interface Random extends Ids {
  /** A whole number from `from` to `to`, both included. */
  between(from: number, to: number): number;
  /** `true` once in `times` on average. */
  once(times: number): boolean;
  pick<T>(from: readonly T[]): T;
}

export function randomOf(seed: string): Random {
  const ids = seededIds(hash('sha256', seed, 'buffer').readUInt32LE());
  const between = (from: number, to: number): number =>
    from + Math.floor(ids.fraction() * (to - from + 1));
  return {
    ...ids,
    between,
    once: (times) => ids.fraction() * times < 1,
    pick: (from) => from[between(0, from.length - 1)]!,
  };
}
