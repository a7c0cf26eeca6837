/**
 * The requests of this process that have a hold or are getting one. A hold of this process's epoch
 * that is not among them belongs to nobody and is given back.
 */

export class OpenHolds {
  readonly #open = new Set<string>();
  /** Durable holds whose placing got no answer, with the time of the loss. */
  readonly #doubtful = new Map<string, number>();

  add(requestId: string): void {
    this.#open.add(requestId);
  }

  /** The hold is settled, refused, or was never placed. */
  remove(requestId: string): void {
    this.#open.delete(requestId);
  }

  has(requestId: string): boolean {
    return this.#open.has(requestId);
  }

  /** A durable hold outlives the epoch, so it has to be looked for by its id. */
  doubt(requestId: string, nowMs: number): void {
    this.#doubtful.set(requestId, nowMs);
  }

  /** Forgets and returns the doubtful holds from before `beforeMs`. */
  takeDoubtful(beforeMs: number): string[] {
    const ids = [...this.#doubtful].filter(([, ms]) => ms < beforeMs).map(([id]) => id);
    for (const id of ids) this.#doubtful.delete(id);
    return ids;
  }
}
