/**
 * Micro-batching: calls of one turn of the event loop go to the database together.
 *
 * `run` receives the items of a turn and returns a result for each in order, or throws for all; a
 * late result can be a promise. While `maxInFlight` batches run, further items form the next batch,
 * so batches grow with the load. A single call never waits for a timer.
 */
import type { Clock } from '../core/clock.ts';

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result | Promise<Result>) => void;
  readonly reject: (error: unknown) => void;
}

export interface BatcherOptions<Item> {
  readonly maxInFlight: number;
  readonly maxItems: number;
  /**
   * The resource that an item locks. An item whose key is in a running batch waits for that batch
   * to end, as it would in the database. Default: no item waits.
   */
  readonly keyOf?: (item: Item) => string;
  /** Prefers few large batches, which cost less. Default: each batch starts at once. */
  readonly gather?: Gather;
}

export interface Gather {
  readonly clock: Clock;
  /** Minimum size of a second concurrent batch, unless the first exceeds `PATIENCE_MS`. */
  readonly leastBeside: number;
  /**
   * If this many items wait when a batch ends, the next one is delayed by the duration of the last,
   * at most `MOST_PAUSE_MS`, so that the clients that just received their results can join it.
   */
  readonly pauseFrom: number;
}

const PATIENCE_MS = 10;
const MOST_PAUSE_MS = 5;

type RunBatch<Item, Result> = (
  items: readonly Item[],
) => Promise<readonly (Result | Promise<Result> | Error)[]>;

export class Batcher<Item, Result> {
  readonly #run: RunBatch<Item, Result>;
  readonly #options: BatcherOptions<Item>;
  #waiting: Waiting<Item, Result>[] = [];
  readonly #keys: Set<string>[] = [];
  #scheduled = false;
  #stopWaiting: (() => void) | undefined;
  #inFlight = 0;

  constructor(run: RunBatch<Item, Result>, options: BatcherOptions<Item>) {
    this.#run = run;
    this.#options = options;
  }

  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#scheduled) return;
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.#start();
      });
    });
  }

  #start(isImpatient = false): void {
    const { maxInFlight, maxItems, keyOf, gather } = this.#options;
    while (this.#waiting.length > 0 && this.#inFlight < maxInFlight) {
      if (gather !== undefined && !isImpatient && this.#waiting.length < gather.leastBeside) {
        if (this.#inFlight > 0) this.#wait(gather, PATIENCE_MS);
        if (this.#stopWaiting !== undefined) return;
      }
      if (keyOf === undefined || this.#inFlight === 0) {
        void this.#send(this.#waiting.splice(0, maxItems));
        continue;
      }
      const batch: Waiting<Item, Result>[] = [];
      const left: Waiting<Item, Result>[] = [];
      for (const one of this.#waiting) {
        const key = keyOf(one.item);
        const mustWait = batch.length >= maxItems || this.#keys.some((keys) => keys.has(key));
        (mustWait ? left : batch).push(one);
      }
      if (batch.length === 0) return;
      this.#waiting = left;
      void this.#send(batch);
    }
  }

  #wait({ clock }: Gather, ms: number): void {
    this.#stopWaiting ??= clock.after(ms, () => {
      this.#stopWaiting = undefined;
      this.#start(true);
    });
  }

  #pause(gather: Gather, sinceMs: number): void {
    const tookMs = gather.clock.monotonicMs() - sinceMs;
    if (tookMs === 0 || this.#waiting.length < gather.pauseFrom) return;
    this.#wait(gather, Math.min(tookMs, MOST_PAUSE_MS));
  }

  #endWait(): void {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
  }

  async #send(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const { keyOf, gather } = this.#options;
    const sinceMs = gather?.clock.monotonicMs() ?? 0;
    this.#endWait();
    const keys = keyOf && new Set(batch.map(({ item }) => keyOf(item)));
    if (keys !== undefined) this.#keys.push(keys);
    this.#inFlight += 1;
    try {
      const results = await this.#run(batch.map((waiting) => waiting.item));
      for (const [index, waiting] of batch.entries()) {
        const result = results[index];
        if (result instanceof Error) waiting.reject(result);
        else waiting.resolve(result as Result | Promise<Result>); // `run` returns a result for every item
      }
    } catch (error) {
      // The whole batch failed: reject each item.
      for (const waiting of batch) waiting.reject(error);
    } finally {
      this.#inFlight -= 1;
      this.#endWait();
      if (keys !== undefined) this.#keys.splice(this.#keys.indexOf(keys), 1);
      if (gather !== undefined && this.#inFlight === 0) this.#pause(gather, sinceMs);
      this.#start();
    }
  }
}
