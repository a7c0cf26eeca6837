/** The audit page: compares every balance with the sum of its postings. */
import { countText, exactDecimals } from '../format.ts';
import { AccountName } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Tile, Usd } from '../parts/values.tsx';
import { Loaded } from '../parts/loaded.tsx';
import { type Column, Table, money } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { AuditResponse } from '../shapes.ts';

const DIFFERENCE_COLUMNS: readonly Column<AuditResponse['differences'][number]>[] = [
  {
    name: 'Account',
    show: ({ account, accountName }) => <AccountName id={account} name={accountName} />,
  },
  { name: 'Amount', show: ({ what }) => <span class="text">{what}</span> },
  money('Stored', ({ storedUsd }) => storedUsd, { isExact: true }),
  money('Recomputed', ({ recomputedUsd }) => recomputedUsd, { isExact: true }),
];

export function Audit() {
  const audit = useCall<AuditResponse>('/admin/audit');
  return (
    <>
      <PageHead title="Audit" lead="Compares every balance with the sum of its postings.">
        <button type="button" disabled={audit.isLoading} onClick={audit.reload}>
          {audit.isLoading ? 'Auditing…' : 'Run again'}
        </button>
      </PageHead>
      <Loaded from={audit}>
        {(data) => {
          const decimals = exactDecimals([data.owedUsd, data.debtsUsd, data.revenueUsd]);
          return (
            <>
              <p class={`verdict ${data.ok ? 'good' : 'bad'}`} role="status">
                {data.ok
                  ? 'Every balance equals the sum of its postings.'
                  : `${countText(data.differences.length)} amounts differ from their postings. Back up the database before you change or restart anything.`}
              </p>
              <dl class="tiles">
                <Tile name="Accounts">{countText(data.accounts)}</Tile>
                <Tile name="Postings">{countText(data.transfers)}</Tile>
                <Tile name="Open holds">{countText(data.openHolds)}</Tile>
                <Tile name="Unspent credit" note="of all accounts">
                  <Usd value={data.owedUsd} decimals={decimals} />
                </Tile>
                <Tile name="Debts" tone={Number(data.debtsUsd) > 0 ? 'warn' : undefined}>
                  <Usd value={data.debtsUsd} decimals={decimals} />
                </Tile>
                <Tile name="Revenue" note="total">
                  <Usd value={data.revenueUsd} decimals={decimals} />
                </Tile>
              </dl>
              {data.differences.length > 0 && (
                <Table
                  label="Differences"
                  rows={data.differences}
                  keyOf={({ account, what }) => `${account} ${what}`}
                  columns={DIFFERENCE_COLUMNS}
                />
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}
