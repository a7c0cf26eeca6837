/** Moments for which a fault waits, because it shows more at them than at any other time. */

/** `to` is the address of a server. */
export type Moment =
  /** The operator has received a confirmation, or the card processor a new checkout. */
  | 'confirmation'
  /** A wallet cancels a payment. */
  | 'cancellation'
  | `request to ${string}`
  | `keyed request to ${string}`;

export class Moments {
  readonly #next = new Map<Moment, PromiseWithResolvers<void>>();

  happens(moment: Moment): void {
    this.#next.get(moment)?.resolve();
    this.#next.delete(moment);
  }

  /** Resolves when the moment happens next. */
  next(moment: Moment): Promise<void> {
    const next = this.#next.get(moment) ?? Promise.withResolvers<void>();
    this.#next.set(moment, next);
    return next.promise;
  }
}
