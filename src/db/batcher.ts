/**
 * Micro-batching: what is asked in one turn of the event loop travels to the database together.
 *
 * `run` gets the items of a turn and answers each in order, or throws for all; an answer that takes
 * longer than the others can be a promise. While `maxInFlight`
 * batches are on their way, further items wait and form the next batch, so batches grow with the
 * load and a request never waits for a timer.
 */

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}

export interface BatcherOptions {
  /** Batches on their way at once. */
  readonly maxInFlight: number;
  /** Items in a batch, at most. */
  readonly maxItems: number;
}

/** Answers each item, in order; an `Error` in place of an answer rejects that item alone. */
type RunBatch<Item, Answer> = (
  items: readonly Item[],
) => Promise<readonly (Answer | Promise<Answer> | Error)[]>;

export class Batcher<Item, Answer> {
  readonly #run: RunBatch<Item, Answer>;
  readonly #options: BatcherOptions;
  readonly #waiting: Waiting<Item, Answer>[] = [];
  #scheduled = false;
  #inFlight = 0;

  constructor(run: RunBatch<Item, Answer>, options: BatcherOptions) {
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

  #start(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#options.maxInFlight) {
      void this.#send(this.#waiting.splice(0, this.#options.maxItems));
    }
  }

  async #send(batch: readonly Waiting<Item, Answer>[]): Promise<void> {
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
      this.#start();
    }
  }
}
