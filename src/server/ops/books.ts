/** `GET /admin/books`: the journal of postings, and the sum owed to customers at any date. */
import { firstWholeDay, journalSums } from '../../billing/ledger/ledger.ts';
import { dayOf } from '../../core/clock.ts';
import { formatUsd } from '../../core/money.ts';
import { siblingUrl } from '../../core/sibling.ts';
import { workerResult } from '../../core/worker-result.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get } from '../../http/route.ts';
import { refuseIssues } from '../../json/validation.ts';
import type { FeatureParts } from '../feature-parts.ts';
import { beancountFile, booksCsv, coinText, dateOf } from './books-format.ts';
import { type WholeBooks, readWholeBooks } from './books-read.ts';
import { BOOKS, BooksQuery, type BooksResponse } from './books-schema.ts';

const MAX_DAYS = 366;
export function booksRoutes(parts: FeatureParts): Route[] {
  return [get('/admin/books', 'operator', BOOKS, (context) => sendBooks(parts, context))];
}

async function sendBooks(parts: FeatureParts, context: RequestContext): Promise<void> {
  const { from, to, format } = readQuery(context, BooksQuery);
  const toDay = to === undefined ? dayOf(parts.clock.nowMs()) : dayOf(Date.parse(to));
  const wholeDay = await firstWholeDay(parts.stores.store);
  const fromDay =
    from === undefined
      ? Math.min(toDay, Math.max(dayOf(Date.parse(`${dateOf(toDay).slice(0, 7)}-01`)), wholeDay))
      : dayOf(Date.parse(from));
  if (fromDay < wholeDay) {
    const message = `Must be ${dateOf(wholeDay)} or later, because older postings were deleted`;
    throw refuseIssues([{ code: 'custom', path: ['from'], message }]);
  }
  if (fromDay > toDay || toDay - fromDay >= MAX_DAYS) {
    const message = `Must be at most ${MAX_DAYS} days before "to", and not after it`;
    throw refuseIssues([{ code: 'custom', path: ['from'], message }]);
  }
  const books = await booksOf(parts, fromDay, toDay);
  if (format === 'json') return context.json(200, booksBody(books));
  const name = `books-${dateOf(fromDay)}-${dateOf(toDay)}`;
  const file = format === 'csv' ? `${name}.csv` : `${name}.beancount`;
  context.set('content-disposition', `attachment; filename="${file}"`);
  const type = format === 'csv' ? 'text/csv; charset=utf-8' : 'text/plain; charset=utf-8';
  const text = format === 'csv' ? booksCsv(books) : beancountFile(books);
  await context.bytes(200, type, Buffer.from(text));
}

export function booksBody(books: WholeBooks): BooksResponse {
  return {
    from: dateOf(books.fromDay),
    to: dateOf(books.toDay),
    owedBeforeUsd: formatUsd(books.owedBeforeNano),
    owedUsd: formatUsd(books.owedNano),
    entries: books.entries.length + books.gas.payments.length,
    sums: journalSums(books).map(({ amountNano, ...sum }) => ({
      ...sum,
      usd: formatUsd(amountNano),
    })),
    gas: books.gas.totals.map(({ network, coin, decimals, transactions, before, amount }) => ({
      network,
      coin,
      transactions,
      paid: coinText(amount, decimals),
      paidBefore: coinText(before, decimals),
    })),
  };
}

/** Reads a SQLite file in a worker thread, because it would block the event loop. */
async function booksOf(
  { config, stores }: FeatureParts,
  fromDay: number,
  toDay: number,
): Promise<WholeBooks> {
  if (stores.store.dialect !== 'sqlite') return readWholeBooks(stores.store, fromDay, toDay);
  const entry = siblingUrl(import.meta.url, './books-worker');
  const url = config.current.databaseUrl;
  return workerResult<WholeBooks>(entry, { url, fromDay, toDay });
}
