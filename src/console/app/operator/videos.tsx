/** Video jobs of every account. */
import { useLocation } from 'preact-iso';
import { query } from '../api.ts';
import { bytesText, durationText, usdText } from '../format.ts';
import { Select } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, Id, State, Time } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, figure } from '../parts/table.tsx';
import { useCursorList } from '../cursor-list.ts';

interface VideoJob {
  readonly id: string;
  readonly accountId: string;
  readonly model: string;
  readonly state: string;
  readonly quoteUsd: string;
  readonly engine: string | null;
  readonly attempts: number;
  readonly progress: number | null;
  readonly createdAt: string;
  readonly executionMs: number | null;
  readonly failure: { readonly code: string; readonly message: string } | null;
  readonly mediaBytes: number | null;
}

const STATES = ['queued', 'running', 'completed', 'failed', 'cancelled'];
const TONES: Readonly<Record<string, string>> = {
  completed: 'good',
  failed: 'bad',
  cancelled: '',
  queued: 'warn',
  running: 'warn',
};

const COLUMNS: readonly Column<VideoJob>[] = [
  { name: 'Created', show: ({ createdAt }) => <Time iso={createdAt} /> },
  { name: 'Model', show: ({ model }) => <span class="model">{model}</span> },
  {
    name: 'State',
    show: ({ state, failure, progress }) => (
      <>
        <State value={state} tone={TONES[state.toLowerCase()] ?? ''} />
        {failure !== null && <span class="under text">{failure.message}</span>}
        {failure === null && progress !== null && progress > 0 && progress < 1 && (
          <Bar part={progress} whole={1} label="Progress" />
        )}
      </>
    ),
  },
  {
    name: 'Account',
    kind: 'wide',
    show: ({ accountId }) => (
      <a href={`/console/operator/accounts?open=${encodeURIComponent(accountId)}`}>
        <Id value={accountId} />
      </a>
    ),
  },
  aside(
    'Engine',
    ({ engine, attempts }) => `${engine ?? '–'}${attempts > 1 ? `, try ${attempts}` : ''}`,
  ),
  figure('Took', ({ executionMs }) => durationText(executionMs), 'wide'),
  figure('File', ({ mediaBytes }) => (mediaBytes === null ? '–' : bytesText(mediaBytes)), 'wide'),
  figure('Quote', ({ quoteUsd }) => usdText(quoteUsd)),
];

export function Videos() {
  const { query: given, path, route } = useLocation();
  const { state = '' } = given;
  const list = useCursorList<VideoJob>(`/admin/videos${query({ state })}`);
  return (
    <>
      <PageHead title="Video jobs" lead="Every job, newest first, with what its engine made of it.">
        <div class="filters">
          <Select
            label="State"
            value={state}
            options={[['', 'Any state'], ...STATES.map((one) => [one, one] as const)]}
            onInput={(one) => route(path + query({ state: one }))}
          />
        </div>
      </PageHead>
      <CursorTable
        label="Video jobs"
        list={list}
        empty={<Empty title={state === '' ? 'No video was ordered yet' : `No job is ${state}`} />}
        columns={COLUMNS}
        keyOf={({ id }) => id}
      />
    </>
  );
}
