/** `farebox books`: the journal of postings for an accountant, and the sum owed to customers. */
import { firstWholeDay, journalSums } from '../billing/ledger/ledger.ts';
import { dayOf, dayStartMs } from '../core/clock.ts';
import { booksBody } from '../server/ops/books.ts';
import { beancountFile, booksCsv, coinText, dateOf } from '../server/ops/books-format.ts';
import { type WholeBooks, readWholeBooks } from '../server/ops/books-read.ts';
import { type Cli, UsageError, oneOf, pastMs, shownUsd } from './command.ts';
import { listing, table } from './terminal.ts';

const FORMATS = ['table', 'csv', 'beancount'] as const;

export function booksCommand(cli: Cli): void {
  cli.program
    .command('books')
    .description(`Print the books: all postings, and the sum owed to customers

The table has sums by kind and accounts; csv and beancount have every entry, with the charges of each
day as one. The sum of the journal equals the balances exactly. Costs of suppliers are one entry for
each day and engine. Fees of Stripe are included. Gas has a table of its own, in the coin of each chain.

Example: farebox books --from 2027-01-01 --to 2027-01-31 --format beancount > january.beancount`)
    .option(
      '--from <date or span>',
      'first UTC day, such as 2027-01-01 or 30d (default: 30d)',
      pastMs,
    )
    .option('--to <date>', 'last UTC day (default: today)', pastMs)
    .option('--format <format>', FORMATS.join(', '), oneOf(FORMATS), 'table')
    .action(({ from, to, format }) =>
      cli.withStores(async ({ stores, clock }) => {
        const wholeDay = await firstWholeDay(stores.store);
        const fromDay = dayOf(from ?? Math.max(pastMs('30d'), dayStartMs(wholeDay)));
        const toDay = dayOf(to ?? clock.nowMs());
        if (fromDay < wholeDay) {
          const first = dateOf(wholeDay);
          throw new UsageError(
            `--from must be ${first} or later, because older postings were deleted`,
          );
        }
        if (fromDay > toDay) throw new UsageError('--from must not be after --to');
        const books = await readWholeBooks(stores.store, fromDay, toDay);
        if (format === 'table') cli.print(booksBody(books), shownBooks(books));
        else cli.console.stdout.write(format === 'csv' ? booksCsv(books) : beancountFile(books));
      }),
    );
}

function shownBooks(books: WholeBooks): string {
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
  const head = ['KIND', 'DEBIT', 'CREDIT', 'POSTINGS', 'USD'];
  const sums =
    rows.length === 0 ? 'No postings on these days\n' : table(head, rows, ['POSTINGS', 'USD']);
  return `${owed}\n${sums}${shownGas(books)}`;
}

function shownGas({ gas, fromDay }: WholeBooks): string {
  if (gas.totals.length === 0) return '';
  const before = `BEFORE ${dateOf(fromDay)}`;
  const rows = gas.totals.map(({ network, coin, decimals, transactions, ...sums }) => [
    network,
    coin,
    String(transactions),
    coinText(sums.amount, decimals),
    coinText(sums.before, decimals),
  ]);
  const numbers = ['TRANSACTIONS', 'PAID', before];
  return `\n${table(['GAS', 'COIN', ...numbers], rows, numbers)}`;
}
