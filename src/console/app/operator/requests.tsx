/** The requests of all accounts: sold requests, and failed or retried requests, with filters. */
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../../../core/receipt-words.ts';
import { type Address, useAddress } from '../address.ts';
import { countText, durationText } from '../format.ts';
import { useModels } from '../lookups.ts';
import { MODEL_COLUMN, STATUS_COLUMN, timeColumn } from '../pages/request-table.tsx';
import { type CursorList, useCursorList } from '../cursor-list.ts';
import { Days, SearchField, choices, modelChoices } from '../parts/filters.tsx';
import { Form, Select } from '../parts/form.tsx';
import { AccountLink, ModelName } from '../parts/names.tsx';
import { Empty, NothingMatches } from '../parts/loaded.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { type Column, CursorTable, aside, figure, money } from '../parts/table.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { ExportCsv, NONE, State } from '../parts/values.tsx';
import { useCall, useInterval } from '../resource.ts';
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
  const { filters, search, show, change } = address;
  const list = useCursorList<RequestItem>(`/admin/requests${search}`);
  const columns: readonly Column<RequestItem>[] = [
    timeColumn(({ requestId }) => show(requestId)),
    ACCOUNT_COLUMN,
    MODEL_COLUMN,
    aside('Engine', ({ router }) => router ?? NONE),
    STATUS_COLUMN,
    figure('Tokens', ({ tokens }) => countText(tokens.prompt + tokens.completion), 'wide'),
    figure('Duration', ({ latencyMs }) => durationText(latencyMs), 'wide'),
    money('Supplier', ({ supplierUsd }) => supplierUsd, { isWide: true }),
    money('Cost', ({ cost }) => cost.usd + cost.diem),
  ];
  return (
    <View
      title="Requests"
      lead="The receipts of all accounts, newest first. Days are UTC."
      at={VIEWS[0][0]}
      address={address}
      list={list}
      columns={columns}
      textFilters={TEXT_FILTERS}
      actions={<ExportCsv path="/admin/requests" filters={filters} />}
    >
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
    </View>
  );
}

export function Failures() {
  const address = useAddress('from', 'to', 'account', 'model', 'engine', 'code');
  const list = useCursorList<FailureItem>(`/admin/failures${address.search}`);
  const columns: readonly Column<FailureItem>[] = [
    timeColumn(({ requestId }) => address.show(requestId)),
    ACCOUNT_COLUMN,
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
    <View
      title="Failed requests"
      lead="Requests of all accounts that failed, were tried more than once, or whose caller disconnected."
      at={VIEWS[1][0]}
      address={address}
      list={list}
      columns={columns}
      textFilters={FAILURE_TEXT_FILTERS}
    />
  );
}

interface Row {
  readonly requestId: string;
  readonly accountId: string | null;
  readonly accountName: string;
}

const ACCOUNT_COLUMN: Column<Row> = aside('Account', ({ accountId, accountName }) => (
  <AccountLink id={accountId} name={accountName} />
));

interface ViewProps<T extends Row, Name extends string> {
  readonly title: string;
  readonly lead: string;
  readonly at: (typeof VIEWS)[number][0];
  readonly address: Address<'from' | 'to' | 'model' | 'engine'> & Address<Name>;
  readonly list: CursorList<T>;
  readonly columns: readonly Column<T>[];
  readonly textFilters: readonly TextField<Name>[];
  /** Buttons of the head. */
  readonly actions?: ComponentChildren;
  /** Filters of this view only. */
  readonly children?: ComponentChildren;
}

function View<T extends Row, Name extends string>(props: ViewProps<T, Name>) {
  const { title, lead, at, address, list, columns, textFilters, actions, children } = props;
  const { filters, search, open, show, close, change, isFiltered } = address;
  const clear = isFiltered ? address.clear : undefined;
  const models = useModels();
  const engines = useCall<EnginesResponse>('/admin/engines');
  const engineNames = engines.data?.engines.map(({ id }) => id) ?? [];
  return (
    <>
      <PageHead title={title} lead={lead}>
        <Live list={list} />
        {actions}
      </PageHead>
      <Tabs label="Views" tabs={VIEWS} at={at} />
      <TextFilters
        key={search}
        values={filters}
        fields={textFilters}
        apply={change}
        openRequest={show}
        clear={clear}
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
          options={choices('All engines', engineNames)}
          onInput={(engine) => change({ engine })}
        />
        {children}
      </TextFilters>
      <CursorTable
        label={title}
        list={list}
        empty={<NoRows list={list} clear={clear} />}
        columns={columns}
        keyOf={({ requestId }) => requestId}
        open={({ requestId }) => show(requestId)}
      />
      {open !== undefined && <RequestDrawer id={open} close={close} />}
    </>
  );
}

/** Reloads the first page every few seconds while it is switched on. */
function Live<T>({ list }: { list: CursorList<T> }) {
  const isOn = useSignal(false);
  useInterval(isOn.value ? LIVE_MS : undefined, list.first.reload);
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
  readonly children: ComponentChildren;
}

/** Filters that are typed and then applied together; a request id opens its request. */
function TextFilters<Name extends string>(props: TextFiltersProps<Name>) {
  const { values, fields, apply, openRequest, clear, children } = props;
  const typed = useSignal<Partial<Record<Name, string>>>({});
  const requestId = useSignal('');
  const textOf = (name: Name): string => typed.value[name] ?? values[name];
  const submit = (): void => {
    const id = requestId.value.trim();
    if (id !== '') return openRequest(id);
    const changes = fields.map(([name]) => [name, textOf(name).trim()]);
    apply(Object.fromEntries(changes) as Record<Name, string>); // one entry per field
  };
  return (
    <Form class="filters" label="Filters" submit={submit}>
      {children}
      {fields.map(([name, label, placeholder]) => (
        <SearchField
          key={name}
          label={label}
          placeholder={placeholder}
          value={textOf(name)}
          onInput={(text) => (typed.value = { ...typed.value, [name]: text })}
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
