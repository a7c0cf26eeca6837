/** The limits page: remaining rate limits by model, and rejected requests. */
import { roughCount, usdText } from '../format.ts';
import { BASE } from '../page-facts.ts';
import { KeyName, ModelName } from '../parts/names.tsx';
import { useRenewal } from '../live.ts';
import { PageHead } from '../parts/page-head.tsx';
import { LabelledBar, State, Tile, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, LoadedTable, Table } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { List, RateLimits, Rejection } from '../shapes.ts';

export function Limits() {
  const limits = useCall<{ data: RateLimits }>('/api_keys/rate_limits');
  const log = useCall<List<Rejection>>('/api_keys/rate_limits/log');
  useRenewal(() => {
    limits.reload();
    log.reload();
  });
  return (
    <>
      <PageHead
        title="Limits"
        lead="Rate limits by model, and what is left of them in the current minute and day."
      />
      <Loaded from={limits}>
        {({ data }) => (
          <>
            <dl class="tiles">
              <Tile name="Plan">{data.apiTier.id}</Tile>
              <Tile name="Can send requests" tone={data.accessPermitted ? 'good' : 'bad'}>
                {data.accessPermitted ? 'Yes' : 'No, too little credit'}
              </Tile>
              <Tile
                name="Balance"
                note={
                  data.balances.DIEM > 0
                    ? `and ${usdText(data.balances.DIEM)} daily credit`
                    : undefined
                }
              >
                <Usd value={data.balances.USD} />
              </Tile>
              <Tile name="Daily spend limits reset" note="00:00 UTC">
                <Time iso={data.nextEpochBegins} ago />
              </Tile>
            </dl>
            <section>
              <h2>By model and endpoint</h2>
              {data.rateLimits.length === 0 ? (
                <Empty title="No models are available" />
              ) : (
                <Table
                  label="Limits by model"
                  columns={MODEL_COLUMNS}
                  rows={data.rateLimits}
                  keyOf={({ apiModelId }) => apiModelId}
                />
              )}
            </section>
          </>
        )}
      </Loaded>
      <section>
        <h2>Rejected requests</h2>
        <LoadedTable
          label="Rejected requests"
          from={log}
          empty={<Empty title="No request was rejected by a limit" />}
          columns={REJECTION_COLUMNS}
          keyOf={(row) => `${row.timestamp} ${row.apiKeyId} ${row.modelId} ${row.rateLimitType}`}
        />
      </section>
    </>
  );
}

type ModelRates = RateLimits['rateLimits'][number];
type Rate = ModelRates['rateLimits'][number];

const MODEL_COLUMNS: readonly Column<ModelRates>[] = [
  {
    name: 'Model or endpoint',
    show: ({ apiModelId }) => <ModelName id={nameOf(apiModelId)} />,
  },
  { name: 'Requests / minute', kind: 'figure', show: (row) => <Left rate={rateOf(row, 'RPM')} /> },
  { name: 'Tokens / minute', kind: 'figure', show: (row) => <Left rate={rateOf(row, 'TPM')} /> },
  {
    name: 'Per 24 hours',
    kind: 'figure wide',
    show: (row) => <Left rate={rateOf(row, 'RPD')} />,
  },
];

/** The id of a model, or the path of an endpoint. Routes without an own limit share one. */
function nameOf(id: string): string {
  const endpoint = `endpoint:${BASE.slice(1)}`;
  if (!id.startsWith(endpoint)) return id;
  const path = id.slice(endpoint.length);
  return path === '/*' ? 'all other routes' : path;
}

function rateOf({ rateLimits }: ModelRates, type: string): Rate | undefined {
  return rateLimits.find((rate) => rate.type === type);
}

function Left({ rate }: { rate: Rate | undefined }) {
  if (rate === undefined) return <span class="soft">no limit</span>;
  const { amount, used, left, unit } = rate;
  return (
    <LabelledBar part={used} whole={amount} label="Used of the limit">
      {roughCount(left)} of {roughCount(amount)} left{unit === 'credits' && ' (credits)'}
    </LabelledBar>
  );
}

const LIMIT_NAMES: Readonly<Record<Rejection['rateLimitType'], string>> = {
  RPM: 'requests per minute',
  RPD: 'requests per day',
  TPM: 'tokens per minute',
  FAILED_REQUESTS: 'failed requests',
  UNSUPPORTED_FEATURE_REQUESTS: 'requests for unsupported features',
};

const REJECTION_COLUMNS: readonly Column<Rejection>[] = [
  { name: 'Time', show: ({ timestamp }) => <Time iso={timestamp} /> },
  {
    name: 'Model or endpoint',
    show: ({ modelId }) => <ModelName id={nameOf(modelId)} />,
  },
  {
    name: 'Limit',
    show: ({ rateLimitType }) => <State value={LIMIT_NAMES[rateLimitType]} tone="warn" />,
  },
  {
    name: 'Key',
    kind: 'wide',
    show: ({ apiKeyId }) =>
      apiKeyId === '' ? <span class="soft">wallet</span> : <KeyName id={apiKeyId} />,
  },
];
