/**
 * Micro-batching: what is asked in one turn of the event loop travels to the database together.
 *
 * `run` gets the items of a turn and answers each in order, or throws for all; an answer that takes
 * longer than the others can be a promise. While `maxInFlight`
 * batches are on their way, further items wait and form the next batch, so batches grow with the
 * load. Who comes alone never waits for a timer.
 */
import type { Clock } from '../core/clock.ts';

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}

export interface BatcherOptions<Item> {
  /** Batches on their way at once. */
  readonly maxInFlight: number;
  /** Items in a batch, at most. */
  readonly maxItems: number;
  /**
   * What an item works on: one whose key is in a batch on its way waits for the end of that, as the
   * database would make it do, and goes with what has come by then. Default: none waits.
   */
  readonly keyOf?: (item: Item) => string;
  /** Few large batches cost less than many small ones. Default: each begins at once. */
  readonly gather?: Gather;
}

export interface Gather {
  readonly clock: Clock;
  /** A batch beside one on its way has at least so many items, or the other takes `PATIENCE_MS`. */
  readonly leastBeside: number;
  /**
   * Where so many wait when a batch comes back, the next one begins as long after it as it took, so
   * that those whom it answered can be in it again; `MOST_PAUSE_MS` after it, at most.
   */
  readonly pauseFrom: number;
}

const PATIENCE_MS = 10;
const MOST_PAUSE_MS = 5;

/** Answers each item, in order; an `Error` in place of an answer rejects that item alone. */
type RunBatch<Item, Answer> = (
  items: readonly Item[],
) => Promise<readonly (Answer | Promise<Answer> | Error)[]>;

export class Batcher<Item, Answer> {
  readonly #run: RunBatch<Item, Answer>;
  readonly #options: BatcherOptions<Item>;
  #waiting: Waiting<Item, Answer>[] = [];
  /** The keys of each batch on its way. */
  readonly #keys: Set<string>[] = [];
  #scheduled = false;
  #stopWaiting: (() => void) | undefined;
  #inFlight = 0;

  constructor(run: RunBatch<Item, Answer>, options: BatcherOptions<Item>) {
    this.#run = run;
    this.#options = options;
  }

  add(item: Item): Promise<Answer> {
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
      const batch: Waiting<Item, Answer>[] = [];
      const left: Waiting<Item, Answer>[] = [];
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

  /** Until then a batch begins only when it is a large one. */
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

  async #send(batch: readonly Waiting<Item, Answer>[]): Promise<void> {
    const { keyOf, gather } = this.#options;
    const sinceMs = gather?.clock.monotonicMs() ?? 0;
    this.#endWait();
    const keys = keyOf && new Set(batch.map(({ item }) => keyOf(item)));
    if (keys !== undefined) this.#keys.push(keys);
    this.#inFlight += 1;
    try {
      const answers = await this.#run(batch.map((waiting) => waiting.item));
      for (const [index, waiting] of batch.entries()) {
        const answer = answers[index];
        if (answer instanceof Error) waiting.reject(answer);
        else waiting.resolve(answer as Answer | Promise<Answer>); // `run` answers every item
      }
    } catch (error) {
      // The batch failed as one: everybody in it hears why.
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
