/** `GET /x402/transactions/{walletAddress}`: the postings of the wallet, newest first. */
import { isoTime } from '../../core/clock.ts';
import { toUsdNumber } from '../../core/money.ts';
import { type TransactionRow, balanceChange, transactionsOf } from '../../billing/ledger/ledger.ts';
import { limitRequests } from '../../http/limit-requests.ts';
import { readQuery } from '../../http/read-request.ts';
import type { Route } from '../../http/route.ts';
import { TransactionsQuery, WALLET_TRANSACTIONS } from './describe.ts';
import { type WalletRouteOptions, refuseLimitedToken, requireOwnWallet } from './route-checks.ts';

export function transactionsRoute(options: WalletRouteOptions): Route {
  return {
    method: 'GET',
    path: '/x402/transactions/:wallet',
    auth: 'wallet',
    about: 'Wallet transactions',
    describe: WALLET_TRANSACTIONS,
    handle: async (context) => {
      const wallet = requireOwnWallet(context);
      refuseLimitedToken(context);
      await limitRequests(options, `x402-transactions|${wallet}`, options.perMinute.transactions);
      const { limit, offset } = readQuery(context, TransactionsQuery);
      const { accountId } = context.caller;
      // One more row shows whether there are more pages.
      const [rows, balances] = await Promise.all([
        transactionsOf(options.store, accountId, { limit: limit + 1, offset }),
        options.ledger.balances(accountId),
      ]);
      await context.json(200, {
        success: true,
        data: {
          walletAddress: wallet,
          currentBalance: toUsdNumber(balances.usdNano),
          transactions: rows.slice(0, limit).map((row) => transactionOf(row, accountId)),
          pagination: { limit, offset, hasMore: rows.length > limit },
        },
      });
    },
  };
}

/** Credits by the operator and reversals are top-ups, payouts are refunds. */
const TYPES: Readonly<Record<string, 'TOP_UP' | 'CHARGE' | 'REFUND'>> = {
  TOP_UP: 'TOP_UP',
  CREDIT: 'TOP_UP',
  CHARGE: 'CHARGE',
  REFUND: 'REFUND',
  PAYOUT: 'REFUND',
  REVERSAL: 'TOP_UP',
  DEBT: 'TOP_UP',
};

function transactionOf(row: TransactionRow, accountId: string): Record<string, unknown> {
  const { usdNano, diemNano } = balanceChange(row, accountId);
  // Daily credit does not change the balance.
  const isDaily = diemNano !== 0n;
  return {
    // A charge in daily credit and USD has two parts with one id.
    id: row.part === 0n ? row.id : `${row.id}-${row.part}`,
    amount: toUsdNumber(isDaily ? diemNano : usdNano),
    balanceAfter: toUsdNumber(row.balance_after_nano),
    type: TYPES[row.kind] ?? 'CHARGE',
    createdAt: isoTime(Number(row.created_ms)),
    requestId: row.request_id,
    modelId: row.model_id,
    currency: isDaily ? 'DIEM' : 'USD',
  };
}
