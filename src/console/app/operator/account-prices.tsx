/** The own prices of an account in its drawer, each beside list price and cost. */
import { marginText } from '../format.ts';
import { Empty, Loaded, Notice } from '../parts/loaded.tsx';
import { type Margin, isLoss, priceName } from '../parts/margin.tsx';
import { type Column, Table, money } from '../parts/table.tsx';
import { NONE, State } from '../parts/values.tsx';
import type { Resource } from '../resource.ts';
import type { PricesResponse } from '../shapes.ts';

type PriceRow = Margin & { readonly model: string };

/** The prices of this account that differ from the list, or that are below the cost. */
export function AccountPrices({ prices }: { prices: Resource<PricesResponse> }) {
  return (
    <section>
      <h3>Own prices</h3>
      <Loaded from={prices}>
        {({ data }) => {
          const rows = data.flatMap(({ model, source, margins }) =>
            source === null ? [] : margins.map((margin): PriceRow => ({ model, ...margin })),
          );
          const losses = rows.filter(isLoss).length;
          return (
            <>
              {losses > 0 && (
                <Notice tone="bad">
                  <p>{losses} of these prices are below the cost of the supplier.</p>
                </Notice>
              )}
              {rows.length === 0 ? (
                <Empty title="The account has the list prices" />
              ) : (
                <Table
                  label="Own prices of the account"
                  rows={rows}
                  keyOf={(row) => [row.model, row.engine, priceName(row)].join(' ')}
                  columns={PRICE_COLUMNS}
                />
              )}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

const PRICE_COLUMNS: readonly Column<PriceRow>[] = [
  {
    name: 'Price',
    show: (row) => (
      <>
        <span class="text">{row.model}</span>
        <span class="under">{priceName(row)}</span>
      </>
    ),
  },
  money('List', ({ list }) => list, { isExact: true }),
  money('Sold', ({ sold }) => sold, { isExact: true }),
  money('Cost', ({ cost }) => cost, { isWide: true, isExact: true }),
  {
    name: 'Margin',
    show: (row) => {
      if (row.cost === null) return NONE;
      const text = row.percent === null ? 'free' : marginText(row.percent);
      return isLoss(row) ? <State value={text} tone="bad" /> : <span class="num">{text}</span>;
    },
  },
];
