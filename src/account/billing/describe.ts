/** What `/billing` says of itself. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { BalanceAnswer, TransactionsAnswer, TransactionsQuery } from './schema.ts';

export const BALANCE: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the balance',
  answers: [
    {
      status: 200,
      about: 'Posted amounts; requests in flight are not taken off yet.',
      content: jsonContent(BalanceAnswer, {
        canConsume: true,
        consumptionCurrency: 'USD',
        balances: { diem: 0, usd: 50.23 },
        diemEpochAllocation: 0,
      }),
    },
  ],
};

export const TRANSACTIONS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'List transactions',
  query: TransactionsQuery,
  answers: [
    {
      status: 200,
      about: 'Movements of the account, newest first.',
      headers: ['page'],
      content: jsonContent(TransactionsAnswer, {
        object: 'list',
        data: [
          {
            id: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
            type: 'CHARGE',
            amount: -0.0000111,
            currency: 'USD',
            balanceAfter: 50.2299889,
            createdAt: '2026-11-21T04:00:00.000Z',
            requestId: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
            modelId: 'atlas-24b',
            note: null,
          },
        ],
        pagination: { limit: 50, page: 1, total: 1, hasMore: false },
      }),
    },
  ],
};
