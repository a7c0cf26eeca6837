/** The own prices of an account in its drawer: discount, and each price beside list price and cost. */
import { call } from '../api.ts';
import { marginText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { ActionForm, TextField, useForm } from '../parts/form.tsx';
import { Empty, Loaded, Notice } from '../parts/loaded.tsx';
import { type Column, Table, money } from '../parts/table.tsx';
import { NONE, State } from '../parts/values.tsx';
import { useCall } from '../resource.ts';
import type { Account, PricesResponse } from '../shapes.ts';

export interface ChangeProps {
  readonly account: Account;
  readonly path: string;
  readonly changed: () => void;
}

/** The general discount; rules for kinds and models stay. */
export function Discount({ account, path, changed }: ChangeProps) {
  const { discountPercent = '', ...others } = account.prices ?? {};
  const { action, values, field } = useForm({ percent: String(discountPercent) });
  const save = (): void => {
    void action.run(async () => {
      const percent = values.percent.trim();
      const rules = percent === '' ? others : { ...others, discountPercent: percent };
      const prices = Object.keys(rules).length === 0 ? null : rules;
      await call(path, { method: 'PATCH', body: { prices } });
      toast('The prices were changed');
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Discount</summary>
      <ActionForm action={action} submit={save} label="Save">
        <TextField
          {...field('percent', 'prices')}
          label="Discount in percent"
          hint="On all list prices, from 0 to 100. Empty: the prices of the plan. Own prices of kinds and models stay."
          maxLength={8}
        />
      </ActionForm>
    </details>
  );
}

type PriceRow = PricesResponse['data'][number]['margins'][number] & { readonly model: string };

/** The prices of this account that differ from the list, or that are below the cost. */
export function AccountPrices({ id }: { id: string }) {
  const prices = useCall<PricesResponse>(`/admin/prices?account=${encodeURIComponent(id)}`);
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

function isLoss({ cost, percent }: PriceRow): boolean {
  return cost !== null && (percent === null ? Number(cost) > 0 : percent < 0);
}

function priceName({ kind, tier, above, from }: PriceRow): string {
  const parts = [kind, tier, above > 0 && `above ${above} tokens`, from && `from ${from} UTC`];
  return parts.filter(Boolean).join(', ');
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
