/** The requests of all accounts: sold requests, and failed or retried requests, with filters. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../../../core/receipt-words.ts';
import { useAddress } from '../address.ts';
import { countText, durationText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { BASE } from '../page-facts.ts';
import { type CursorList, useCursorList } from '../cursor-list.ts';
import { Days, SearchField, choices, modelChoices } from '../parts/filters.tsx';
import { Form, Select } from '../parts/form.tsx';
import { AccountLink, ModelName } from '../parts/names.tsx';
import { Empty, NothingMatches } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { type Column, CursorTable, aside, figure, money } from '../parts/table.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { NONE, OpenButton, State, Time } from '../parts/values.tsx';
import { useCall } from '../resource.ts';
import type { EnginesResponse, FailureItem, RequestItem } from '../shapes.ts';
import { RequestDrawer } from './request-drawer.tsx';

const VIEWS = [
  ['/console/operator/requests', 'Sold'],
  ['/console/operator/failures', 'Failed and retried'],
] as const;
const LIVE_MS = 3_000;

const REQUEST_FILTERS = [
  'from',
  'to',
  'account',
  'key',
  'model',
  'engine',
  'kind',
  'status',
  'minUsd',
  'tag',
  'tagValue',
] as const;

export function Requests() {
  const address = useAddress(...REQUEST_FILTERS);
  const { filters, search, open, show, close, change } = address;
  const list = useCursorList<RequestItem>(`/admin/requests${search}`);
  const engines = useEngineNames();
  const models = useModels();
  const columns: readonly Column<RequestItem>[] = [
    timeColumn(show),
    accountColumn(),
    {
      name: 'Model',
      show: ({ model, status }) => (
        <>
          <ModelName id={model} />
          {status !== 'completed' && (
            <span class="narrow">
              <State value={status} />
            </span>
          )}
        </>
      ),
    },
    aside('Engine', ({ router }) => router ?? NONE),
    { name: 'Status', kind: 'wide', show: ({ status }) => <State value={status} /> },
    figure('Tokens', ({ tokens }) => countText(tokens.prompt + tokens.completion), 'wide'),
    figure('Duration', ({ latencyMs }) => durationText(latencyMs), 'wide'),
    money('Supplier', ({ supplierUsd }) => supplierUsd, { isWide: true }),
    money('Cost', ({ cost }) => cost.usd + cost.diem),
  ];
  return (
    <>
      <PageHead title="Requests" lead="The receipts of all accounts, newest first. Days are UTC.">
        <Live list={list} />
        <a
          class="button"
          href={`${BASE}/admin/requests${search === '' ? '?' : `${search}&`}format=csv`}
          download
        >
          Export CSV
        </a>
      </PageHead>
      <Tabs label="Views" tabs={VIEWS} at={VIEWS[0][0]} />
      <TextFilters
        key={search}
        values={filters}
        fields={TEXT_FILTERS}
        apply={change}
        openRequest={show}
        clear={address.isFiltered ? address.clear : undefined}
      >
        <Days from={filters.from} to={filters.to} change={change} />
        <Select
          label="Model"
          value={filters.model}
          options={modelChoices(models)}
          onInput={(model) => change({ model })}
        />
        <Select
          label="Engine"
          value={filters.engine}
          options={choices('All engines', engines)}
          onInput={(engine) => change({ engine })}
        />
        <Select
          label="Kind"
          value={filters.kind}
          options={choices('All kinds', RECEIPT_KINDS)}
          onInput={(kind) => change({ kind })}
        />
        <Select
          label="Status"
          value={filters.status}
          options={choices('Any status', RECEIPT_STATUSES)}
          onInput={(status) => change({ status })}
        />
      </TextFilters>
      <CursorTable
        label="Requests"
        list={list}
        empty={<NoRows list={list} clear={address.isFiltered ? address.clear : undefined} />}
        columns={columns}
        keyOf={({ requestId }) => requestId}
        open={({ requestId }) => show(requestId)}
      />
      {open !== undefined && <RequestDrawer id={open} close={close} />}
    </>
  );
}

export function Failures() {
  const address = useAddress('from', 'to', 'account', 'model', 'engine', 'code');
  const { filters, search, open, show, close, change } = address;
  const list = useCursorList<FailureItem>(`/admin/failures${search}`);
  const engines = useEngineNames();
  const models = useModels();
  const columns: readonly Column<FailureItem>[] = [
    timeColumn(show),
    accountColumn(),
    {
      name: 'Response',
      show: ({ status, code, message }) => (
        <>
          <State
            value={code ?? (message === null ? 'retried' : 'disconnected')}
            tone={status >= 500 ? 'bad' : message === null ? 'good' : 'warn'}
          />
          {message !== null && <span class="under text">{message}</span>}
        </>
      ),
    },
    aside('Route', ({ route }) => route),
    aside('Model', ({ model }) => (model === null ? NONE : <ModelName id={model} />)),
    aside('Engine', ({ engine }) => engine ?? NONE),
    figure('Tries', ({ tries }) => countText(tries), 'wide'),
    figure('Status', ({ status }) => String(status)),
  ];
  return (
    <>
      <PageHead
        title="Failed requests"
        lead="Requests of all accounts that failed, were tried more than once, or whose caller disconnected."
      >
        <Live list={list} />
      </PageHead>
      <Tabs label="Views" tabs={VIEWS} at={VIEWS[1][0]} />
      <TextFilters
        key={search}
        values={filters}
        fields={FAILURE_TEXT_FILTERS}
        apply={change}
        openRequest={show}
        clear={address.isFiltered ? address.clear : undefined}
      >
        <Days from={filters.from} to={filters.to} change={change} />
        <Select
          label="Model"
          value={filters.model}
          options={modelChoices(models)}
          onInput={(model) => change({ model })}
        />
        <Select
          label="Engine"
          value={filters.engine}
          options={choices('All engines', engines)}
          onInput={(engine) => change({ engine })}
        />
      </TextFilters>
      <CursorTable
        label="Failed requests"
        list={list}
        empty={<NoRows list={list} clear={address.isFiltered ? address.clear : undefined} />}
        columns={columns}
        keyOf={({ requestId }) => requestId}
        open={({ requestId }) => show(requestId)}
      />
      {open !== undefined && <RequestDrawer id={open} close={close} />}
    </>
  );
}

interface Row {
  readonly requestId: string;
  readonly createdAt: string;
  readonly accountId: string | null;
  readonly accountName: string;
}

function timeColumn<T extends Row>(show: (id: string) => void): Column<T> {
  return {
    name: 'Time',
    show: ({ requestId, createdAt }) => (
      <OpenButton open={() => show(requestId)}>
        <Time iso={createdAt} />
      </OpenButton>
    ),
  };
}

function accountColumn<T extends Row>(): Column<T> {
  return aside('Account', ({ accountId, accountName }) => (
    <AccountLink id={accountId} name={accountName} />
  ));
}

function useEngineNames(): readonly string[] {
  const engines = useCall<EnginesResponse>('/admin/engines');
  return engines.data?.engines.map(({ id }) => id) ?? [];
}

/** Reloads the first page every few seconds while it is switched on. */
function Live<T>({ list }: { list: CursorList<T> }) {
  const isOn = useSignal(false);
  const { reload } = list.first;
  useEffect(() => {
    if (!isOn.value) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, LIVE_MS);
    return () => clearInterval(timer);
  }, [isOn.value, reload]);
  return (
    <button type="button" aria-pressed={isOn.value} onClick={() => (isOn.value = !isOn.value)}>
      {isOn.value ? 'Live: on' : 'Live: off'}
    </button>
  );
}

function NoRows<T>({ list, clear }: { list: CursorList<T>; clear: (() => void) | undefined }) {
  if (list.more !== undefined) {
    return (
      <Empty title="No match in the newest requests">
        <p>“Show more” searches older ones.</p>
      </Empty>
    );
  }
  if (clear !== undefined) {
    return <NothingMatches title="No request matches these filters" clear={clear} />;
  }
  return <Empty title="No requests on these days" />;
}

type TextField<Name extends string> = readonly [name: Name, label: string, placeholder: string];

const TEXT_FILTERS: readonly TextField<'account' | 'key' | 'minUsd' | 'tag' | 'tagValue'>[] = [
  ['account', 'Account', 'Id, name or address'],
  ['key', 'API key', 'key_…'],
  ['minUsd', 'Cost of at least', '0.01'],
  ['tag', 'Tag', 'user'],
  ['tagValue', 'Tag value', 'ada'],
];
const FAILURE_TEXT_FILTERS: readonly TextField<'account' | 'code'>[] = [
  ['account', 'Account', 'Id, name or address'],
  ['code', 'Error code', 'INFERENCE_FAILED'],
];

interface TextFiltersProps<Name extends string> {
  readonly values: Readonly<Record<Name, string>>;
  readonly fields: readonly TextField<Name>[];
  readonly apply: (changes: Partial<Record<Name, string>>) => void;
  readonly openRequest: (id: string) => void;
  readonly clear: (() => void) | undefined;
  readonly children: preact.ComponentChildren;
}

/** Filters that are typed and then applied together; a request id opens its request. */
function TextFilters<Name extends string>(props: TextFiltersProps<Name>) {
  const { values, fields, apply, openRequest, clear, children } = props;
  const typed = useSignal<Partial<Record<Name, string>>>({});
  const requestId = useSignal('');
  const submit = (): void => {
    const id = requestId.value.trim();
    if (id === '') apply(typed.value);
    else openRequest(id);
  };
  return (
    <Form class="filters" label="Filters" submit={submit}>
      {children}
      {fields.map(([name, label, placeholder]) => (
        <SearchField
          key={name}
          label={label}
          placeholder={placeholder}
          value={typed.value[name] ?? values[name]}
          onInput={(text) => (typed.value = { ...typed.value, [name]: text.trim() })}
        />
      ))}
      <SearchField
        label="Request id"
        placeholder="x-request-id"
        value={requestId.value}
        onInput={(text) => (requestId.value = text)}
      />
      <button type="submit">Find</button>
      {clear !== undefined && (
        <button type="button" class="small" onClick={clear}>
          Clear
        </button>
      )}
    </Form>
  );
}
