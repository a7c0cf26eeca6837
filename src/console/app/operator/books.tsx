/** The books page: sums of all postings, and what is owed to customers before and after. */
import { useAddress } from '../address.ts';
import { query } from '../api.ts';
import { countText, dayBefore, exactDecimals } from '../format.ts';
import { BASE } from '../page-facts.ts';
import { Days } from '../parts/filters.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { type Column, Table, aside, figure, money } from '../parts/table.tsx';
import { Tile, Usd } from '../parts/values.tsx';
import { useCall } from '../resource.ts';
import type { BooksResponse } from '../shapes.ts';

type Sum = BooksResponse['sums'][number];
type GasSum = BooksResponse['gas'][number];

const GAS_COLUMNS: readonly Column<GasSum>[] = [
  { name: 'Network', show: ({ network }) => <strong class="text">{network}</strong> },
  figure('Transactions', ({ transactions }) => countText(transactions), 'wide'),
  figure('Paid', ({ paid, coin }) => `${paid} ${coin}`),
  figure('Paid before', ({ paidBefore, coin }) => `${paidBefore} ${coin}`, 'wide'),
];

const COLUMNS: readonly Column<Sum>[] = [
  {
    name: 'Kind',
    // A phone has no columns for the accounts.
    show: ({ kind, debit, credit }) => (
      <>
        <strong class="text">{kind}</strong>
        <span class="narrow under">
          {debit} to {credit}
        </span>
      </>
    ),
  },
  aside('Debit', ({ debit }) => debit),
  aside('Credit', ({ credit }) => credit),
  figure('Postings', ({ postings }) => countText(postings), 'wide'),
  money('USD', ({ usd }) => usd, { isExact: true }),
];

export function Books() {
  const { filters, change } = useAddress('from', 'to');
  const to = filters.to || dayBefore(0);
  const books = useCall<BooksResponse>(`/admin/books${query({ from: filters.from, to })}`);
  // Without a choice the server begins with the month, or with the first day of stored postings.
  const from = filters.from || (books.data?.from ?? `${to.slice(0, 7)}-01`);
  return (
    <>
      <PageHead
        title="Books"
        lead="All postings of these days, for an accountant. Days are UTC; the charges of a day are one entry."
      >
        <div class="filters">
          <Days from={from} to={to} change={change} />
        </div>
      </PageHead>
      <Loaded from={books}>
        {(data) => {
          const decimals = exactDecimals([data.owedBeforeUsd, data.owedUsd]);
          return (
            <>
              <dl class="tiles">
                <Tile name="Owed to customers before" note={`at the start of ${data.from}`}>
                  <Usd value={data.owedBeforeUsd} decimals={decimals} />
                </Tile>
                <Tile name="Owed to customers after" note={`at the end of ${data.to}`}>
                  <Usd value={data.owedUsd} decimals={decimals} />
                </Tile>
                <Tile name="Journal entries">{countText(data.entries)}</Tile>
              </dl>
              {data.entries === 0 ? (
                <Empty title="No postings on these days" />
              ) : (
                <section>
                  <div class="section-head">
                    <h2>By kind and accounts</h2>
                    <p class="row">
                      {(['csv', 'beancount'] as const).map((format) => (
                        <a
                          key={format}
                          class="button small"
                          href={`${BASE}/admin/books${query({ from, to, format })}`}
                          download
                        >
                          {format === 'csv' ? 'Journal as CSV' : 'Journal for Beancount'}
                        </a>
                      ))}
                    </p>
                  </div>
                  <Table
                    label="Sums by kind and accounts"
                    rows={data.sums}
                    keyOf={({ kind, debit, credit }) => `${kind} ${debit} ${credit}`}
                    columns={COLUMNS}
                  />
                </section>
              )}
              {data.gas.length > 0 && (
                <section>
                  <div class="section-head">
                    <h2>Gas</h2>
                    <p>Paid by the gas keys in the coin of each chain, from final blocks.</p>
                  </div>
                  <Table
                    label="Gas by network"
                    rows={data.gas}
                    keyOf={({ network }) => network}
                    columns={GAS_COLUMNS}
                  />
                </section>
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}
