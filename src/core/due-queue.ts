/**
 * Batches database calls: all items that become due in one turn of the event loop go together, with
 * a limit of groups per batch. While a call for a group runs, the group is busy, and its new items
 * wait.
 */

export interface Due {
  /** Written by the queue only. */
  isDue: boolean;
}

/** Items that share a group are never in two running batches. */
export interface DueGroup {
  /** Written by the queue only. */
  isBusy: boolean;
}

export interface DueQueueOptions<T extends Due, G extends DueGroup> {
  /** Maximum number of concurrent batches, and of groups per batch. */
  readonly maxInFlight: number;
  readonly maxGroups: number;
  readonly groupOf: (one: T) => G;
  /**
   * Runs a batch; must not reject. Resolves to a function that delivers the results, called once
   * its groups are no longer busy. Items that become due meanwhile go with a later batch.
   */
  readonly run: (batch: readonly T[]) => Promise<() => void>;
  /** Called for each group of a batch after its results are delivered. */
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
