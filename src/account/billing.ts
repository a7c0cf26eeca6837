/** `GET /billing/balance` for every key and wallet; `GET /billing/transactions` for ADMIN keys and wallets. */
import * as z from 'zod';
import {
  type TransactionRow,
  balanceChange,
  countTransactions,
  transactionsOf,
} from '../billing/ledger/ledger.ts';
import { isoTime } from '../core/clock.ts';
import { toUsdNumber } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import { type RouteDescription, jsonResponse } from '../http/describe.ts';
import { costOf } from '../http/model-sale.ts';
import { offsetOf, pageHeaders, pageQuery, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import { type AccountParts, isEnough } from './account-parts.ts';
import { STATEMENT, TOP_UPS, sendStatement, sendTopUps } from './statement.ts';

const Amounts = z.object({
  diem: z.number().describe('Daily credit.'),
  usd: z.number().describe('USD.'),
});

export type BalanceResponse = z.infer<typeof BalanceResponse>;
export const BalanceResponse = z
  .object({
    canConsume: z.boolean().describe('Whether the credit is enough for a priced request.'),
    consumptionCurrency: z
      .enum(['DIEM', 'USD'])
      .nullable()
      .describe('The credit that the next request spends first; null without credit.'),
    balances: z
      .object({
        diem: z.number().describe("Rest of today's credit, which expires at 00:00 UTC."),
        usd: z.number().describe('Posted USD, including holds of running requests.'),
      })
      .describe('Posted amounts.'),
    diemEpochAllocation: z.number().describe('Daily credit, allocated each day at 00:00 UTC.'),
    held: Amounts.describe('Holds of open requests and jobs.'),
    available: Amounts.describe('Balances without holds.'),
  })
  .meta({ id: 'BillingBalance' });

const BALANCE: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the balance',
  response: jsonResponse('Posted amounts, including holds of running requests.', BalanceResponse, {
    canConsume: true,
    consumptionCurrency: 'USD',
    balances: { diem: 0, usd: 50.23 },
    diemEpochAllocation: 0,
    held: { diem: 0, usd: 0.23 },
    available: { diem: 0, usd: 50 },
  }),
};

const TransactionsQuery = z.object(pageQuery({ max: 100, usual: 50 }));

type Transaction = z.infer<typeof Transaction>;
const Transaction = z.object({
  id: z.string().describe('Id of the transaction.'),
  type: z
    .enum(['CHARGE', 'TOP_UP', 'CREDIT', 'REFUND', 'PAYOUT', 'REVERSAL', 'DEBT'])
    .describe(
      'CHARGE of a request; TOP_UP from a wallet or by card; CREDIT or debit by the operator; REFUND of a failed job or payout; PAYOUT to a wallet or card; REVERSAL of a top-up after a chain reorganisation, a refund or a dispute; DEBT repaid.',
    ),
  amount: z.number().describe('Positive: added to the balance; negative: deducted.'),
  currency: z.enum(['USD', 'DIEM']).describe('Unit of `amount`: USD, or daily credit (DIEM).'),
  balanceAfter: z.number().describe('USD balance after the transaction.'),
  createdAt: z.string().describe('ISO 8601, UTC.'),
  requestId: z.string().nullable().describe('The charged request; null for other transactions.'),
  modelId: z.string().nullable().describe('The model of the request; null for other transactions.'),
  note: z.string().nullable().describe('Note of the transaction, or null.'),
});

export type TransactionsResponse = z.infer<typeof TransactionsResponse>;
export const TransactionsResponse = z
  .object({
    object: z.literal('list').describe('Kind of the object.'),
    data: z.array(Transaction).describe('Newest first.'),
    pagination: z
      .object({
        limit: z.number().int().describe('Maximum number of items per page.'),
        page: z.number().int().describe('Number of this page, from 1.'),
        total: z.number().int().describe('Number of all items.'),
        hasMore: z.boolean().describe('Whether there are more pages.'),
      })
      .describe('Position of this page.'),
  })
  .meta({ id: 'BillingTransactions' });

const CHARGE: Transaction = {
  id: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
  type: 'CHARGE',
  amount: -0.0000111,
  currency: 'USD',
  balanceAfter: 50.2299889,
  createdAt: '2026-11-21T04:00:00.000Z',
  requestId: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
  modelId: 'atlas-24b',
  note: null,
};
const TRANSACTIONS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'List transactions',
  query: TransactionsQuery,
  response: jsonResponse(
    'Transactions of the account, newest first.',
    TransactionsResponse,
    {
      object: 'list',
      data: [CHARGE],
      pagination: { limit: 50, page: 1, total: 1, hasMore: false },
    },
    'page',
  ),
};

export function billingRoutes(parts: AccountParts): Route[] {
  return [
    get('/billing/balance', 'key-or-wallet', BALANCE, async (context) =>
      context.json(200, await balanceBody(parts, context.caller.accountId)),
    ),
    get('/billing/transactions', 'admin-or-wallet', TRANSACTIONS, (context) =>
      sendTransactions(parts.stores.store, context),
    ),
    get('/billing/statement', 'admin-or-wallet', STATEMENT, (context) =>
      sendStatement(parts, context, context.caller.accountId),
    ),
    get('/billing/top-ups', 'key-or-wallet', TOP_UPS, (context) => sendTopUps(parts, context)),
  ];
}

export async function balanceBody(
  parts: AccountParts,
  accountId: string,
): Promise<BalanceResponse> {
  const funds = await parts.stores.ledger.funds(accountId);
  const { usdNano, diemNano, heldUsdNano, heldDiemNano } = funds;
  return {
    canConsume: isEnough(usdNano + diemNano, parts),
    consumptionCurrency: diemNano > 0n ? 'DIEM' : usdNano > 0n ? 'USD' : null,
    balances: { diem: toUsdNumber(diemNano), usd: toUsdNumber(usdNano) },
    diemEpochAllocation: toUsdNumber(funds.allocationNano),
    held: { diem: toUsdNumber(heldDiemNano), usd: toUsdNumber(heldUsdNano) },
    available: {
      diem: toUsdNumber(diemNano - heldDiemNano),
      usd: toUsdNumber(usdNano - heldUsdNano),
    },
  };
}

async function sendTransactions(store: Queryable, context: RequestContext): Promise<void> {
  const page = readQuery(context, TransactionsQuery);
  const { accountId } = context.caller;
  const offset = offsetOf(page);
  const [rows, total] = await Promise.all([
    transactionsOf(store, accountId, { limit: page.limit, offset }),
    countTransactions(store, accountId),
  ]);
  const body: TransactionsResponse = {
    object: 'list',
    data: rows.map((row) => transactionOf(row, accountId)),
    pagination: { ...page, total, hasMore: offset + rows.length < total },
  };
  context.setAll(pageHeaders(page, total));
  await context.json(200, body);
}

function transactionOf(row: TransactionRow, accountId: string): Transaction {
  const { usd, diem } = costOf(balanceChange(row, accountId));
  return {
    // A request that spent both currencies has two rows with one id.
    id: row.part === 0n ? row.id : `${row.id}:${row.part}`,
    type: row.kind as Transaction['type'], // written by the ledger
    amount: diem === 0 ? usd : diem,
    currency: diem === 0 ? 'USD' : 'DIEM',
    balanceAfter: toUsdNumber(row.balance_after_nano),
    createdAt: isoTime(Number(row.created_ms)),
    requestId: row.request_id,
    modelId: row.model_id,
    note: row.note,
  };
}
