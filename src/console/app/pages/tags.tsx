/** The tags page: usage by tag and value, with the days of one value in a drawer. */
import { useSignal } from '@preact/signals';
import type { ComponentProps } from 'preact';
import { useMemo } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { query } from '../api.ts';
import { dayBefore } from '../format.ts';
import { useModels } from '../lookups.ts';
import { DayChart } from '../parts/chart.tsx';
import { CodeTabs } from '../parts/code.tsx';
import { Days, USUAL_DAYS, choices, modelChoices } from '../parts/filters.tsx';
import { Select } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { useRenewal } from '../live.ts';
import { PageHead } from '../parts/page-head.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { Count, ExportCsv, Facts, OpenButton, Usd } from '../parts/values.tsx';
import { Empty, Loaded, NothingMatches } from '../parts/loaded.tsx';
import { type Column, LoadedTable, money } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { chatSamples } from '../code-samples.ts';
import type { Sums, TagRow, TagSums, UsageDays } from '../shapes.ts';
import { usageColumns } from '../usage-columns.tsx';
import { daysBetween, seriesByModel } from '../usage-series.ts';

const VIEWS = [
  ['/console/activity', 'Requests'],
  ['/console/activity/tags', 'By tag'],
] as const;

interface ActivityHeadProps extends ComponentProps<typeof ExportCsv> {
  readonly lead: string;
  readonly at: (typeof VIEWS)[number][0];
}

/** The head of both views of the activity page. */
export function ActivityHead({ lead, at, ...list }: ActivityHeadProps) {
  return (
    <>
      <PageHead title="Activity" lead={lead}>
        <ExportCsv {...list} />
      </PageHead>
      <Tabs label="Views" tabs={VIEWS} at={at} />
    </>
  );
}

export function Tags() {
  const { filters, search, isFiltered, change, clear } = useAddress('from', 'to', 'tag', 'model');
  const { from, to, tag, model } = filters;
  const sums = useCall<TagSums>(`/usage/tags${search}`);
  // Options of the tag filter; without one the list has all tags.
  const isNarrow = tag !== '' || model !== '';
  const all = useCall<TagSums>(isNarrow ? `/usage/tags${query({ from, to })}` : undefined);
  const opened = useSignal<TagRow | undefined>(undefined);
  const models = useModels();
  useRenewal(sums.reload);
  const { data: rows = [] } = (isNarrow ? all : sums).data ?? {};
  const names = new Set([...rows.map((row) => row.tag), tag].filter(Boolean));
  return (
    <>
      <ActivityHead
        lead="Usage by tag, the most expensive value first. Days are UTC."
        at="/console/activity/tags"
        path="/usage/tags"
        filters={filters}
      />
      <div class="filters">
        <Days from={from} to={to} change={change} />
        <Select
          label="Tag"
          value={tag}
          options={choices('All tags', [...names])}
          onInput={(one) => change({ tag: one })}
        />
        <Select
          label="Model"
          value={model}
          options={modelChoices(models)}
          onInput={(one) => change({ model: one })}
        />
      </div>
      <LoadedTable
        label="Usage by tag"
        from={sums}
        empty={<NoTags isFiltered={isFiltered} clear={clear} />}
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
  if (isFiltered) {
    return <NothingMatches title="No tagged request matches these filters" clear={clear} />;
  }
  return (
    <>
      <Empty title="No tagged requests on these days">
        <p>
          Add tags such as a user or a project to the metadata of requests. This page then shows the
          usage of each value, and a <a href="/console/budgets">budget</a> can limit it.
        </p>
      </Empty>
      <section>
        <h2>Example: a request with two tags</h2>
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
          <OpenButton isStrong open={() => open(row)}>
            {row.value === '' ? '(empty)' : row.value}
          </OpenButton>
          <span class="under text">{row.tag}</span>
        </>
      ),
    },
    ...usageColumns<TagRow>(),
    money('Cost', costOf),
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

/** The usage of one value by day. */
function TagDrawer({ row, filters, close }: TagDrawerProps) {
  const { tag, value } = row;
  const from = filters.from || dayBefore(USUAL_DAYS - 1);
  const to = filters.to || dayBefore(0);
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
              <span class="figure num">
                <Usd value={costOf(totals)} />
              </span>
            </p>
            <TagChart label={`Cost of ${value} by day and model`} days={days} rows={data} />
            <section>
              <Facts
                of={[
                  ['Requests', <Count value={totals.requests} />],
                  ['Errors', <Count value={totals.errors} />],
                  ['Input tokens', <Count value={totals.promptTokens} />],
                  ['Output tokens', <Count value={totals.completionTokens} />],
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
  return <DayChart label={label} days={days} series={series} isMoney />;
}
