/** How payments change the ledger: credits, refunds, and refunds that never arrived. */
import { walletAccountId } from '../identity/identity.ts';
import { Fault } from '../kernel/faults.ts';
import { formatUsd } from '../kernel/money.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Credit, RefundPosting, TokenCaps } from '../payments/payments.ts';

export interface WalletPostings {
  readonly credit: Credit;
  readonly debitRefund: RefundPosting;
  readonly restoreRefund: RefundPosting;
  readonly tokenCaps: TokenCaps;
}

export function walletPostings(ledger: Ledger): WalletPostings {
  return {
    credit: (tx, entry) =>
      ledger.creditIn(tx, {
        accountId: walletAccountId(entry.wallet),
        amountNano: entry.amountNano,
        from: entry.network.startsWith('solana:') ? 'house:top-up:solana' : 'house:top-up:base',
        kind: 'TOP_UP',
        // Made of the signed authorization: unique for ever.
        id: entry.paymentId,
        note: entry.transaction,
      }),
    debitRefund: async (tx, entry) => {
      const balance = await ledger.debitIn(tx, {
        accountId: walletAccountId(entry.wallet),
        amountNano: entry.amountNano,
        to: payoutAccount(entry.wallet),
        kind: 'PAYOUT',
        id: entry.refundId,
      });
      if (balance !== undefined) return balance;
      throw new Fault('INSUFFICIENT_BALANCE', {
        message: `The wallet ${entry.wallet} has less than ${formatUsd(entry.amountNano, 6)} USD of unused credit`,
      });
    },
    restoreRefund: (tx, entry) =>
      ledger.creditIn(tx, {
        accountId: walletAccountId(entry.wallet),
        amountNano: entry.amountNano,
        from: payoutAccount(entry.wallet),
        kind: 'REFUND',
        id: `${entry.refundId}-back`,
      }),
    tokenCaps: {
      set: (tx, id, wallet, limits) =>
        ledger.setAllowance(tx, {
          id,
          accountId: walletAccountId(wallet),
          period: 'LIFETIME',
          usdLimitNano: limits.usdNano,
          diemLimitNano: limits.diemNano,
        }),
      drop: (tx, ids) => ledger.dropAllowances(tx, ids),
    },
  };
}

function payoutAccount(wallet: string): 'house:payout:base' | 'house:payout:solana' {
  return wallet.startsWith('0x') ? 'house:payout:base' : 'house:payout:solana';
}
