/** The statement of a month, on one page for printing. */
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { exactDecimals } from '../format.ts';
import { TITLE } from '../page-facts.ts';
import { hasYear } from '../parts/filters.tsx';
import { TextField } from '../parts/form.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { ExportCsv, Tile, Usd } from '../parts/values.tsx';
import { type Column, Table, money } from '../parts/table.tsx';
import { useResource } from '../resource.ts';
import { session } from '../session.ts';
import type { StatementEntry, StatementResponse } from '../shapes.ts';
import { DATE_COLUMN, ENTRY_TYPES, EntryDetails } from './credit.tsx';

const PAGE_ROWS = 100;

/** With the id, because the page is printed. */
function accountName(): string {
  const { accountId = '', member } = session.value ?? {};
  const name = member?.accounts.find(({ id }) => id === accountId)?.name;
  return name === undefined ? accountId : `${name} (${accountId})`;
}

function thisMonth(): string {
  return new Date().toISOString().slice(0, 7);
}

/** First and last day of `2026-11`. */
function daysOf(month: string): { from: string; to: string } {
  const [year = 0, number = 1] = month.split('-').map(Number);
  const last = new Date(Date.UTC(year, number, 0)).toISOString().slice(0, 10);
  return { from: `${month}-01`, to: last };
}

interface Month extends Pick<StatementResponse, 'openingUsd' | 'closingUsd'> {
  readonly entries: readonly StatementEntry[];
}

async function loadAll(from: string, to: string, signal: AbortSignal): Promise<Month> {
  const entries: StatementEntry[] = [];
  let balances: Omit<Month, 'entries'> = { openingUsd: null, closingUsd: null };
  for (let cursor: string | null = ''; cursor !== null;) {
    const next: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const path = `/billing/statement?from=${from}&to=${to}&limit=${PAGE_ROWS}${next}`;
    const page: StatementResponse = await call(path, { signal });
    entries.push(...page.data);
    // Entries of today can arrive between the pages; the last page is the newest state.
    balances = { openingUsd: page.openingUsd, closingUsd: page.closingUsd };
    cursor = page.nextCursor;
  }
  return { ...balances, entries: entries.toReversed() };
}

const COLUMNS: readonly Column<StatementEntry>[] = [
  DATE_COLUMN,
  {
    name: 'Movement',
    show: (entry) => (
      <>
        {entry.type === 'CHARGES'
          ? `${entry.requests} requests of the day`
          : ENTRY_TYPES[entry.type]}
        {entry.type !== 'CHARGES' && <span class="under text">{entry.id}</span>}
        <EntryDetails entry={entry} />
      </>
    ),
  },
  money('Amount', ({ amount }) => amount.usd, { isExact: true }),
  money('Daily credit', ({ amount }) => (amount.diem === 0 ? null : amount.diem), {
    isExact: true,
    isWide: true,
  }),
  money('Balance after', ({ balanceAfter }) => balanceAfter, { isExact: true, isWide: true }),
];

export function Statement() {
  const { filters, change } = useAddress('month');
  const month = /^\d{4}-\d{2}$/.test(filters.month) ? filters.month : thisMonth();
  const { from, to } = daysOf(month);
  const entries = useResource(month, (signal) => loadAll(from, to, signal));
  return (
    <div class="statement">
      <PageHead title={`Statement ${month}`} lead={`${TITLE}, account ${accountName()}`}>
        <button type="button" onClick={() => print()}>
          Print
        </button>
        <ExportCsv path="/billing/statement" filters={{ from, to }} />
      </PageHead>
      <div class="filters">
        <TextField
          label="Month (UTC)"
          type="month"
          value={month}
          max={thisMonth()}
          onInput={(value) => hasYear(value) && change({ month: value })}
        />
      </div>
      <Loaded from={entries}>
        {(loaded) => (
          <>
            <Sums month={loaded} />
            {loaded.entries.length === 0 ? (
              <Empty title="No movements in this month" />
            ) : (
              <Table
                label="Statement"
                rows={loaded.entries}
                columns={COLUMNS}
                keyOf={({ id }) => id}
              />
            )}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Sums({ month }: { month: Month }) {
  const { entries: rows, openingUsd, closingUsd } = month;
  const added = sumOf(rows, (usd) => usd > 0);
  const charged = sumOf(rows, (usd, { type }) => usd < 0 && type === 'CHARGES');
  const others = sumOf(rows, (usd, { type }) => usd < 0 && type !== 'CHARGES');
  const decimals = exactDecimals([openingUsd, added, charged, others, closingUsd]);
  return (
    <dl class="tiles">
      <Tile name="Opening balance">
        <Usd value={openingUsd} decimals={decimals} />
      </Tile>
      <Tile name="Added">
        <Usd value={added} decimals={decimals} />
      </Tile>
      <Tile name="Charged for requests">
        <Usd value={charged} decimals={decimals} />
      </Tile>
      <Tile name="Other deductions">
        <Usd value={others} decimals={decimals} />
      </Tile>
      <Tile name="Closing balance">
        <Usd value={closingUsd} decimals={decimals} />
      </Tile>
    </dl>
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
