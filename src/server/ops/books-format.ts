/** The books as CSV and as a Beancount file. Amounts have all nine decimals. */
import { type Books, CUSTOMERS } from '../../billing/ledger/ledger.ts';
import { dayStartMs, isoTime } from '../../core/clock.ts';
import { formatUsd } from '../../core/money.ts';

const BOOKS_CSV_HEAD = 'date,id,kind,debit,credit,usd,postings,account_id,note';

export function dateOf(day: number): string {
  return isoTime(dayStartMs(day)).slice(0, 10);
}

export function booksCsv({ entries }: Books): string {
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
    ].join(','),
  );
  return `${[BOOKS_CSV_HEAD, ...lines].join('\r\n')}\r\n`;
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
  return ['Assets', ...titled].join(':');
}

export function beancountFile(books: Books): string {
  const { entries, fromDay, toDay, owedBeforeNano, owedNano } = books;
  const first = dateOf(fromDay);
  const names = new Set([CUSTOMERS, ...entries.flatMap(({ debit, credit }) => [debit, credit])]);
  const accounts = [...new Set([OPENING, ...[...names].map(beancountAccount)])].toSorted();
  const lines = [
    'option "title" "Farebox"',
    'option "operating_currency" "USD"',
    '',
    ...accounts.map((account) => `${first} open ${account} USD`),
    ...transaction(first, 'Owed to customers before this day', {}, [
      [OPENING, owedBeforeNano],
      [beancountAccount(CUSTOMERS), -owedBeforeNano],
    ]),
    ...entries.flatMap((entry) => {
      const { id, accountId: account, amountNano, note, kind, day } = entry;
      const facts = { id, ...(account === '' ? {} : { account }) };
      return transaction(dateOf(day), note === '' ? kind : `${kind}: ${note}`, facts, [
        [beancountAccount(entry.debit), amountNano],
        [beancountAccount(entry.credit), -amountNano],
      ]);
    }),
    '',
    // Beancount checks a balance at the beginning of its day.
    `${dateOf(toDay + 1)} balance ${beancountAccount(CUSTOMERS)} ${signed(-owedNano)} USD`,
  ];
  return `${lines.join('\n')}\n`;
}

function transaction(
  date: string,
  title: string,
  facts: Readonly<Record<string, string>>,
  sides: readonly (readonly [account: string, amountNano: bigint])[],
): string[] {
  return [
    '',
    `${date} * ${quoted(title)}`,
    ...Object.entries(facts).map(([name, value]) => `  ${name}: ${quoted(value)}`),
    ...sides.map(([account, amount]) => `  ${account}  ${signed(amount)} USD`),
  ];
}

function quoted(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${line}"`;
}

function signed(amount: bigint): string {
  return amount < 0n ? `-${formatUsd(-amount)}` : formatUsd(amount);
}
