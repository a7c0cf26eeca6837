/** The statement of a month, on one page for printing. */
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { shortDay, usdText } from '../format.ts';
import { BASE, TITLE } from '../page-facts.ts';
import { TextField } from '../parts/form.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { NONE, Tile, Time, Usd } from '../parts/values.tsx';
import { type Column, Table, figure } from '../parts/table.tsx';
import { SafeLink } from '../playground/markdown.tsx';
import { useResource } from '../resource.ts';
import { session } from '../session.ts';
import type { Page, StatementEntry } from '../shapes.ts';
import { ENTRY_TYPES } from './credit.tsx';

const PAGE_ROWS = 100;

function thisMonth(): string {
  return new Date().toISOString().slice(0, 7);
}

/** First and last day of `2026-11`. */
function daysOf(month: string): { from: string; to: string } {
  const [year = 0, number = 1] = month.split('-').map(Number);
  const last = new Date(Date.UTC(year, number, 0)).toISOString().slice(0, 10);
  return { from: `${month}-01`, to: last };
}

async function loadAll(from: string, to: string, signal: AbortSignal): Promise<StatementEntry[]> {
  const entries: StatementEntry[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const next: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const path = `/billing/statement?from=${from}&to=${to}&limit=${PAGE_ROWS}${next}`;
    const page: Page<StatementEntry> = await call(path, { signal });
    entries.push(...page.data);
    cursor = page.nextCursor;
  }
  return entries.toReversed();
}

const COLUMNS: readonly Column<StatementEntry>[] = [
  {
    name: 'Date',
    show: ({ createdAt, date }) =>
      createdAt === null ? <span class="num">{shortDay(date)}</span> : <Time iso={createdAt} />,
  },
  {
    name: 'Movement',
    show: ({ type, requests, id, note, receiptUrl }) => (
      <>
        {type === 'CHARGES' ? `${requests} requests of the day` : ENTRY_TYPES[type]}
        {type !== 'CHARGES' && <span class="under text">{id}</span>}
        {note !== null && <span class="under text">{note}</span>}
        {receiptUrl !== null && (
          <span class="under">
            <SafeLink href={receiptUrl}>Receipt</SafeLink>
          </span>
        )}
      </>
    ),
  },
  { name: 'Amount', kind: 'figure', show: ({ amount }) => <Usd value={amount.usd} /> },
  figure('Daily credit', ({ amount }) => (amount.diem === 0 ? NONE : usdText(amount.diem))),
  figure('Balance after', ({ balanceAfter }) =>
    balanceAfter === null ? NONE : usdText(balanceAfter),
  ),
];

export function Statement() {
  const { filters, change } = useAddress('month');
  const month = /^\d{4}-\d{2}$/.test(filters.month) ? filters.month : thisMonth();
  const { from, to } = daysOf(month);
  const entries = useResource(month, (signal) => loadAll(from, to, signal));
  return (
    <div class="statement">
      <PageHead title={`Statement ${month}`} lead={`${TITLE}, account ${session.value?.accountId}`}>
        <button type="button" onClick={() => print()}>
          Print
        </button>
        <a
          class="button"
          href={`${BASE}/billing/statement?from=${from}&to=${to}&format=csv`}
          download
        >
          Export CSV
        </a>
      </PageHead>
      <div class="filters">
        <TextField
          label="Month (UTC)"
          type="month"
          value={month}
          max={thisMonth()}
          onInput={(value) => change({ month: value })}
        />
      </div>
      <Loaded from={entries}>
        {(rows) => (
          <>
            <dl class="tiles">
              <Tile name="Added">{usdText(sumOf(rows, (usd) => usd > 0))}</Tile>
              <Tile name="Charged for requests">
                {usdText(sumOf(rows, (usd, { type }) => usd < 0 && type === 'CHARGES'))}
              </Tile>
              <Tile name="Other deductions">
                {usdText(sumOf(rows, (usd, { type }) => usd < 0 && type !== 'CHARGES'))}
              </Tile>
            </dl>
            {rows.length === 0 ? (
              <Empty title="No movements in this month" />
            ) : (
              <Table label="Statement" rows={rows} columns={COLUMNS} keyOf={({ id }) => id} />
            )}
          </>
        )}
      </Loaded>
    </div>
  );
}

const NANO_PER_USD = 1e9;

/** Sums in whole nano-USD, because sums of decimals are not exact. */
function sumOf(
  rows: readonly StatementEntry[],
  counts: (usd: number, entry: StatementEntry) => boolean,
): number {
  const nanos = rows
    .filter((entry) => counts(entry.amount.usd, entry))
    .reduce((sum, { amount }) => sum + Math.round(amount.usd * NANO_PER_USD), 0);
  return nanos / NANO_PER_USD;
}
