/**
 * `GET /billing/balance` for every key and wallet, whose answers name the balance anyway;
 * `GET /billing/transactions`, the history of the whole account, for ADMIN keys and wallets.
 */
import type { Transaction, UsageReports } from '../../../flows/usage-reports.ts';
import { isoTime } from '../../../kernel/clock.ts';
import { type Nano, toUsdNumber } from '../../../kernel/money.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import type { Exchange } from '../../exchange.ts';
import { offsetOf, pageHeaders, readQuery } from '../../read-request.ts';
import type { Route } from '../../route.ts';
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
      handle: (exchange) => answerBalance(parts, exchange),
    },
    {
      method: 'GET',
      path: '/billing/transactions',
      auth: 'admin-or-wallet',
      describe: TRANSACTIONS,
      handle: (exchange) => answerTransactions(parts, exchange),
    },
  ];
}

async function answerBalance(parts: BillingRouteParts, exchange: Exchange): Promise<void> {
  const { usdNano, diemNano, allocationNano } = await parts.ledger.balances(
    exchange.caller.accountId,
  );
  const canConsume = usdNano + diemNano >= parts.minimumCreditNano();
  const body: BalanceAnswer = {
    canConsume,
    consumptionCurrency: diemNano > 0n ? 'DIEM' : usdNano > 0n ? 'USD' : null,
    balances: { diem: toUsdNumber(diemNano), usd: toUsdNumber(usdNano) },
    diemEpochAllocation: toUsdNumber(allocationNano),
  };
  await exchange.json(200, body);
}

async function answerTransactions(parts: BillingRouteParts, exchange: Exchange): Promise<void> {
  const page = readQuery(exchange, TransactionsQuery);
  const { accountId } = exchange.caller;
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
  exchange.setAll(pageHeaders(page, total));
  await exchange.json(200, body);
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
