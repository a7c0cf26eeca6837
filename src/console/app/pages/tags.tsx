/** What was used by tag and value: who and what the requests of an account were for. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useMemo } from 'preact/hooks';
import { query } from '../api.ts';
import { countText, dayBefore, roughUsd, usdText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { BASE } from '../page-facts.ts';
import { DayChart } from '../parts/chart.tsx';
import { CodeTabs } from '../parts/code.tsx';
import { Days, choices } from '../parts/filters.tsx';
import { Select } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Facts } from '../parts/values.tsx';
import { Empty, Loaded, NothingFits } from '../parts/loaded.tsx';
import { type Column, LoadedTable, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { chatSamples } from '../samples.ts';
import type { Sums, TagRow, TagSums } from '../shapes.ts';
import { usageColumns } from '../usage-columns.tsx';
import { daysBetween, seriesByModel } from '../usage-series.ts';
import { ActivityHead } from './activity-head.tsx';
import { useRenewal } from './overview.tsx';

const USUAL_DAYS = 30;

interface UsageDays {
  readonly totals: Sums;
  readonly data: readonly (Sums & { readonly date: string; readonly model: string })[];
}

export function Tags() {
  const { query: given, path, route } = useLocation();
  const { from = '', to = '', tag = '', model = '' } = given;
  const filters = { from, to, tag, model };
  const change = (changes: Record<string, string>): void =>
    route(path + query({ ...filters, ...changes }));
  const search = query(filters);
  const sums = useCall<TagSums>(`/usage/tags${search}`);
  // Their names, whichever is chosen.
  const all = useCall<TagSums>(`/usage/tags${query({ from, to })}`);
  const opened = useSignal<TagRow | undefined>(undefined);
  const models = useModels();
  useRenewal(sums.reload);
  const names = [...new Set(all.data?.data.map((row) => row.tag)), ...(tag === '' ? [] : [tag])];
  const mark = search === '' ? '?' : '&';
  return (
    <>
      <ActivityHead
        lead="What was used by the tags of requests, the dearest first. Days are UTC."
        at="/console/activity/tags"
        csv={`${BASE}/usage/tags${search}${mark}format=csv`}
      />
      <div class="filters">
        <Days from={from} to={to} usualDays={USUAL_DAYS} change={change} />
        <Select
          label="Tag"
          value={tag}
          options={choices('All tags', [...new Set(names)])}
          onInput={(one) => change({ tag: one })}
        />
        <Select
          label="Model"
          value={model}
          options={choices(
            'All models',
            models.map(({ id }) => id),
          )}
          onInput={(one) => change({ model: one })}
        />
      </div>
      <LoadedTable
        label="Usage by tag"
        from={sums}
        empty={<NoTags isFiltered={search !== ''} clear={() => route(path)} />}
        columns={columnsOf((row) => (opened.value = row))}
        keyOf={(row) => JSON.stringify([row.tag, row.value])}
        open={(row) => (opened.value = row)}
      />
      {opened.value !== undefined && (
        <TagDrawer
          row={opened.value}
          filters={{ from, to, model }}
          close={() => (opened.value = undefined)}
        />
      )}
    </>
  );
}

function NoTags({ isFiltered, clear }: { isFiltered: boolean; clear: () => void }) {
  if (isFiltered) return <NothingFits title="No tagged request fits these filters" clear={clear} />;
  return (
    <>
      <Empty title="No request was tagged in these days">
        <p>
          Tag requests with what they are for: a user, a project, a run. Their sums appear here, and
          a <a href="/console/budgets">budget</a> can bound each value.
        </p>
      </Empty>
      <section>
        <h2>A request for a user and a project</h2>
        <CodeTabs
          samples={chatSamples({
            model: 'default',
            messages: [{ role: 'user', content: 'Hello' }],
            metadata: { user: 'anna', project: 'search' },
          })}
        />
      </section>
    </>
  );
}

function columnsOf(open: (row: TagRow) => void): readonly Column<TagRow>[] {
  return [
    {
      name: 'Tag and value',
      show: (row) => (
        <>
          <button type="button" class="link strong text" onClick={() => open(row)}>
            {row.value === '' ? '(empty)' : row.value}
          </button>
          <span class="under text">{row.tag}</span>
        </>
      ),
    },
    ...usageColumns<TagRow>(),
    figure('Cost', (row) => usdText(costOf(row))),
  ];
}

function costOf({ cost }: Sums): number {
  return cost.usd + cost.diem;
}

interface TagDrawerProps {
  readonly row: TagRow;
  readonly filters: Readonly<Record<'from' | 'to' | 'model', string>>;
  readonly close: () => void;
}

/** The days of one value. */
function TagDrawer({ row, filters, close }: TagDrawerProps) {
  const { tag, value } = row;
  const from = filters.from === '' ? dayBefore(USUAL_DAYS - 1) : filters.from;
  const to = filters.to === '' ? dayBefore(0) : filters.to;
  const usage = useCall<UsageDays>(
    `/usage${query({ ...filters, from, to, tag })}&tagValue=${encodeURIComponent(value)}`,
  );
  const days = useMemo(() => daysBetween(from, to), [from, to]);
  return (
    <Overlay kind="drawer" title={`${tag}: ${value}`} close={close}>
      <Loaded from={usage}>
        {({ totals, data }) => (
          <>
            <p class="total">
              <span class="figure num">{usdText(costOf(totals))}</span>
            </p>
            <TagChart label={`Cost of ${value} by day and model`} days={days} rows={data} />
            <section>
              <Facts
                of={[
                  ['Requests', <span class="num">{countText(totals.requests)}</span>],
                  ['Errors', <span class="num">{countText(totals.errors)}</span>],
                  ['Tokens in', <span class="num">{countText(totals.promptTokens)}</span>],
                  ['Tokens out', <span class="num">{countText(totals.completionTokens)}</span>],
                ]}
              />
            </section>
          </>
        )}
      </Loaded>
    </Overlay>
  );
}

interface TagChartProps {
  readonly label: string;
  readonly days: readonly string[];
  readonly rows: UsageDays['data'];
}

function TagChart({ label, days, rows }: TagChartProps) {
  const series = useMemo(() => seriesByModel(rows, days, costOf), [rows, days]);
  return (
    <DayChart
      label={label}
      days={days}
      series={series}
      rough={roughUsd}
      exact={(one) => usdText(one)}
    />
  );
}
