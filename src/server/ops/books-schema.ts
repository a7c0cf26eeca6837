/** Schema and description of `GET /admin/books`. */
import * as z from 'zod';
import { type RouteDescription, jsonContent, textContent } from '../../http/describe.ts';

const Day = z.iso.date();
const Usd = z.string();

export const BooksQuery = z.object({
  from: Day.optional().describe(
    'First UTC day; default: the first day of the month of `to`, or of the stored postings if later.',
  ),
  to: Day.optional().describe('Last UTC day; default: today. At most 366 days in all.'),
  format: z
    .enum(['json', 'csv', 'beancount'])
    .default('json')
    .describe('`csv` and `beancount` download the journal; `json` has its sums.'),
});

export type BooksResponse = z.infer<typeof BooksResponse>;
const BooksResponse = z
  .object({
    from: Day.describe('First day, UTC.'),
    to: Day.describe('Last day, UTC.'),
    owedBeforeUsd: Usd.describe('Sum of all balances at the end of the day before `from`.'),
    owedUsd: Usd.describe('Sum of all balances at the end of `to`.'),
    entries: z.number().int().describe('Number of journal entries; the charges of a day are one.'),
    sums: z
      .array(
        z.object({
          kind: z.string().describe('Kind of the postings, such as TOP_UP.'),
          debit: z.string().describe('Debited account: `customers` or a house account.'),
          credit: z.string().describe('Credited account.'),
          usd: Usd.describe('Sum of the amounts.'),
          postings: z.number().int().describe('Number of postings.'),
        }),
      )
      .describe('Sums by kind and accounts.'),
    gas: z
      .array(
        z.object({
          network: z.string().describe('Network as in the accounts of the ledger, such as `base`.'),
          coin: z.string().describe('Coin that pays the gas, such as ETH.'),
          transactions: z.number().int().describe('Number of transactions.'),
          paid: z.string().describe('Gas paid on these days, in the coin.'),
          paidBefore: z.string().describe('Gas paid before `from`, in the coin.'),
        }),
      )
      .describe('Gas of the gas keys by network, from final blocks. It is in no sum in USD.'),
  })
  .meta({ id: 'Books' });

const SAMPLE: BooksResponse = {
  from: '2026-11-01',
  to: '2026-11-21',
  owedBeforeUsd: '0.000000000',
  owedUsd: '24.997900000',
  entries: 2,
  sums: [
    {
      kind: 'CHARGE',
      debit: 'customers',
      credit: 'house:revenue',
      usd: '0.002100000',
      postings: 12,
    },
    {
      kind: 'TOP_UP',
      debit: 'house:top-up:base',
      credit: 'customers',
      usd: '25.000000000',
      postings: 1,
    },
  ],
  gas: [
    {
      network: 'base',
      coin: 'ETH',
      transactions: 1,
      paid: '0.000000371542885210',
      paidBefore: '0.000000000000000000',
    },
  ],
};

export const BOOKS: RouteDescription = {
  tag: 'Operator',
  summary: 'Get the books',
  about:
    'All postings of a range of days, and the sum owed to customers before and after it. `owedUsd` is `owedBeforeUsd` plus credits and minus debits of `customers`, exactly. Gas is an entry for each transaction, in the coin of its chain.',
  query: BooksQuery,
  response: {
    status: 200,
    about: 'Sums as JSON; the journal as CSV or as a Beancount file.',
    headers: ['download'],
    content: [
      ...jsonContent(BooksResponse, SAMPLE),
      textContent(
        'text/csv',
        'date,id,kind,debit,credit,usd,postings,account_id,note,coin_amount,coin\r\n',
      ),
      textContent('text/plain', 'option "title" "Farebox"\n'),
    ],
  },
};
