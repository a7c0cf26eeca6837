/** Postings of payments in the ledger: credits, reversals, refunds, and refunds that did not arrive. */
import { type Identity, walletAccountId } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { formatUsd } from '../core/money.ts';
import { type HouseAccount, type Ledger, availableIn, dropCaps } from '../billing/ledger/ledger.ts';
import { type LedgerPostings, ledgerNetwork } from '../payments/payments.ts';

interface PostingParts {
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'openWalletAccount'>;
}

export function walletPostings({ ledger, identity }: PostingParts): LedgerPostings {
  return {
    credit: async (tx, entry) =>
      ledger.creditIn(tx, {
        // The first credit of a wallet opens its account.
        accountId: await identity.openWalletAccount(entry.wallet, tx),
        amountNano: entry.amountNano,
        from: topUpAccount(entry.network),
        kind: 'TOP_UP',
        // Derived from the signed authorization, so it is unique.
        id: entry.postingId,
        note: entry.transaction,
      }),
    reverse: async (tx, entry) => {
      const { missingNano } = await ledger.reverseIn(tx, {
        accountId: walletAccountId(entry.wallet),
        amountNano: entry.amountNano,
        to: topUpAccount(entry.network),
        id: entry.postingId,
        note: entry.transaction,
      });
      return missingNano;
    },
    debitRefund: async (tx, entry) => {
      const accountId = walletAccountId(entry.wallet);
      const balance = await ledger.debitIn(tx, {
        accountId,
        amountNano: entry.amountNano,
        to: payoutAccount(entry.network),
        kind: 'PAYOUT',
        id: entry.refundId,
      });
      if (balance !== undefined) {
        return await availableIn(tx, accountId, { heldOf: (id) => ledger.holds.heldOf(id) });
      }
      throw new Fault('INSUFFICIENT_BALANCE', {
        message: `The wallet ${entry.wallet} has less than ${formatUsd(entry.amountNano, 6)} USD of unused credit`,
      });
    },
    restoreRefund: (tx, entry) =>
      ledger.creditIn(tx, {
        accountId: walletAccountId(entry.wallet),
        amountNano: entry.amountNano,
        from: payoutAccount(entry.network),
        kind: 'REFUND',
        id: `${entry.refundId}-back`,
      }),
    tokenCaps: {
      set: (tx, id, wallet, limits) =>
        ledger.setCap(tx, {
          id,
          accountId: walletAccountId(wallet),
          period: 'LIFETIME',
          usdLimitNano: limits.usdNano,
          diemLimitNano: limits.diemNano,
        }),
      drop: dropCaps,
    },
  };
}

/** The account that is debited for payments on a network. */
export function topUpAccount(network: string): HouseAccount {
  return `house:top-up:${ledgerNetwork(network)}`;
}

function payoutAccount(network: string): HouseAccount {
  return `house:payout:${ledgerNetwork(network)}`;
}
