/** What is left of the limits now, and what they refused. */
import { roughCount, usdText } from '../format.ts';
import { useKeyNames } from '../lookups.ts';
import { BASE } from '../page-facts.ts';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, Id, State, Tile, Time } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { managesAccount } from '../session.ts';
import { useRenewal } from './overview.tsx';

interface Rate {
  readonly type: string;
  readonly amount: number;
  /** `credits` are those of blockchain RPC. */
  readonly unit: 'requests' | 'tokens' | 'credits';
  /** Of the running window. */
  readonly used: number;
  readonly left: number;
}

interface LimitsResponse {
  readonly data: {
    readonly accessPermitted: boolean;
    readonly apiTier: { readonly id: string };
    readonly balances: { readonly USD: number; readonly DIEM: number };
    readonly keyExpiration: string | null;
    readonly nextEpochBegins: string;
    readonly rateLimits: readonly {
      readonly apiModelId: string;
      readonly rateLimits: readonly Rate[];
    }[];
  };
}

interface Refusal {
  readonly apiKeyId: string;
  readonly modelId: string;
  readonly rateLimitType: string;
  readonly timestamp: string;
}

export function Limits() {
  const limits = useCall<LimitsResponse>('/api_keys/rate_limits');
  const log = useCall<{ data: readonly Refusal[] }>('/api_keys/rate_limits/log');
  useRenewal(() => {
    limits.reload();
    log.reload();
  });
  return (
    <>
      <PageHead
        title="Limits"
        lead="What may still be asked in the running minute and day, by model."
      />
      <Loaded from={limits}>
        {({ data }) => (
          <>
            <dl class="tiles">
              <Tile name="Plan">{data.apiTier.id}</Tile>
              <Tile name="May ask now" tone={data.accessPermitted ? 'good' : 'bad'}>
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
                {usdText(data.balances.USD)}
              </Tile>
              <Tile name="Daily caps start again" note="00:00 UTC">
                <Time iso={data.nextEpochBegins} ago />
              </Tile>
            </dl>
            <section>
              <h2>By model and endpoint</h2>
              {data.rateLimits.length === 0 ? (
                <Empty title="No model is on offer" />
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
        <h2>What limits refused</h2>
        <Loaded from={log} rows={3}>
          {({ data }) =>
            data.length === 0 ? <Empty title="Nothing was refused" /> : <Refusals rows={data} />
          }
        </Loaded>
      </section>
    </>
  );
}

type ModelRates = LimitsResponse['data']['rateLimits'][number];

const MODEL_COLUMNS: readonly Column<ModelRates>[] = [
  {
    name: 'Model or endpoint',
    show: ({ apiModelId }) => <span class="model">{nameOf(apiModelId)}</span>,
  },
  { name: 'Requests a minute', kind: 'figure', show: (row) => <Left rate={rateOf(row, 'RPM')} /> },
  { name: 'Tokens a minute', kind: 'figure', show: (row) => <Left rate={rateOf(row, 'TPM')} /> },
  {
    name: 'In 24 hours',
    kind: 'figure wide',
    show: (row) => <Left rate={rateOf(row, 'RPD')} />,
  },
];

/** An endpoint by its path; what has no limit of its own shares one. */
function nameOf(id: string): string {
  const endpoint = `endpoint:${BASE.slice(1)}`;
  if (!id.startsWith(endpoint)) return id;
  const path = id.slice(endpoint.length);
  return path === '/*' ? 'every other route' : path;
}

function rateOf({ rateLimits }: ModelRates, type: string): Rate | undefined {
  return rateLimits.find((rate) => rate.type === type);
}

function Left({ rate }: { rate: Rate | undefined }) {
  if (rate === undefined) return <span class="soft">no limit</span>;
  const { amount, used, left, unit } = rate;
  return (
    <span class="cap">
      <Bar part={used} whole={amount} label="Used of the limit" />
      <span class="num under">
        {roughCount(left)} of {roughCount(amount)} left{unit === 'credits' && ' (credits)'}
      </span>
    </span>
  );
}

const WORDS: Readonly<Record<string, string>> = {
  RPM: 'requests a minute',
  RPD: 'requests a day',
  TPM: 'tokens a minute',
  FAILED_REQUESTS: 'failed requests',
  UNSUPPORTED_FEATURE_REQUESTS: 'requests for what is not supported',
};

function Refusals({ rows }: { rows: readonly Refusal[] }) {
  const names = useKeyNames(managesAccount.value);
  const columns: readonly Column<Refusal>[] = [
    { name: 'Time', show: ({ timestamp }) => <Time iso={timestamp} /> },
    { name: 'Asked for', show: ({ modelId }) => <span class="model">{nameOf(modelId)}</span> },
    {
      name: 'Limit',
      show: ({ rateLimitType }) => (
        <State value={WORDS[rateLimitType] ?? rateLimitType} tone="warn" />
      ),
    },
    {
      name: 'Key',
      kind: 'wide',
      show: ({ apiKeyId }) =>
        apiKeyId === '' ? (
          <span class="soft">wallet</span>
        ) : (
          <span class="text">{names.get(apiKeyId) ?? <Id value={apiKeyId} />}</span>
        ),
    },
  ];
  return (
    <Table
      label="Refusals"
      columns={columns}
      rows={rows}
      keyOf={(row) => `${row.timestamp} ${row.apiKeyId} ${row.modelId} ${row.rateLimitType}`}
    />
  );
}
