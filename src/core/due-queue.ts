/**
 * What is due to be asked of a database: all that falls due in one turn of the event loop goes
 * together, some groups at a time. A group that is being asked for is busy, and what falls due of it
 * meanwhile waits for the end of that.
 */

/** What can be due, in one queue. */
export interface Due {
  /** The queue's own. */
  isDue: boolean;
}

/** What is asked for as one: nothing else of it is, until that has ended. */
export interface DueGroup {
  /** The queue's own. */
  isBusy: boolean;
}

export interface DueQueueOptions<T extends Due, G extends DueGroup> {
  /** Batches on their way at once, and the groups of one of them. */
  readonly maxInFlight: number;
  readonly maxGroups: number;
  readonly groupOf: (one: T) => G;
  /**
   * Asks, and resolves to what tells the answers, called when its groups are not busy any more: who
   * hears one finds them free. Does not reject. What it makes due again goes with a later batch.
   */
  readonly run: (batch: readonly T[]) => Promise<() => void>;
  /** Called for each group of a batch after the answers. */
  readonly ended?: (group: G) => void;
}

export class DueQueue<T extends Due, G extends DueGroup> {
  readonly #options: DueQueueOptions<T, G>;
  #due: T[] = [];
  #isScheduled = false;
  #inFlight = 0;

  constructor(options: DueQueueOptions<T, G>) {
    this.#options = options;
  }

  add(one: T): void {
    if (!one.isDue) {
      one.isDue = true;
      this.#due.push(one);
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#start();
    });
  }

  #start(): void {
    const { maxInFlight, maxGroups, groupOf } = this.#options;
    while (this.#inFlight < maxInFlight) {
      const batch: T[] = [];
      const left: T[] = [];
      const groups = new Set<G>();
      for (const one of this.#due) {
        const group = groupOf(one);
        const hasRoom = groups.has(group) || groups.size < maxGroups;
        if (group.isBusy || !hasRoom) left.push(one);
        else {
          groups.add(group);
          batch.push(one);
        }
      }
      if (batch.length === 0) return;
      this.#due = left;
      void this.#send(batch, groups);
    }
  }

  async #send(batch: readonly T[], groups: ReadonlySet<G>): Promise<void> {
    const { run, ended } = this.#options;
    this.#inFlight += 1;
    for (const group of groups) group.isBusy = true;
    for (const one of batch) one.isDue = false;
    const answer = await run(batch);
    this.#inFlight -= 1;
    for (const group of groups) group.isBusy = false;
    answer();
    if (ended !== undefined) for (const group of groups) ended(group);
    this.#start();
  }
}
