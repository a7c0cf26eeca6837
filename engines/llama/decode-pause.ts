/**
 * Pauses all completions of a context between two tokens.
 *
 * The library erases tokens of a sequence when no decode is queued. With two completions one is
 * queued at any time, so that a new request would wait for the end of both.
 */
export class DecodePause {
  #pauses = 0;
  #end = Promise.withResolvers<void>();

  /** Resolves when the completions may go on; `undefined` if nothing is paused. */
  get end(): Promise<void> | undefined {
    return this.#pauses === 0 ? undefined : this.#end.promise;
  }

  async during(erase: () => Promise<void>): Promise<void> {
    this.#pauses += 1;
    try {
      await erase();
    } finally {
      this.#pauses -= 1;
      if (this.#pauses === 0) {
        this.#end.resolve();
        this.#end = Promise.withResolvers();
      }
    }
  }
}
