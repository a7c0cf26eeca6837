/**
 * The questions to contract wallets about their signatures: each costs a call of the chain, and
 * anybody can ask for one before it is known who asks. They are bounded, and so is what one address
 * has of them while many are asked; more at once are refused, not queued.
 */
import { Fault } from '../../core/faults.ts';

const MAX_AT_ONCE = 32;
/** What is left when so many are asked is for addresses that have less than the rest of them. */
const SHARE_FOR_ALL = 3 / 4;

export class ContractQuestions {
  readonly #asked = new Map<string, number>();
  #all = 0;

  /** Asks for an address, as bounds by address count it. Throws 503 when too many are asked. */
  async ask<T>(asker: string, question: () => Promise<T>): Promise<T> {
    const own = this.#asked.get(asker) ?? 0;
    const isGreedy = own >= MAX_AT_ONCE * (1 - SHARE_FOR_ALL);
    if (this.#all >= MAX_AT_ONCE * (isGreedy ? SHARE_FOR_ALL : 1)) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'Too many contract wallets are asked about their signatures, try again shortly',
        retryAfterSeconds: 1,
      });
    }
    this.#asked.set(asker, own + 1);
    this.#all += 1;
    try {
      return await question();
    } finally {
      const left = (this.#asked.get(asker) ?? 0) - 1;
      if (left > 0) this.#asked.set(asker, left);
      else this.#asked.delete(asker);
      this.#all -= 1;
    }
  }
}
