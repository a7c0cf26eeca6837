/**
 * Tracks which origins have lost keep-alive. An origin that sends bytes that belong to no request
 * (on an idle connection, after the declared end of a response, a second response) may send them
 * again while the next request waits on the same connection, and HTTP/1.1 cannot distinguish them
 * from the response to that request. From then on each request to the origin gets a connection of
 * its own, as long as the process runs.
 *
 * Separate from connections and pools: a pool is replaced when settings change, and two pools can
 * have one origin.
 */
import type { UpstreamTarget } from '../core/upstream-url.ts';

export class Origin {
  /** For the log: without a path, and without credentials. */
  readonly name: string;
  /** Whether a connection may serve a second request; only `loseKeepAlive` changes it. */
  keepsAlive = true;
  readonly #onLoss: (origin: Origin) => void;
  readonly #watchers = new Set<() => void>();

  constructor(name: string, onLoss: (origin: Origin) => void) {
    this.name = name;
    this.#onLoss = onLoss;
  }

  /** Ends keep-alive permanently. Only the first call has an effect. */
  loseKeepAlive(): void {
    if (!this.keepsAlive) return;
    this.keepsAlive = false;
    this.#onLoss(this);
    for (const lost of this.#watchers) lost();
    this.#watchers.clear();
  }

  /** Calls `lost` when keep-alive ends; returns the function that stops watching. */
  watch(lost: () => void): () => void {
    this.#watchers.add(lost);
    return () => this.#watchers.delete(lost);
  }
}

/** The origins of one part of the server, with one entry per configured URL. */
export class Origins {
  readonly #onLoss: (origin: Origin) => void;
  readonly #byName = new Map<string, Origin>();

  /** `onLoss` is called once for each origin that loses keep-alive. */
  constructor(onLoss: (origin: Origin) => void) {
    this.#onLoss = onLoss;
  }

  of({ origin, socketPath }: UpstreamTarget): Origin {
    const name = socketPath === null ? origin : `unix:${socketPath}`;
    let known = this.#byName.get(name);
    if (known === undefined) {
      known = new Origin(name, this.#onLoss);
      this.#byName.set(name, known);
    }
    return known;
  }
}
