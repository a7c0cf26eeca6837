/** The revenue page: charges, costs of suppliers and margins by day, model, engine and customer. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { query } from '../api.ts';
import { countText, dayBefore, percentText, roughCount, usdDecimals } from '../format.ts';
import { DayChart } from '../parts/chart.tsx';
import { Days, USUAL_DAYS } from '../parts/filters.tsx';
import { Segments } from '../parts/form.tsx';
import { AccountLink, ModelName } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { ExportCsv, Tile, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, money } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { usageColumns } from '../usage-columns.tsx';
import type { GroupsResponse } from '../shapes.ts';
import { daysBetween, seriesByModel } from '../usage-series.ts';

type By = 'model' | 'engine' | 'account';
type Row = GroupsResponse['data'][number];
type Measure = 'usd' | 'supplierUsd' | 'marginUsd' | 'requests';

const MOST_ROWS = 100;

const NAMES: Readonly<Record<By, string>> = {
  model: 'Model',
  engine: 'Engine',
  account: 'Customer',
};

function columnsOf(by: By): Column<Row>[] {
  return [
    { name: NAMES[by], show: (row) => <GroupName row={row} by={by} /> },
    ...usageColumns<Row>(),
    money('Daily credit', ({ diem }) => diem, { isWide: true }),
    money('Charged', ({ usd }) => usd),
    money('Cost', ({ supplierUsd }) => supplierUsd, { isWide: true }),
    money('Margin', ({ marginUsd }) => marginUsd),
  ];
}

function GroupName({ row, by }: { row: Row; by: By }) {
  const { model, engine, accountId = '', accountName } = row;
  if (by === 'model') return <ModelName id={model ?? ''} />;
  if (by === 'engine') return <span class="text">{engine ?? 'not known'}</span>;
  return <AccountLink id={accountId} name={accountName ?? ''} />;
}

export function Revenue() {
  const { filters, change } = useAddress('from', 'to', 'by');
  const from = filters.from || dayBefore(USUAL_DAYS - 1);
  const to = filters.to || dayBefore(0);
  const by: By = filters.by === 'engine' || filters.by === 'account' ? filters.by : 'model';
  const range = { from, to };
  // Customers are too many for a chart.
  const chartBy = by === 'engine' ? 'engine' : 'model';
  const days = useCall<GroupsResponse>(`/admin/revenue${query({ ...range, by: chartBy })}`);
  const wanted = { ...range, by, limit: MOST_ROWS };
  const groups = useCall<GroupsResponse>(`/admin/usage${query(wanted)}`);
  return (
    <>
      <PageHead
        title="Revenue"
        lead="Charges, costs of suppliers and margins. Days are UTC. The margin is the charge minus the cost."
      >
        <div class="filters">
          <Days from={from} to={to} change={change} />
          <Segments
            legend="Group by"
            value={by}
            options={[
              ['model', 'Model'],
              ['engine', 'Engine'],
              ['account', 'Customer'],
            ]}
            onInput={(one) => change({ by: one })}
          />
        </div>
      </PageHead>
      <Loaded from={days}>{(data) => <RevenueFigures revenue={data} by={chartBy} />}</Loaded>
      <Loaded from={groups}>
        {({ data }) =>
          data.length > 0 && (
            <section>
              <div class="section-head">
                <h2>{by === 'account' ? 'Top customers' : `By ${by}`}</h2>
                <ExportCsv path="/admin/usage" filters={wanted} isSmall />
              </div>
              <Table
                label={`Revenue by ${by}`}
                columns={columnsOf(by)}
                rows={data}
                keyOf={(row) => row.model ?? row.accountId ?? row.engine ?? ''}
              />
            </section>
          )
        }
      </Loaded>
    </>
  );
}

function RevenueFigures({ revenue, by }: { revenue: GroupsResponse; by: 'model' | 'engine' }) {
  const measure = useSignal<Measure>('usd');
  const isRequests = measure.value === 'requests';
  const { totals, data, from, to } = revenue;
  const days = useMemo(() => daysBetween(from, to), [from, to]);
  const series = useMemo(() => {
    const rows = data.map(({ date = '', model = '', engine, ...sums }) => {
      return { ...sums, date, model: by === 'model' ? model : (engine ?? 'not known') };
    });
    return seriesByModel(rows, days, (row) => Number(row[measure.value] ?? 0));
  }, [data, days, by, measure.value]);
  const { usd, diem, supplierUsd, marginUsd, uncostedRequests } = totals;
  const decimals = usdDecimals([usd, diem, supplierUsd, marginUsd]);
  return (
    <>
      <dl class="tiles">
        <Tile name="Charged">
          <Usd value={usd} decimals={decimals} />
        </Tile>
        <Tile name="Paid with daily credit">
          <Usd value={diem} decimals={decimals} />
        </Tile>
        <Tile
          name="Cost of suppliers"
          note={
            supplierUsd === null
              ? 'no replica has cost prices'
              : uncostedRequests === 1
                ? '1 request without cost'
                : `${countText(uncostedRequests ?? 0)} requests without cost`
          }
        >
          <Usd value={supplierUsd} decimals={decimals} />
        </Tile>
        <Tile name="Margin">
          <Usd value={marginUsd} decimals={decimals} />
        </Tile>
        <Tile name="Requests">{countText(totals.requests)}</Tile>
        <Tile name="Errors" note={`${percentText(totals.errors, totals.requests)} of requests`}>
          {countText(totals.errors)}
        </Tile>
        <Tile name="Tokens" note="input and output">
          {roughCount(totals.promptTokens + totals.completionTokens)}
        </Tile>
      </dl>
      {data.length === 0 ? (
        <Empty title="No charges on these days" />
      ) : (
        <section>
          <div class="section-head">
            <h2>By day</h2>
            <Segments
              legend="Measure of the chart"
              value={measure.value}
              options={[
                ['usd', 'Charged'],
                ['supplierUsd', 'Cost'],
                ['marginUsd', 'Margin'],
                ['requests', 'Requests'],
              ]}
              onInput={(one) => (measure.value = one)}
            />
          </div>
          <DayChart
            label={`Revenue by day and ${by}`}
            days={days}
            series={series}
            isMoney={!isRequests}
          />
        </section>
      )}
    </>
  );
}
