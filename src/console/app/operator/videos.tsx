/** The page of video jobs of all accounts. */
import { useAddress } from '../address.ts';
import { bytesText, durationText } from '../format.ts';
import { choices } from '../parts/filters.tsx';
import { Select } from '../parts/form.tsx';
import { AccountLink, ModelName } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, State, Time } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, figure, money } from '../parts/table.tsx';
import { useCursorList } from '../cursor-list.ts';
import type { VideosResponse } from '../shapes.ts';

type VideoJob = VideosResponse['data'][number];

const STATES = ['queued', 'running', 'completed', 'failed', 'cancelled'];

const COLUMNS: readonly Column<VideoJob>[] = [
  { name: 'Created', show: ({ createdAt }) => <Time iso={createdAt} /> },
  { name: 'Model', show: ({ model }) => <ModelName id={model} /> },
  {
    name: 'State',
    show: ({ state, failure, progress }) => (
      <>
        <State value={state} />
        {failure !== null && <span class="under text">{failure.message}</span>}
        {failure === null && progress > 0 && progress < 1 && (
          <Bar part={progress} whole={1} label="Progress" />
        )}
      </>
    ),
  },
  {
    name: 'Account',
    kind: 'wide',
    show: ({ accountId, accountName }) => <AccountLink id={accountId} name={accountName} />,
  },
  aside(
    'Engine',
    ({ engine, attempts }) => `${engine ?? '–'}${attempts > 1 ? `, attempt ${attempts}` : ''}`,
  ),
  figure('Duration', ({ executionMs }) => durationText(executionMs), 'wide'),
  figure('File', ({ mediaBytes }) => (mediaBytes === 0 ? '–' : bytesText(mediaBytes)), 'wide'),
  money('Quote', ({ quoteUsd }) => quoteUsd),
];

export function Videos() {
  const { filters, search, change } = useAddress('state');
  const { state } = filters;
  const list = useCursorList<VideoJob>(`/admin/videos${search}`);
  return (
    <>
      <PageHead title="Video jobs" lead="Video jobs of all accounts, newest first.">
        <div class="filters">
          <Select
            label="State"
            value={state}
            options={choices('Any state', STATES)}
            onInput={(one) => change({ state: one })}
          />
        </div>
      </PageHead>
      <CursorTable
        label="Video jobs"
        list={list}
        empty={<Empty title={state === '' ? 'No video jobs yet' : `No job is ${state}`} />}
        columns={COLUMNS}
        keyOf={({ id }) => id}
      />
    </>
  );
}
