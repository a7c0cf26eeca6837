/** The books as CSV and as a Beancount file. Amounts have all decimals: nine in USD, those of the coin for gas. */
import { CUSTOMERS } from '../../billing/ledger/ledger.ts';
import { dayStartMs, isoTime } from '../../core/clock.ts';
import { formatUsd } from '../../core/money.ts';
import type { WholeBooks } from './books-read.ts';

const BOOKS_CSV_HEAD = 'date,id,kind,debit,credit,usd,postings,account_id,note,coin_amount,coin';

export function dateOf(day: number): string {
  return isoTime(dayStartMs(day)).slice(0, 10);
}

/** A whole number of smallest units as a number of coins, with all decimals. */
export function coinText(amount: bigint, decimals: number): string {
  const digits = (amount < 0n ? -amount : amount).toString().padStart(decimals + 1, '0');
  return `${amount < 0n ? '-' : ''}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

interface Gas {
  readonly day: number;
  readonly id: string;
  readonly note: string;
  readonly debit: string;
  readonly credit: string;
  readonly amount: bigint;
  readonly decimals: number;
  readonly coin: string;
}

function gasEntries({ gas }: WholeBooks): Gas[] {
  return gas.payments.map(({ transaction, payer, network, ...payment }) => ({
    ...payment,
    ...gasAccounts(network),
    id: transaction,
    note: payer,
  }));
}

function gasAccounts(network: string) {
  return { debit: `house:gas:${network}`, credit: `house:gas-key:${network}` };
}

export function booksCsv(books: WholeBooks): string {
  const { entries } = books;
  const lines = entries.map((entry) =>
    [
      dateOf(entry.day),
      csvText(entry.id),
      entry.kind,
      entry.debit,
      csvText(entry.credit),
      formatUsd(entry.amountNano),
      entry.postings,
      csvText(entry.accountId),
      csvText(entry.note),
      '',
      '',
    ].join(','),
  );
  const gas = gasEntries(books).map(({ day, id, debit, credit, note, amount, decimals, coin }) =>
    [dateOf(day), id, 'GAS', debit, credit, '', 1, '', note, coinText(amount, decimals), coin].join(
      ',',
    ),
  );
  return `${[BOOKS_CSV_HEAD, ...lines, ...gas].join('\r\n')}\r\n`;
}

/** Quotes by RFC 4180; an apostrophe keeps spreadsheets from running a formula. */
function csvText(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const BEANCOUNT_ACCOUNTS: Readonly<Record<string, string>> = {
  [CUSTOMERS]: 'Liabilities:Customers',
  'house:revenue': 'Income:Revenue',
  'house:operator-credit': 'Equity:Operator-Credit',
  'house:daily-credit': 'Expenses:Daily-Credit',
  'house:bad-debt': 'Expenses:Bad-Debt',
  'house:supplier-cost': 'Expenses:Supplier-Cost',
  'house:card-fees:stripe': 'Expenses:Card-Fees:Stripe',
};
const SUPPLIER = 'house:supplier:';
const GAS = 'house:gas:';
const NANO_DECIMALS = 9;
const OPENING = 'Equity:Opening-Balances';

/** `house:top-up:base` becomes `Assets:Top-Up:Base`. */
function beancountAccount(name: string): string {
  const known = BEANCOUNT_ACCOUNTS[name];
  if (known !== undefined) return known;
  if (name.startsWith(SUPPLIER)) {
    // A name has letters, digits and hyphens only.
    const engine = name
      .slice(SUPPLIER.length)
      .replaceAll(/[^A-Za-z0-9]+/g, '-')
      .replace(/^-/, '');
    return `Liabilities:Supplier:${engine.charAt(0).toUpperCase()}${engine.slice(1) || '0'}`;
  }
  const parts = name.split(':').slice(1);
  const titled = parts.map((part) =>
    part.replaceAll(/(?:^|-)[a-z]/g, (text) => text.toUpperCase()),
  );
  return [name.startsWith(GAS) ? 'Expenses' : 'Assets', ...titled].join(':');
}

export function beancountFile(books: WholeBooks): string {
  const { entries, fromDay, toDay, owedBeforeNano, owedNano, gas } = books;
  const first = dateOf(fromDay);
  const gasOfDays = gasEntries(books);
  const names = new Set([CUSTOMERS, ...entries.flatMap(({ debit, credit }) => [debit, credit])]);
  const opened = new Map([...names].map((name) => [beancountAccount(name), 'USD']));
  for (const { network, coin } of gas.totals) {
    for (const name of Object.values(gasAccounts(network)))
      opened.set(beancountAccount(name), coin);
  }
  opened.set(OPENING, [...new Set(['USD', ...gas.totals.map(({ coin }) => coin)])].join(','));
  const keys = gas.totals.map(({ network, coin, decimals, before, amount }) => ({
    key: beancountAccount(gasAccounts(network).credit),
    before: ofCoin(before, decimals, coin),
    after: coinText(-before - amount, decimals),
    coin,
  }));
  const lines = [
    'option "title" "Farebox"',
    'option "operating_currency" "USD"',
    '',
    ...[...opened].map(([account, currency]) => `${first} open ${account} ${currency}`).toSorted(),
    ...transaction(
      first,
      'Owed to customers before this day',
      {},
      [OPENING, beancountAccount(CUSTOMERS)],
      ofCoin(owedBeforeNano, NANO_DECIMALS, 'USD'),
    ),
    ...keys.flatMap(({ key, before }) =>
      transaction(first, 'Gas paid before this day', {}, [OPENING, key], before),
    ),
    ...entries.flatMap((entry) => {
      const { id, accountId: account, note, kind, debit, credit } = entry;
      const facts = { id, ...(account === '' ? {} : { account }) };
      return transaction(
        dateOf(entry.day),
        note === '' ? kind : `${kind}: ${note}`,
        facts,
        [beancountAccount(debit), beancountAccount(credit)],
        ofCoin(entry.amountNano, NANO_DECIMALS, 'USD'),
      );
    }),
    ...gasOfDays.flatMap(({ day, id, note, debit, credit, amount, decimals, coin }) =>
      transaction(
        dateOf(day),
        `GAS: ${note}`,
        { id },
        [beancountAccount(debit), beancountAccount(credit)],
        ofCoin(amount, decimals, coin),
      ),
    ),
    '',
    // Beancount checks a balance at the beginning of its day.
    ...keys.map(({ key, after, coin }) => `${dateOf(toDay + 1)} balance ${key} ${after} ${coin}`),
    `${dateOf(toDay + 1)} balance ${beancountAccount(CUSTOMERS)} ${coinText(-owedNano, NANO_DECIMALS)} USD`,
  ];
  return `${lines.join('\n')}\n`;
}

/** An amount and its negative, each with the currency. */
type Amounts = readonly [debit: string, credit: string];

function ofCoin(amount: bigint, decimals: number, coin: string): Amounts {
  return [`${coinText(amount, decimals)} ${coin}`, `${coinText(-amount, decimals)} ${coin}`];
}

function transaction(
  date: string,
  title: string,
  facts: Readonly<Record<string, string>>,
  [debit, credit]: readonly [debit: string, credit: string],
  [debited, credited]: Amounts,
): string[] {
  return [
    '',
    `${date} * ${quoted(title)}`,
    ...Object.entries(facts).map(([name, value]) => `  ${name}: ${quoted(value)}`),
    `  ${debit}  ${debited}`,
    `  ${credit}  ${credited}`,
  ];
}

function quoted(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${line}"`;
}
