/**
 * `GET /x402/transactions/{walletAddress}`: the postings of the wallet that signed, newest first.
 * Money that comes in is positive, money that leaves is negative.
 */
import { isoTime } from '../../core/clock.ts';
import { invalidField } from '../../core/faults.ts';
import { toUsdNumber } from '../../core/money.ts';
import { type TransactionRow, transactionsOf } from '../../billing/ledger/ledger.ts';
import { limitRequests } from '../../http/limit-requests.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { Route } from '../../http/route.ts';
import { WALLET_TRANSACTIONS } from './describe.ts';
import { type WalletRouteOptions, refuseLimitedToken, requireOwnWallet } from './route-checks.ts';

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 100;
const MAX_OFFSET = 1_000_000;

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
      const limit = whole(context, 'limit', { least: 1, most: MAX_LIMIT }) ?? DEFAULT_LIMIT;
      const offset = whole(context, 'offset', { least: 0, most: MAX_OFFSET }) ?? 0;
      const { accountId } = context.caller;
      // One more than asked tells whether there are more.
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

/** Operator credit reads as a top-up, one that was taken back too, a payout as a refund that leaves. */
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
  const amount = toUsdNumber(row.amount_nano);
  return {
    // A charge that is paid from daily credit and USD has two parts under one id.
    id: row.part === 0n ? row.id : `${row.id}-${row.part}`,
    amount: row.credit_account === accountId ? amount : -amount,
    balanceAfter: toUsdNumber(row.balance_after_nano),
    type: TYPES[row.kind] ?? 'CHARGE',
    createdAt: isoTime(Number(row.created_ms)),
    requestId: row.request_id,
    modelId: row.model_id,
    // Daily credit is spent beside the balance and does not change it.
    currency: row.debit_account === 'house:daily-credit' ? 'DIEM' : 'USD',
  };
}

function whole(
  context: RequestContext,
  name: string,
  range: { readonly least: number; readonly most: number },
): number | undefined {
  const given = context.query.get(name);
  if (given === null) return undefined;
  const value = /^\d{1,9}$/.test(given) ? Number(given) : Number.NaN;
  if (value >= range.least && value <= range.most) return value;
  throw invalidField(
    [name],
    `The query parameter "${name}" must be a whole number from ${range.least} to ${range.most}`,
  );
}
