/** Shapes of `/billing`: the balance and the movements of an account. */
import { z } from 'zod';
import { pageQuery } from '../../http/read-request.ts';

export type BalanceAnswer = z.infer<typeof BalanceAnswer>;
export const BalanceAnswer = z
  .object({
    canConsume: z.boolean().describe('Whether the credit is enough for a priced request.'),
    consumptionCurrency: z
      .enum(['DIEM', 'USD'])
      .nullable()
      .describe('What the next request spends first; null when there is nothing.'),
    balances: z.object({
      diem: z.number().describe("What is left of today's credit; it does not roll over."),
      usd: z.number().describe('Posted USD; requests in flight are not taken off yet.'),
    }),
    diemEpochAllocation: z.number().describe('Daily credit that is given each day at 00:00 UTC.'),
  })
  .meta({ id: 'BillingBalance' });

export const TransactionsQuery = z.object(pageQuery({ max: 100, usual: 50 }));

export type TransactionsAnswer = z.infer<typeof TransactionsAnswer>;
export const TransactionsAnswer = z
  .object({
    object: z.literal('list'),
    data: z
      .array(
        z.object({
          id: z.string(),
          type: z.enum(['CHARGE', 'TOP_UP', 'CREDIT', 'REFUND', 'PAYOUT', 'REVERSAL', 'DEBT']),
          amount: z.number().describe('Above zero came in, below zero was taken.'),
          currency: z.enum(['USD', 'DIEM']),
          balanceAfter: z.number().describe('USD balance after it.'),
          createdAt: z.string(),
          requestId: z.string().nullable(),
          modelId: z.string().nullable(),
          note: z.string().nullable(),
        }),
      )
      .describe('Newest first.'),
    pagination: z.object({
      limit: z.number().int(),
      page: z.number().int(),
      total: z.number().int(),
      hasMore: z.boolean(),
    }),
  })
  .meta({ id: 'BillingTransactions' });
