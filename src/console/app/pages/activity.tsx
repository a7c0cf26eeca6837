/** Every request, newest first; its filters are the query of the address, so a view can be shared. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useId } from 'preact/hooks';
import { query } from '../api.ts';
import { dayBefore } from '../format.ts';
import { today } from '../live.ts';
import { useKeyNames, useModels } from '../lookups.ts';
import { BASE } from '../page-facts.ts';
import { useCursorList } from '../pages-list.ts';
import { Select } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Empty, Failure, Loaded } from '../parts/states.tsx';
import { More } from '../parts/table.tsx';
import { managesAccount } from '../session.ts';
import type { Receipt } from '../shapes.ts';
import { useRenewal } from './overview.tsx';
import { ReceiptDrawer, RequestTable } from './request-table.tsx';

const KINDS = [
  'chat',
  'completions',
  'embeddings',
  'rpc',
  'cutout',
  'image',
  'image_edit',
  'speech',
  'moderation',
  'rerank',
  'translation',
  'video',
  'transcription',
];
const STATUSES = ['completed', 'aborted', 'failed', 'expired'];
const USUAL_DAYS = 30;

type Choices = readonly (readonly [string, string])[];

function choices(any: string, values: readonly string[]): Choices {
  return [['', any], ...values.map((value) => [value, value] as const)];
}

export function Activity() {
  const { query: given, path, route } = useLocation();
  const {
    from = '',
    to = '',
    key = '',
    model = '',
    kind = '',
    status = '',
    requestId = '',
    open,
  } = given;
  const filters = { from, to, key, model, kind, status, requestId };
  const change = (changes: Record<string, string | undefined>): void =>
    route(path + query({ ...filters, ...changes }));
  const search = query(filters);
  const list = useCursorList<Receipt>(`/usage/requests${search}`);
  const isFiltered = search !== '';
  useRenewal(() => list.first.reload());
  const mark = search === '' ? '?' : '&';
  return (
    <>
      <PageHead title="Activity" lead="Every request, newest first, with what it was charged.">
        <a class="button" href={`${BASE}/usage/requests${search}${mark}format=csv`} download>
          Export CSV
        </a>
      </PageHead>
      <Filters filters={filters} change={change} />
      {list.first.error === undefined && list.moreError !== undefined && (
        <Failure error={list.moreError} />
      )}
      <Loaded from={list.first} rows={12}>
        {() =>
          list.rows.length === 0 ? (
            <Nothing isFiltered={isFiltered} clear={() => route(path)} />
          ) : (
            <>
              <RequestTable rows={list.rows} open={(id) => change({ open: id })} />
              <More isLoading={list.isLoadingMore} load={list.more} />
            </>
          )
        }
      </Loaded>
      {open !== undefined && <ReceiptDrawer id={open} close={() => route(path + search, true)} />}
    </>
  );
}

function Nothing({ isFiltered, clear }: { isFiltered: boolean; clear: () => void }) {
  if (isFiltered) {
    return (
      <Empty title="No request fits these filters">
        <button type="button" onClick={clear}>
          Show all
        </button>
      </Empty>
    );
  }
  const quiet = (today.value?.requests ?? 0) === 0;
  return (
    <Empty title={`No request in the last ${USUAL_DAYS} days`}>
      {quiet && (
        <p>
          <a href="/console/playground">Try a model in the playground</a>; its request appears here.
        </p>
      )}
    </Empty>
  );
}

interface FiltersProps {
  readonly filters: Readonly<Record<string, string>>;
  readonly change: (changes: Record<string, string | undefined>) => void;
}

function Filters({ filters, change }: FiltersProps) {
  const models = useModels();
  const keys = useKeyNames(managesAccount.value);
  const typed = useSignal<string | undefined>(undefined);
  const requestId = useId();
  const { from = '', to = '', key = '', model = '', kind = '', status = '' } = filters;
  const keyChoices: Choices = [
    ['', 'All keys'],
    ...[...keys].map(([id, name]) => [id, name] as const),
  ];
  if (key !== '' && !keys.has(key)) (keyChoices as [string, string][]).push([key, key]);
  const names = models.map(({ id }) => id);
  if (model !== '' && !names.includes(model)) names.push(model);
  const isSet = Object.values(filters).some((value) => value !== '');
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        change({ requestId: (typed.value ?? filters['requestId'] ?? '').trim() });
      }}
    >
      <Day
        label="From"
        value={from}
        usual={dayBefore(USUAL_DAYS - 1)}
        onChange={(day) => change({ from: day })}
      />
      <Day label="To" value={to} usual={dayBefore(0)} onChange={(day) => change({ to: day })} />
      {managesAccount.value && (
        <Select
          isCompact
          label="Key"
          value={key}
          options={keyChoices}
          onChange={(one) => change({ key: one })}
        />
      )}
      <Select
        isCompact
        label="Model"
        value={model}
        options={choices('All models', names)}
        onChange={(one) => change({ model: one })}
      />
      <Select
        isCompact
        label="Kind"
        value={kind}
        options={choices('All kinds', KINDS)}
        onChange={(one) => change({ kind: one })}
      />
      <Select
        isCompact
        label="Status"
        value={status}
        options={choices('Any status', STATUSES)}
        onChange={(one) => change({ status: one })}
      />
      <div class="filter grow">
        <label for={requestId}>Request id</label>
        <input
          id={requestId}
          type="search"
          spellcheck={false}
          placeholder="x-request-id"
          value={typed.value ?? filters['requestId'] ?? ''}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
      </div>
      {isSet && (
        <button
          type="button"
          class="small"
          onClick={() => {
            typed.value = '';
            change({ from: '', to: '', key: '', model: '', kind: '', status: '', requestId: '' });
          }}
        >
          Clear
        </button>
      )}
    </form>
  );
}

interface DayProps {
  readonly label: string;
  readonly value: string;
  readonly usual: string;
  readonly onChange: (day: string) => void;
}

export function Day({ label, value, usual, onChange }: DayProps) {
  const id = useId();
  return (
    <div class="filter">
      <label for={id}>{label} (UTC)</label>
      <input
        id={id}
        type="date"
        value={value === '' ? usual : value}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    </div>
  );
}
