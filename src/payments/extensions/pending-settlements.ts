/**
 * Transactions of the exposed facilitator that are not in a block yet, so that a repeated settle waits for
 * them instead of sending again.
 *
 * The schemes store a transaction under the signature or the message of its payment alone, and verify nothing
 * when they find it. So each request has a store of its own, in which the same payment under other
 * requirements has no transaction.
 */
import type { PendingSettlementStore } from '@x402/core/facilitator';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { sha256Hex } from '../../core/ids.ts';
import { remember } from '../bounded.ts';

const MAX_PENDING = 1_000;

export class PendingSettlements {
  readonly #transactions = new Map<string, string>();

  storeOf({ payload }: PaymentPayload, requirements: PaymentRequirements): PendingSettlementStore {
    const { scheme, network, asset, amount, payTo } = requirements;
    const name = sha256Hex(JSON.stringify([payload, scheme, network, asset, amount, payTo]));
    const transactions = this.#transactions;
    return {
      // Removed at once: of two requests, the schemes would report the settlement to both.
      get: async () => {
        const transaction = transactions.get(name);
        transactions.delete(name);
        return transaction;
      },
      set: async (_key, transaction) => remember(transactions, name, transaction, MAX_PENDING),
      delete: async () => {
        transactions.delete(name);
      },
    };
  }
}
