/** Remembers replicas by a learned property, such as a parameter that they reject. */
import type { Replica } from './contract.ts';

/** More replicas than any server has; a dropped one is learned again. */
const MAX_REPLICAS = 10_000;

export class LearnedReplicas {
  readonly #keys = new Set<string>();

  has(replica: Replica): boolean {
    return this.#keys.has(replicaKey(replica));
  }

  add(replica: Replica): void {
    if (this.#keys.size < MAX_REPLICAS) this.#keys.add(replicaKey(replica));
  }

  remove(replica: Replica): void {
    this.#keys.delete(replicaKey(replica));
  }
}

export function replicaKey({ engine, model }: Replica): string {
  return `${engine} ${model}`;
}
