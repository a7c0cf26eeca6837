/**
 * The tokens that payments in flight will take from their payers. Several payments of one wallet can each
 * pass the checks of the chain although its balance covers only one of them; the chain would revert the others
 * at our cost. So a payment is sent only if the balance covers the earlier ones too. Each process has its own
 * sums, because they bound small amounts.
 */
import type { PaymentServices } from './payment-options.ts';
import type { SignedPayment } from './payment.ts';

export class SentTokens {
  readonly #options: Pick<PaymentServices, 'clock' | 'settleWaitMs' | 'pollMs'>;
  readonly #sent = new Map<string, SignedPayment>();

  constructor(options: Pick<PaymentServices, 'clock' | 'settleWaitMs' | 'pollMs'>) {
    this.#options = options;
  }

  /**
   * Counts a payment once the balance of its payer covers all; waits for the end of earlier ones. Returns
   * `false` if the balance did not cover it in time.
   */
  async add(payment: SignedPayment, balanceOf: () => Promise<bigint>): Promise<boolean> {
    const { clock, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + settleWaitMs;
    for (let balance: bigint | undefined; ;) {
      const others = this.#unitsBeside(payment);
      if (others === 0n || (balance !== undefined && balance >= others + payment.amountUnits)) {
        this.#sent.set(payment.key, payment);
        return true;
      }
      if (clock.monotonicMs() >= deadlineMs) return false;
      if (balance !== undefined) await clock.sleep(pollMs);
      balance = await balanceOf().catch(() => 0n); // read again
    }
  }

  /** The payment is decided, or no longer watched. */
  remove({ key }: SignedPayment): void {
    this.#sent.delete(key);
  }

  #unitsBeside({ key, network, wallet }: SignedPayment): bigint {
    let units = 0n;
    for (const one of this.#sent.values()) {
      if (one.wallet === wallet && one.network === network && one.key !== key)
        units += one.amountUnits;
    }
    return units;
  }
}
