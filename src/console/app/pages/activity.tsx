/** Every request, newest first; its filters are the query of the address, so a view can be shared. */
import { useSignal } from '@preact/signals';
import { useLocation, useRoute } from 'preact-iso';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../../../core/receipt-words.ts';
import { query } from '../api.ts';
import { today } from '../live.ts';
import { useKeyNames, useModels } from '../lookups.ts';
import { BASE } from '../page-facts.ts';
import { useCursorList } from '../cursor-list.ts';
import { type Choices, Days, SearchField, choices } from '../parts/filters.tsx';
import { Form, Select } from '../parts/form.tsx';
import { Empty, NothingFits } from '../parts/loaded.tsx';
import { CursorRows } from '../parts/table.tsx';
import { managesAccount } from '../session.ts';
import type { Receipt } from '../shapes.ts';
import { ActivityHead } from './activity-head.tsx';
import { useRenewal } from './overview.tsx';
import { ReceiptDrawer, RequestTable } from './request-table.tsx';
import { Tags } from './tags.tsx';

const USUAL_DAYS = 30;

export function Activity() {
  const { params } = useRoute();
  return params['view'] === 'tags' ? <Tags /> : <Requests />;
}

function Requests() {
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
      <ActivityHead
        lead="Every request, newest first, with what it was charged."
        at="/console/activity"
        csv={`${BASE}/usage/requests${search}${mark}format=csv`}
      />
      <Filters filters={filters} change={change} />
      <CursorRows list={list} empty={<Nothing isFiltered={isFiltered} clear={() => route(path)} />}>
        {(rows) => <RequestTable rows={rows} open={(id) => change({ open: id })} />}
      </CursorRows>
      {open !== undefined && <ReceiptDrawer id={open} close={() => route(path + search, true)} />}
    </>
  );
}

function Nothing({ isFiltered, clear }: { isFiltered: boolean; clear: () => void }) {
  if (isFiltered) return <NothingFits title="No request fits these filters" clear={clear} />;
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
  const { from = '', to = '', key = '', model = '', kind = '', status = '' } = filters;
  const keyChoices: Choices = [
    ['', 'All keys'],
    ...[...keys].map(([id, name]) => [id, name] as const),
  ];
  if (key !== '' && !keys.has(key)) (keyChoices as [string, string][]).push([key, key]);
  const names = models.map(({ id }) => id);
  if (model !== '' && !names.includes(model)) names.push(model);
  const isSet = Object.values(filters).some((value) => value !== '');
  const words = typed.value ?? filters['requestId'] ?? '';
  return (
    <Form class="filters" label="Filters" submit={() => change({ requestId: words.trim() })}>
      <Days from={from} to={to} usualDays={USUAL_DAYS} change={change} />
      {managesAccount.value && (
        <Select
          label="Key"
          value={key}
          options={keyChoices}
          onInput={(one) => change({ key: one })}
        />
      )}
      <Select
        label="Model"
        value={model}
        options={choices('All models', names)}
        onInput={(one) => change({ model: one })}
      />
      <Select
        label="Kind"
        value={kind}
        options={choices('All kinds', RECEIPT_KINDS)}
        onInput={(one) => change({ kind: one })}
      />
      <Select
        label="Status"
        value={status}
        options={choices('Any status', RECEIPT_STATUSES)}
        onInput={(one) => change({ status: one })}
      />
      <SearchField
        label="Request id"
        placeholder="x-request-id"
        value={words}
        onInput={(text) => (typed.value = text)}
      />
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
    </Form>
  );
}
