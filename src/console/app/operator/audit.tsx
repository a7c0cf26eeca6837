/** The audit: every balance counted again from the postings. */
import { countText, usdText } from '../format.ts';
import { PageHead } from '../parts/page-head.tsx';
import { Tile } from '../parts/values.tsx';
import { Loaded } from '../parts/loaded.tsx';
import { type Column, Table, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';

interface AuditResponse {
  readonly ok: boolean;
  readonly accounts: number;
  readonly transfers: number;
  readonly openHolds: number;
  readonly owedUsd: string;
  readonly debtsUsd: string;
  readonly revenueUsd: string;
  readonly differences: readonly {
    readonly account: string;
    readonly what: string;
    readonly storedUsd: string;
    readonly recomputedUsd: string;
  }[];
}

const DIFFERENCE_COLUMNS: readonly Column<AuditResponse['differences'][number]>[] = [
  { name: 'Account', show: ({ account }) => <code>{account}</code> },
  { name: 'What', show: ({ what }) => <span class="text">{what}</span> },
  figure('Stored', ({ storedUsd }) => usdText(storedUsd)),
  figure('Counted', ({ recomputedUsd }) => usdText(recomputedUsd)),
];

export function Audit() {
  const audit = useCall<AuditResponse>('/admin/audit');
  return (
    <>
      <PageHead title="Audit" lead="Every balance, counted again from the postings of the ledger.">
        <button type="button" disabled={audit.isLoading} onClick={audit.reload}>
          {audit.isLoading ? 'Counting…' : 'Count again'}
        </button>
      </PageHead>
      <Loaded from={audit} rows={4}>
        {(data) => (
          <>
            <p class={`verdict ${data.ok ? 'good' : 'bad'}`} role="status">
              {data.ok
                ? 'The books are right: every balance equals its postings.'
                : `The books differ in ${countText(data.differences.length)} places. Do not restart; look at them first.`}
            </p>
            <dl class="tiles">
              <Tile name="Accounts">{countText(data.accounts)}</Tile>
              <Tile name="Postings">{countText(data.transfers)}</Tile>
              <Tile name="Open reservations">{countText(data.openHolds)}</Tile>
              <Tile name="Owed to accounts" note="credit that is not spent yet">
                {usdText(data.owedUsd)}
              </Tile>
              <Tile name="Debts" tone={Number(data.debtsUsd) > 0 ? 'warn' : undefined}>
                {usdText(data.debtsUsd)}
              </Tile>
              <Tile name="Revenue" note="since the beginning">
                {usdText(data.revenueUsd)}
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
        )}
      </Loaded>
    </>
  );
}
