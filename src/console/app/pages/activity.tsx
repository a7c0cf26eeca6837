/** The activity page: all requests, newest first, with filters in the address. */
import { useSignal } from '@preact/signals';
import { useRoute } from 'preact-iso';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../../../core/receipt-words.ts';
import { type Address, useAddress } from '../address.ts';
import { today, useRenewal } from '../live.ts';
import { useKeyNames, useModels } from '../lookups.ts';
import { useCursorList } from '../cursor-list.ts';
import { Days, SearchField, USUAL_DAYS, choices, modelChoices } from '../parts/filters.tsx';
import { Form, Select } from '../parts/form.tsx';
import { Empty, NothingMatches } from '../parts/loaded.tsx';
import { CursorTable } from '../parts/table.tsx';
import { listsKeys } from '../session.ts';
import type { Receipt } from '../shapes.ts';
import { ReceiptDrawer, requestTable } from './request-table.tsx';
import { ActivityHead, Tags } from './tags.tsx';

export function Activity() {
  const { params } = useRoute();
  return params['view'] === 'tags' ? <Tags /> : <Requests />;
}

const FILTERS = ['from', 'to', 'key', 'model', 'kind', 'status', 'requestId'] as const;

function Requests() {
  const address = useAddress(...FILTERS);
  const { filters, search, open } = address;
  const list = useCursorList<Receipt>(`/usage/requests${search}`);
  useRenewal(list.renew);
  return (
    <>
      <ActivityHead
        lead="All requests with their costs, newest first."
        at="/console/activity"
        path="/usage/requests"
        filters={filters}
      />
      <Filters address={address} />
      <CursorTable
        label="Requests"
        list={list}
        empty={<NoRequests address={address} />}
        {...requestTable(({ requestId }) => address.show(requestId))}
      />
      {open !== undefined && <ReceiptDrawer id={open} close={address.close} />}
    </>
  );
}

type Filters = Address<(typeof FILTERS)[number]>;

function NoRequests({ address: { isFiltered, clear } }: { address: Filters }) {
  if (isFiltered) return <NothingMatches title="No request matches these filters" clear={clear} />;
  return (
    <Empty title={`No requests in the last ${USUAL_DAYS} days`}>
      {(today.value?.requests ?? 0) === 0 && (
        <p>
          <a href="/console/playground">Try a model in the playground</a>. Its request appears here.
        </p>
      )}
    </Empty>
  );
}

function Filters({ address: { filters, isFiltered, change, clear } }: { address: Filters }) {
  const models = useModels();
  const keys = useKeyNames(listsKeys.value);
  const typed = useSignal<string | undefined>(undefined);
  const { from, to, key, model, kind, status, requestId } = filters;
  const keyNames = new Map(key === '' ? keys : [[key, key], ...keys]);
  const words = typed.value ?? requestId;
  return (
    <Form class="filters" label="Filters" submit={() => change({ requestId: words.trim() })}>
      <Days from={from} to={to} change={change} />
      {listsKeys.value && (
        <Select
          label="Key"
          value={key}
          options={[['', 'All keys'], ...keyNames]}
          onInput={(one) => change({ key: one })}
        />
      )}
      <Select
        label="Model"
        value={model}
        options={modelChoices(models, model)}
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
      {isFiltered && (
        <button
          type="button"
          class="small"
          onClick={() => {
            typed.value = '';
            clear();
          }}
        >
          Clear
        </button>
      )}
    </Form>
  );
}
