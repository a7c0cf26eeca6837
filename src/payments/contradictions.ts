/** What the nodes of a chain have contradicted each other about: counted for the metrics, and logged. */
import type { Log } from '../core/log.ts';

/** Counts answers of nodes that contradict each other, by network, and logs each. */
export class Contradictions {
  readonly #counts = new Map<string, number>();
  readonly #log: Log;

  /** The networks are counted from zero, so that the first contradiction is a change. */
  constructor(log: Log, networks: readonly string[]) {
    this.#log = log;
    for (const network of networks) this.#counts.set(network, 0);
  }

  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  note(network: string, subject: string): void {
    this.#counts.set(network, (this.#counts.get(network) ?? 0) + 1);
    this.#log.warn({ network }, `The nodes contradict each other about ${subject}`);
  }
}
