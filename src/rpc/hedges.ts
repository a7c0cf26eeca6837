/**
 * Second calls for slow reads: if a node has not responded within the time in which it returns 95 %
 * of the responses to a method, the read also goes to the next node, and the first usable response
 * counts. A budget bounds the second calls to a share of all reads.
 */

/** A shorter wait would only add load. */
const MIN_WAIT_MS = 20;
/** The wait for a node without enough responses, as a multiple of the time of the next node. */
const UNKNOWN_FACTOR = 2;
/** Second calls that may be saved up. */
const MAX_SAVED = 10;
const MIN_RESPONSES = 10;
/** Methods in memory; the time of further ones is not measured. */
const MAX_METHODS = 200;
const QUANTILE = 0.95;
const STEP = 0.2;

interface Timed {
  readonly times: ResponseTimes;
}

export interface Hedge<Node> {
  readonly to: Node;
  readonly afterMs: number;
}

/** Key of all methods together; no method has this name. */
const ALL = '';

/** The time in which one node returns 95 % of the responses, for each method and for all together. */
export class ResponseTimes {
  readonly #methods = new Map<string, { p95Ms: number; responses: number }>();

  note(method: string, tookMs: number): void {
    for (const name of [ALL, method]) {
      const known = this.#methods.get(name);
      if (known !== undefined) {
        // Rises after 5 % of the responses as much as it falls after the others.
        const share = tookMs > known.p95Ms ? QUANTILE : QUANTILE - 1;
        known.p95Ms += STEP * share * Math.max(1, known.p95Ms);
        known.responses += 1;
      } else if (this.#methods.size < MAX_METHODS)
        this.#methods.set(name, { p95Ms: 2 * tookMs, responses: 1 });
    }
  }

  p95Ms(method = ALL): number | undefined {
    const known = this.#methods.get(method);
    return known && known.responses >= MIN_RESPONSES ? known.p95Ms : undefined;
  }
}

export class Hedges {
  readonly #share: number;
  #saved: number;

  constructor(share: number) {
    this.#share = share;
    this.#saved = share > 0 ? MAX_SAVED : 0;
  }

  /** Counts a read, and returns when and where to call a second time. */
  plan<Node extends Timed>(
    first: Node,
    next: Node | undefined,
    method: string,
  ): Hedge<Node> | undefined {
    this.#saved = Math.min(MAX_SAVED, this.#saved + this.#share);
    if (next === undefined || this.#saved < 1) return undefined;
    const ownMs = first.times.p95Ms(method);
    const nextMs = next.times.p95Ms(method);
    const afterMs = ownMs ?? (nextMs && UNKNOWN_FACTOR * nextMs);
    return afterMs === undefined
      ? undefined
      : { to: next, afterMs: Math.max(MIN_WAIT_MS, afterMs) };
  }

  /** Takes a second call from the budget. */
  take(): boolean {
    if (this.#saved < 1) return false;
    this.#saved -= 1;
    return true;
  }
}
