/** `farebox books`: the journal of postings for an accountant, and the sum owed to customers. */
import { type Books, journalSums, readBooks } from '../billing/ledger/ledger.ts';
import { dayOf } from '../core/clock.ts';
import { booksBody } from '../server/ops/books.ts';
import { beancountFile, booksCsv, dateOf } from '../server/ops/books-format.ts';
import { type Cli, UsageError, oneOf, pastMs, shownUsd } from './command.ts';
import { listing, table } from './terminal.ts';

const FORMATS = ['table', 'csv', 'beancount'] as const;

export function booksCommand(cli: Cli): void {
  cli.program
    .command('books')
    .description(`Print the books: all postings, and the sum owed to customers

The table has sums by kind and accounts; csv and beancount have every entry, with the charges of each
day as one. The sum of the journal equals the balances exactly. Costs of suppliers are one entry for
each day and engine. Fees of Stripe are included; gas is not: take it from the chain.

Example: farebox books --from 2027-01-01 --to 2027-01-31 --format beancount > january.beancount`)
    .option(
      '--from <date or span>',
      'first UTC day, such as 2027-01-01 or 30d (default: 30d)',
      pastMs,
    )
    .option('--to <date>', 'last UTC day (default: today)', pastMs)
    .option('--format <format>', FORMATS.join(', '), oneOf(FORMATS), 'table')
    .action(({ from = pastMs('30d'), to, format }) =>
      cli.withStores(async ({ stores, clock }) => {
        const [fromDay, toDay] = [dayOf(from), dayOf(to ?? clock.nowMs())];
        if (fromDay > toDay) throw new UsageError('--from must not be after --to');
        const books = await readBooks(stores.store, fromDay, toDay);
        if (format === 'table') cli.print(booksBody(books), shownBooks(books));
        else cli.console.stdout.write(format === 'csv' ? booksCsv(books) : beancountFile(books));
      }),
    );
}

function shownBooks(books: Books): string {
  const owed = listing([
    [`Owed to customers before ${dateOf(books.fromDay)}`, `${shownUsd(books.owedBeforeNano)} USD`],
    [`Owed to customers after ${dateOf(books.toDay)}`, `${shownUsd(books.owedNano)} USD`],
  ]);
  const rows = journalSums(books).map(({ kind, debit, credit, amountNano, postings }) => [
    kind,
    debit,
    credit,
    String(postings),
    shownUsd(amountNano),
  ]);
  if (rows.length === 0) return `${owed}\nNo postings on these days\n`;
  return `${owed}\n${table(['KIND', 'DEBIT', 'CREDIT', 'POSTINGS', 'USD'], rows, ['POSTINGS', 'USD'])}`;
}
