/** Postings of card payments in the ledger: credits, reversals, refunds, and refunds that failed. */
import { type Ledger, cardFees, postCardFee } from '../billing/ledger/ledger.ts';
import type { Clock } from '../core/clock.ts';
import { nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import type { CardPostings, CardSums, ProviderName } from '../payments/cards/cards.ts';

export function cardPostings(ledger: Ledger, clock: Clock): CardPostings {
  return {
    creditCard: (tx, { accountId, amountNano, provider, postingId: id }) =>
      ledger.creditIn(tx, {
        accountId,
        amountNano,
        from: topUpAccount(provider),
        kind: 'TOP_UP',
        id,
      }),
    reverseCard: async (tx, { accountId, amountNano, provider, postingId: id, note }) => {
      const reversal = { accountId, amountNano, to: topUpAccount(provider), id };
      const noted = note === undefined ? reversal : { ...reversal, note };
      return (await ledger.reverseIn(tx, noted)).missingNano;
    },
    debitCardRefund: async (tx, { accountId, amountNano, provider, postingId: id }, takesSpent) => {
      const to = payoutAccount(provider);
      if (takesSpent) {
        await ledger.reverseIn(tx, { accountId, amountNano, to, id });
        return true;
      }
      const balance = await ledger.debitIn(tx, { accountId, amountNano, to, kind: 'PAYOUT', id });
      return balance !== undefined;
    },
    postCardFee: (tx, { provider, amountNano, postingId: id, note }) =>
      postCardFee(tx, { provider, amountNano, id, note }, clock.nowMs()),
    restoreCardRefund: (tx, { accountId, amountNano, provider, postingId: id, note }) => {
      const credit = {
        accountId,
        amountNano,
        from: payoutAccount(provider),
        kind: 'REFUND',
        id,
      } as const;
      return ledger.creditIn(tx, note === undefined ? credit : { ...credit, note });
    },
  };
}

/** Sums in the ledger for a provider. */
export async function postedFor(
  ledger: Ledger,
  tx: Queryable,
  provider: ProviderName,
): Promise<CardSums> {
  return {
    creditedNano: await ledger.receivedFrom(topUpAccount(provider), tx),
    refundedNano: nano(0n - (await ledger.receivedFrom(payoutAccount(provider), tx))),
    feeNano: await ledger.receivedFrom(cardFees({ provider }), tx),
  };
}

function topUpAccount(provider: ProviderName) {
  return `house:top-up:${provider}` as const;
}

function payoutAccount(provider: ProviderName) {
  return `house:payout:${provider}` as const;
}
