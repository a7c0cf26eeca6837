/** Requests as a list, and the receipt of one in a drawer. */
import { useEffect } from 'preact/hooks';
import { call } from '../api.ts';
import { countText, durationText, usdText } from '../format.ts';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Fact, Facts, Id, State, Time, Usd } from '../parts/show.tsx';
import { Loaded } from '../parts/states.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { useResource } from '../resource.ts';
import type { Receipt } from '../shapes.ts';

interface RequestTableProps {
  readonly rows: readonly Receipt[];
  readonly open: (requestId: string) => void;
  /** Ids of rows that just came. */
  readonly label?: string;
}

export function costOf({ cost }: Pick<Receipt, 'cost'>): number {
  return cost.usd + cost.diem;
}

export function RequestTable({ rows, open, label = 'Requests' }: RequestTableProps) {
  const columns: readonly Column<Receipt>[] = [
    {
      name: 'Time',
      show: ({ createdAt, requestId }) => (
        <button type="button" class="link" onClick={() => open(requestId)}>
          <Time iso={createdAt} />
        </button>
      ),
    },
    {
      name: 'Model',
      // On a phone only what went wrong is said, so that the cost is in sight.
      show: ({ model, status }) => (
        <>
          <span class="model">{model}</span>
          {status !== 'completed' && (
            <span class="narrow">
              <State value={status} />
            </span>
          )}
        </>
      ),
    },
    { name: 'Kind', kind: 'wide', show: ({ kind }) => <span class="soft">{kind}</span> },
    { name: 'Status', kind: 'wide', show: ({ status }) => <State value={status} /> },
    {
      name: 'Tokens in / out',
      kind: 'figure wide',
      show: ({ tokens }) => (
        <span class="num">
          {countText(tokens.prompt)} <span class="soft">/</span> {countText(tokens.completion)}
        </span>
      ),
    },
    {
      name: 'First token',
      kind: 'figure wide',
      show: ({ firstTokenMs }) => <span class="num">{durationText(firstTokenMs)}</span>,
    },
    {
      name: 'Took',
      kind: 'figure wide',
      show: ({ latencyMs }) => <span class="num">{durationText(latencyMs)}</span>,
    },
    { name: 'Cost', kind: 'figure', show: (row) => <Usd value={costOf(row)} /> },
  ];
  return (
    <Table
      label={label}
      columns={columns}
      rows={rows}
      keyOf={({ requestId }) => requestId}
      open={({ requestId }) => open(requestId)}
    />
  );
}

interface ReceiptDrawerProps {
  readonly id: string;
  readonly close: () => void;
  /** Of an operator: where the receipt is asked for. */
  readonly known?: Receipt | undefined;
}

export function ReceiptDrawer({ id, close, known }: ReceiptDrawerProps) {
  const receipt = useResource(known === undefined ? `receipt ${id}` : undefined, (signal) =>
    call<Receipt>(`/usage/${encodeURIComponent(id)}`, { signal }),
  );
  useEffect(() => {
    const leave = (): void => close();
    addEventListener('popstate', leave);
    return () => removeEventListener('popstate', leave);
  }, []);
  return (
    <Overlay kind="drawer" title="Receipt" close={close}>
      {known === undefined ? (
        <Loaded from={receipt}>{(data) => <ReceiptFacts receipt={data} />}</Loaded>
      ) : (
        <ReceiptFacts receipt={known} />
      )}
    </Overlay>
  );
}

const TOKENS = [
  ['prompt', 'Prompt'],
  ['cached', 'of these cached'],
  ['cacheWrite', 'of these written to the cache'],
  ['completion', 'Completion'],
  ['reasoning', 'of these reasoning'],
] as const;

/** A text as it is, anything else as JSON. */
function AnyValue({ value }: { value: unknown }) {
  if (typeof value === 'string') return <span class="num text">{value}</span>;
  const text = JSON.stringify(value);
  return typeof value === 'object' ? <code>{text}</code> : <span class="num">{text}</span>;
}

function ReceiptFacts({ receipt }: { receipt: Receipt }) {
  const { tokens, cost, reserved, unitPrices, extras } = receipt;
  const further = Object.entries(extras);
  return (
    <div class="receipt">
      <p class="total">
        <span class="figure num">{usdText(costOf(receipt))}</span>
        <State value={receipt.status} />
      </p>
      <Facts>
        <Fact name="Model">{receipt.model}</Fact>
        <Fact name="Kind">{receipt.kind}</Fact>
        <Fact name="Time">
          <Time iso={receipt.createdAt} />
        </Fact>
        <Fact name="Request id">
          <Id value={receipt.requestId} ends={8} /> <Copy text={receipt.requestId} />
        </Fact>
        <Fact name="API key">
          {receipt.apiKeyId === null ? 'Wallet' : <Id value={receipt.apiKeyId} ends={8} />}
        </Fact>
      </Facts>
      <h3>Money</h3>
      <Facts>
        <Fact name="Reserved">
          {reserved === null || reserved === undefined ? '–' : <Usd value={reserved} />}
        </Fact>
        <Fact name="Settled">
          <Usd value={costOf(receipt)} />
        </Fact>
        {cost.diem > 0 && (
          <Fact name="of it daily credit">
            <Usd value={cost.diem} />
          </Fact>
        )}
        <Fact name="Price version">
          <code>{receipt.priceVersion}</code>
        </Fact>
        {Object.entries(unitPrices?.prices ?? {}).map(([name, price]) => (
          <Fact key={name} name={`Price, ${name}`}>
            <AnyValue value={price} />
          </Fact>
        ))}
      </Facts>
      <h3>Tokens</h3>
      <Facts>
        {TOKENS.filter(
          ([name]) => name === 'prompt' || name === 'completion' || tokens[name] > 0,
        ).map(([name, words]) => (
          <Fact key={name} name={words}>
            <span class="num">{countText(tokens[name])}</span>
          </Fact>
        ))}
        <Fact name="Counted by">{tokens.countedBy}</Fact>
      </Facts>
      <h3>Work</h3>
      <Facts>
        <Fact name="Took">{durationText(receipt.latencyMs)}</Fact>
        <Fact name="First token">{durationText(receipt.firstTokenMs)}</Fact>
        <Fact name="Engine">{receipt.router ?? '–'}</Fact>
        <Fact name="Attempts">
          <span class="num">{receipt.attempts}</span>
        </Fact>
        {further.map(([name, value]) => (
          <Fact key={name} name={name}>
            <AnyValue value={value} />
          </Fact>
        ))}
      </Facts>
      <p class="row">
        <Copy text={JSON.stringify(receipt, null, 2)} label="Copy as JSON" />
      </p>
    </div>
  );
}
