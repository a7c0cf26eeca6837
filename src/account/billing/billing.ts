/**
 * `GET /billing/balance` for every key and wallet, whose answers name the balance anyway;
 * `GET /billing/transactions`, the history of the whole account, for ADMIN keys and wallets.
 */
import type { Transaction, UsageReports } from '../usage-reports.ts';
import { isoTime } from '../../core/clock.ts';
import { type Nano, toUsdNumber } from '../../core/money.ts';
import type { Ledger } from '../../billing/ledger/ledger.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { offsetOf, pageHeaders, readQuery } from '../../http/read-request.ts';
import type { Route } from '../../http/route.ts';
import { BALANCE, TRANSACTIONS } from './describe.ts';
import { type BalanceAnswer, type TransactionsAnswer, TransactionsQuery } from './schema.ts';

export interface BillingRouteParts {
  readonly ledger: Ledger;
  readonly reports: UsageReports;
  readonly minimumCreditNano: () => Nano;
}

export function billingRoutes(parts: BillingRouteParts): Route[] {
  return [
    {
      method: 'GET',
      path: '/billing/balance',
      auth: 'key-or-wallet',
      describe: BALANCE,
      handle: (context) => answerBalance(parts, context),
    },
    {
      method: 'GET',
      path: '/billing/transactions',
      auth: 'admin-or-wallet',
      describe: TRANSACTIONS,
      handle: (context) => answerTransactions(parts, context),
    },
  ];
}

async function answerBalance(parts: BillingRouteParts, context: RequestContext): Promise<void> {
  const { usdNano, diemNano, allocationNano } = await parts.ledger.balances(
    context.caller.accountId,
  );
  const canConsume = usdNano + diemNano >= parts.minimumCreditNano();
  const body: BalanceAnswer = {
    canConsume,
    consumptionCurrency: diemNano > 0n ? 'DIEM' : usdNano > 0n ? 'USD' : null,
    balances: { diem: toUsdNumber(diemNano), usd: toUsdNumber(usdNano) },
    diemEpochAllocation: toUsdNumber(allocationNano),
  };
  await context.json(200, body);
}

async function answerTransactions(
  parts: BillingRouteParts,
  context: RequestContext,
): Promise<void> {
  const page = readQuery(context, TransactionsQuery);
  const { accountId } = context.caller;
  const offset = offsetOf(page);
  const [rows, total] = await Promise.all([
    parts.reports.transactions(accountId, { limit: page.limit, offset }),
    parts.reports.countTransactions(accountId),
  ]);
  const body: TransactionsAnswer = {
    object: 'list',
    data: rows.map(itemOf),
    pagination: { ...page, total, hasMore: offset + rows.length < total },
  };
  context.setAll(pageHeaders(page, total));
  await context.json(200, body);
}

function itemOf(row: Transaction): TransactionsAnswer['data'][number] {
  return {
    id: row.id,
    type: row.kind as TransactionsAnswer['data'][number]['type'], // written by the ledger
    amount: toUsdNumber(row.amountNano),
    currency: row.currency,
    balanceAfter: toUsdNumber(row.balanceAfterNano),
    createdAt: isoTime(row.createdMs),
    requestId: row.requestId,
    modelId: row.modelId,
    note: row.note,
  };
}
