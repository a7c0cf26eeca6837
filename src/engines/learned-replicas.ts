/** Replicas of which something was learned that holds from then on, such as a field that they refuse. */
import type { Replica } from './contract.ts';

/** More than any server has; what is not remembered is learned again. */
const MAX_REPLICAS = 10_000;

export class LearnedReplicas {
  readonly #keys = new Set<string>();

  has(replica: Replica): boolean {
    return this.#keys.has(replicaKey(replica));
  }

  add(replica: Replica): void {
    if (this.#keys.size < MAX_REPLICAS) this.#keys.add(replicaKey(replica));
  }
}

export function replicaKey({ engine, model }: Replica): string {
  return `${engine} ${model}`;
}
