/** The overview page: balance, costs of today and this month, usage chart and latest requests. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { query } from '../api.ts';
import { countText, dayBefore, percentText, usdDecimals, usdText } from '../format.ts';
import { balance, today, useRenewal } from '../live.ts';
import { DayChart } from '../parts/chart.tsx';
import { Segments } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Tile, Usd } from '../parts/values.tsx';
import { Empty, Loaded, Notice } from '../parts/loaded.tsx';
import { useCall } from '../resource.ts';
import { can, isOperator } from '../session.ts';
import type { Balance, Days, EnginesResponse, Page, Receipt } from '../shapes.ts';
import { daysBetween, seriesByModel } from '../usage-series.ts';
import { LoadedTable } from '../parts/table.tsx';
import { ReceiptDrawer, requestTable } from './request-table.tsx';

const CHART_DAYS = 30;
const LAST_REQUESTS = 8;

type Measure = 'cost' | 'requests' | 'tokens' | 'errors';

const MEASURES: readonly (readonly [Measure, string])[] = [
  ['cost', 'Cost'],
  ['requests', 'Requests'],
  ['tokens', 'Tokens'],
  ['errors', 'Errors'],
];

export function Overview() {
  const to = dayBefore(0);
  const monthStart = `${to.slice(0, 7)}-01`;
  const chartStart = dayBefore(CHART_DAYS - 1);
  const from = monthStart < chartStart ? monthStart : chartStart;
  const funds = useCall<Balance>('/billing/balance');
  const days = useCall<Days>(`/usage/days${query({ from, to })}`);
  const latest = useCall<Page<Receipt>>(`/usage/requests${query({ limit: LAST_REQUESTS })}`);
  const opened = useSignal<string | undefined>(undefined);
  useRenewal(() => {
    days.reload();
    latest.reload();
  });
  return (
    <>
      <PageHead title="Overview" lead="Balance, costs and latest requests. Days are UTC." />
      {isOperator.value && <FirstEngine />}
      <Loaded from={{ ...funds, data: balance.value ?? funds.data }}>
        {(data) => <Figures funds={data} days={days.data} monthStart={monthStart} />}
      </Loaded>
      <Loaded from={days}>{(data) => <UsageChart data={data} from={chartStart} />}</Loaded>
      <section>
        <div class="section-head">
          <h2>Latest requests</h2>
          <a href="/console/activity">All activity</a>
        </div>
        <LoadedTable
          label="Requests"
          from={latest}
          empty={
            <Empty title="No requests yet">
              <p>
                {can('use') && (
                  <>
                    <a href="/console/playground">Try a model in the playground</a>, or{' '}
                  </>
                )}
                {can('develop') ? <a href="/console/keys">create a key</a> : 'take your key'} and
                send a request with the sample on <a href="/">the welcome page</a>. Requests appear
                here when they complete.
              </p>
            </Empty>
          }
          {...requestTable(({ requestId }) => (opened.value = requestId))}
        />
      </section>
      {opened.value !== undefined && (
        <ReceiptDrawer id={opened.value} close={() => (opened.value = undefined)} />
      )}
    </>
  );
}

/** For the operator of a server that sells no configured model. */
function FirstEngine() {
  const engines = useCall<EnginesResponse>('/admin/engines');
  if (engines.data?.engines.some(({ source }) => source === 'configured') !== false) return null;
  return (
    <Notice>
      <p>
        No engine is configured yet. <a href="/console/operator/engines?open=new">Add an engine</a>:
        choose a provider or a server, test it, choose models and prices, and send the first paid
        call.
      </p>
    </Notice>
  );
}

interface FiguresProps {
  readonly funds: Balance;
  readonly days: Days | undefined;
  readonly monthStart: string;
}

function Figures({ funds, days, monthStart }: FiguresProps) {
  const now = today.value;
  const month = (days?.data ?? []).filter(({ date }) => date >= monthStart);
  const monthUsd = month.reduce((sum, { cost }) => sum + cost.usd, 0);
  const monthRequests = month.reduce((sum, { requests }) => sum + requests, 0);
  const monthErrors = month.reduce((sum, { errors }) => sum + errors, 0);
  const { available, held, balances, diemEpochAllocation } = funds;
  const isHolding = held.usd > 0 || held.diem > 0;
  const todayUsd = now?.cost.usd;
  const onHold = held.usd + held.diem;
  const decimals = usdDecimals([balances.usd, todayUsd, monthUsd, onHold, balances.diem]);
  return (
    <dl class="tiles">
      <Tile
        name="Balance"
        tone={funds.canConsume ? undefined : 'bad'}
        note={
          funds.canConsume ? (
            `${usdText(available.usd, decimals)} can be spent now`
          ) : (
            <a href="/console/credit">Too low for a request. Add credit</a>
          )
        }
      >
        <Usd value={balances.usd} decimals={decimals} />
      </Tile>
      {diemEpochAllocation > 0 && (
        <Tile
          name="Daily credit left"
          note={`of ${usdText(diemEpochAllocation)}, renewed at 00:00 UTC`}
        >
          <Usd value={balances.diem} decimals={decimals} />
        </Tile>
      )}
      <Tile name="Today" note={now === undefined ? ' ' : plural(now.requests, 'request')}>
        <Usd value={todayUsd} decimals={decimals} />
      </Tile>
      <Tile name="This month" note={plural(monthRequests, 'request')}>
        <Usd value={days && monthUsd} decimals={decimals} />
      </Tile>
      <Tile
        name="Errors this month"
        note={monthRequests === 0 ? ' ' : `${percentText(monthErrors, monthRequests)} of requests`}
      >
        {days === undefined ? '–' : countText(monthErrors)}
      </Tile>
      <Tile name="On hold" note={isHolding ? 'for running requests' : 'no request is running'}>
        <Usd value={onHold} decimals={decimals} />
      </Tile>
    </dl>
  );
}

function plural(count: number, word: string): string {
  return `${countText(count)} ${word}${count === 1 ? '' : 's'}`;
}

const VALUES: Readonly<Record<Measure, (row: Days['data'][number]) => number>> = {
  cost: ({ cost }) => cost.usd + cost.diem,
  requests: ({ requests }) => requests,
  tokens: ({ promptTokens, completionTokens }) => promptTokens + completionTokens,
  errors: ({ errors }) => errors,
};

function UsageChart({ data, from }: { data: Days; from: string }) {
  const measure = useSignal<Measure>('cost');
  const { value } = measure;
  const days = useMemo(() => daysBetween(from, data.to), [from, data.to]);
  const series = useMemo(() => seriesByModel(data.data, days, VALUES[value]), [data, days, value]);
  return (
    <section>
      <div class="section-head">
        <h2>The last {CHART_DAYS} days, by model</h2>
        <Segments
          legend="Measure of the chart"
          value={value}
          options={MEASURES}
          onInput={(one) => (measure.value = one)}
        />
      </div>
      {series.length === 0 ? (
        <Empty title="No usage on these days" />
      ) : (
        <DayChart
          label={`${value} by day and model`}
          days={days}
          series={series}
          isMoney={value === 'cost'}
        />
      )}
    </section>
  );
}
