/** The revenue page: charges by day and model. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { query } from '../api.ts';
import { countText, dayBefore, percentText, roughCount, roughUsd, usdText } from '../format.ts';
import { DayChart } from '../parts/chart.tsx';
import { Days, USUAL_DAYS } from '../parts/filters.tsx';
import { Segments } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Tile } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { usageColumns } from '../usage-columns.tsx';
import type { GroupsResponse } from '../shapes.ts';
import { daysBetween, seriesByModel } from '../usage-series.ts';

/** A row of the revenue by day and model, which always has `date` and `model`. */
type Row = GroupsResponse['data'][number] & { readonly date: string; readonly model: string };
type Revenue = GroupsResponse & { readonly data: readonly Row[] };
type ModelSums = Omit<Row, 'date' | 'usd' | 'diem'> & Record<'usd' | 'diem', number>;

const COLUMNS: readonly Column<ModelSums>[] = [
  { name: 'Model', show: ({ model }) => <span class="model">{model}</span> },
  ...usageColumns<ModelSums>(),
  figure('Daily credit', ({ diem }) => usdText(diem), 'wide'),
  figure('USD', ({ usd }) => usdText(usd)),
];

export function Revenue() {
  const { filters, change } = useAddress('from', 'to');
  const from = filters.from || dayBefore(USUAL_DAYS - 1);
  const to = filters.to || dayBefore(0);
  const revenue = useCall<Revenue>(`/admin/revenue${query({ from, to })}`);
  return (
    <>
      <PageHead title="Revenue" lead="Charges by day and model. Days are UTC.">
        <div class="filters">
          <Days from={from} to={to} change={change} />
        </div>
      </PageHead>
      <Loaded from={revenue}>{(data) => <RevenueFigures revenue={data} />}</Loaded>
    </>
  );
}

function RevenueFigures({ revenue }: { revenue: Revenue }) {
  const measure = useSignal<'usd' | 'requests'>('usd');
  const isRequests = measure.value === 'requests';
  const { totals, data, from, to } = revenue;
  const days = useMemo(() => daysBetween(from, to), [from, to]);
  const series = useMemo(
    () => seriesByModel(data, days, ({ usd, requests }) => (isRequests ? requests : Number(usd))),
    [data, days, isRequests],
  );
  const models = useMemo(() => sumsByModel(data), [data]);
  return (
    <>
      <dl class="tiles">
        <Tile name="Charged">{usdText(totals.usd)}</Tile>
        <Tile name="Paid with daily credit">{usdText(totals.diem)}</Tile>
        <Tile name="Requests">{countText(totals.requests)}</Tile>
        <Tile name="Errors" note={`${percentText(totals.errors, totals.requests)} of requests`}>
          {countText(totals.errors)}
        </Tile>
        <Tile name="Tokens" note="input and output">
          {roughCount(totals.promptTokens + totals.completionTokens)}
        </Tile>
      </dl>
      {models.length === 0 ? (
        <Empty title="No charges on these days" />
      ) : (
        <>
          <section>
            <div class="section-head">
              <h2>By day</h2>
              <Segments
                legend="Measure of the chart"
                value={measure.value}
                options={[
                  ['usd', 'USD'],
                  ['requests', 'Requests'],
                ]}
                onInput={(one) => (measure.value = one)}
              />
            </div>
            <DayChart
              label="Revenue by day and model"
              days={days}
              series={series}
              rough={isRequests ? roughCount : roughUsd}
              exact={isRequests ? countText : (value) => usdText(value)}
            />
          </section>
          <section>
            <h2>By model</h2>
            <Table
              label="Revenue by model"
              columns={COLUMNS}
              rows={models}
              keyOf={({ model }) => model}
            />
          </section>
        </>
      )}
    </>
  );
}

function sumsByModel(rows: readonly Row[]): ModelSums[] {
  const sums = new Map<string, ModelSums>();
  for (const row of rows) {
    const before = sums.get(row.model);
    sums.set(row.model, {
      model: row.model,
      requests: (before?.requests ?? 0) + row.requests,
      errors: (before?.errors ?? 0) + row.errors,
      promptTokens: (before?.promptTokens ?? 0) + row.promptTokens,
      completionTokens: (before?.completionTokens ?? 0) + row.completionTokens,
      usd: (before?.usd ?? 0) + Number(row.usd),
      diem: (before?.diem ?? 0) + Number(row.diem),
    });
  }
  return [...sums.values()].toSorted((a, b) => b.usd - a.usd || b.requests - a.requests);
}
