/**
 * The questions to contract wallets about their signatures: each costs a call of the chain, and
 * anybody can ask for one before it is known who asks. They are bounded, and so is what one address
 * has of them while many are asked; more at once are refused, not queued.
 */
import { FairShare } from '../../core/fair-share.ts';
import { Fault } from '../../core/faults.ts';

const MAX_AT_ONCE = 32;

export class ContractQuestions {
  readonly #asked = new FairShare(MAX_AT_ONCE);

  /** Asks for an address, as bounds by address count it. Throws 503 when too many are asked. */
  async ask<T>(asker: string, question: () => Promise<T>): Promise<T> {
    if (!this.#asked.take(asker)) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'Too many contract wallets are asked about their signatures, try again shortly',
        retryAfterSeconds: 1,
      });
    }
    try {
      return await question();
    } finally {
      this.#asked.giveBack(asker);
    }
  }
}
