/** A table of requests, and the drawer with the receipt of one. */
import { useEffect } from 'preact/hooks';
import { countText, durationText, exactDecimals } from '../format.ts';
import { KeyName, ModelName, WithId } from '../parts/names.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, CopyId, Count, Facts, OpenButton, State, Time, Usd } from '../parts/values.tsx';
import { Loaded } from '../parts/loaded.tsx';
import { type Column, aside, figure, money } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { Receipt } from '../shapes.ts';

function costOf({ cost }: Receipt): number {
  return cost.usd + cost.diem;
}

/** The time of a request, as the button that opens it. */
export function timeColumn<T extends { readonly createdAt: string }>(
  open: (request: T) => void,
): Column<T> {
  return {
    name: 'Time',
    show: (request) => (
      <OpenButton open={() => open(request)}>
        <Time iso={request.createdAt} />
      </OpenButton>
    ),
  };
}

type Sold = Pick<Receipt, 'model' | 'status'>;

export const MODEL_COLUMN: Column<Sold> = {
  name: 'Model',
  // A phone shows only unsuccessful states, to leave space for the cost.
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
};

export const STATUS_COLUMN: Column<Sold> = {
  name: 'Status',
  kind: 'wide',
  show: ({ status }) => <State value={status} />,
};

/** Props of a table of requests. */
export function requestTable(open: (request: Receipt) => void) {
  const columns: readonly Column<Receipt>[] = [
    timeColumn(open),
    MODEL_COLUMN,
    aside('Kind', ({ kind }) => kind),
    STATUS_COLUMN,
    figure(
      'Input / output tokens',
      ({ tokens }) => (
        <>
          {countText(tokens.prompt)} <span class="soft">/</span> {countText(tokens.completion)}
        </>
      ),
      'wide',
    ),
    figure('First token', ({ firstTokenMs }) => durationText(firstTokenMs), 'wide'),
    figure('Duration', ({ latencyMs }) => durationText(latencyMs), 'wide'),
    money('Cost', costOf),
  ];
  return { columns, keyOf: ({ requestId }: Receipt) => requestId, open };
}

interface ReceiptDrawerProps {
  readonly id: string;
  readonly close: () => void;
  /** A loaded receipt, for operators, who cannot load receipts of other accounts by id. */
  readonly known?: Receipt | undefined;
  /** Descriptions of keys of another account, by id. */
  readonly keyNames?: ReadonlyMap<string, string>;
}

export function ReceiptDrawer({ id, close, known, keyNames }: ReceiptDrawerProps) {
  const receipt = useCall<Receipt>(
    known === undefined ? `/usage/${encodeURIComponent(id)}` : undefined,
  );
  useEffect(() => {
    const leave = (): void => close();
    addEventListener('popstate', leave);
    return () => removeEventListener('popstate', leave);
  }, []);
  return (
    <Overlay kind="drawer" title="Receipt" close={close}>
      <Loaded from={{ ...receipt, data: known ?? receipt.data }}>
        {(data) => <ReceiptFacts receipt={data} keyNames={keyNames} />}
      </Loaded>
    </Overlay>
  );
}

const TOKENS = [
  ['prompt', 'Prompt'],
  ['cached', 'of which cached'],
  ['cacheWrite', 'of which written to the cache'],
  ['completion', 'Completion'],
  ['reasoning', 'of which reasoning'],
] as const;

/** Shows text as it is, and any other value as JSON. */
function AnyValue({ value }: { value: unknown }) {
  if (typeof value === 'string') return <span class="num text">{value}</span>;
  const text = JSON.stringify(value);
  return typeof value === 'object' ? <code>{text}</code> : <span class="num">{text}</span>;
}

type Line = NonNullable<NonNullable<Receipt['lines']>[number]>;

/** `cache_read_tokens` becomes `Cache read tokens`. */
function lineName({ kind }: Line): string {
  const words = kind.replaceAll('_', ' ');
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}

function LineAmount({ line, decimals }: { line: Line; decimals: number }) {
  const { quantity, per = 1, price, usd } = line;
  const each = per === 1 ? '' : ' per million';
  return (
    <span class="num">
      <Usd value={usd} decimals={decimals} />
      {price !== undefined && quantity !== undefined && (
        <span class="under">
          {quantity} at ${price}
          {each}
        </span>
      )}
    </span>
  );
}

function ReceiptFacts({
  receipt,
  keyNames,
}: Pick<ReceiptDrawerProps, 'keyNames'> & { readonly receipt: Receipt }) {
  const { tokens, cost, reserved, unitPrices, lines, extras, metadata } = receipt;
  const tags = Object.entries(metadata);
  const charged = costOf(receipt);
  const amounts = [reserved, charged, cost.diem, ...(lines ?? []).map(({ usd }) => usd)];
  const decimals = exactDecimals(amounts);
  return (
    <div class="receipt">
      <p class="total">
        <span class="figure num">
          <Usd value={charged} decimals={exactDecimals([charged])} />
        </span>
        <State value={receipt.status} />
      </p>
      <Facts
        of={[
          ['Model', <ModelName id={receipt.model} />],
          ['Kind', receipt.kind],
          ['Time', <Time iso={receipt.createdAt} />],
          ['Request id', <CopyId value={receipt.requestId} />],
          [
            'API key',
            receipt.apiKeyId === null ? (
              'Wallet'
            ) : (
              <WithId id={receipt.apiKeyId}>
                <KeyName id={receipt.apiKeyId} known={keyNames} />
              </WithId>
            ),
          ],
        ]}
      />
      <h3>Cost</h3>
      <Facts
        of={[
          ['Held', <Usd value={reserved} decimals={decimals} />],
          ['Charged', <Usd value={charged} decimals={decimals} />],
          cost.diem > 0 && ['of which daily credit', <Usd value={cost.diem} decimals={decimals} />],
          ['Price version', <code>{receipt.priceVersion}</code>],
          ...(lines ?? []).map(
            (line) => [lineName(line), <LineAmount line={line} decimals={decimals} />] as const,
          ),
          ...Object.entries(unitPrices?.['prices'] ?? {}).map(
            ([name, price]) => [`Price, ${name}`, <AnyValue value={price} />] as const,
          ),
        ]}
      />
      <h3>Tokens</h3>
      <Facts
        of={[
          ...TOKENS.filter(
            ([name]) => name === 'prompt' || name === 'completion' || tokens[name] > 0,
          ).map(([name, words]) => [words, <Count value={tokens[name]} />] as const),
          ['Counted by', tokens.countedBy],
        ]}
      />
      <h3>Execution</h3>
      <Facts
        of={[
          ['Duration', durationText(receipt.latencyMs)],
          ['First token', durationText(receipt.firstTokenMs)],
          ['Engine', receipt.router ?? '–'],
          ['Attempts', <span class="num">{receipt.attempts}</span>],
          ...Object.entries(extras).map(
            ([name, value]) => [name, <AnyValue value={value} />] as const,
          ),
        ]}
      />
      {tags.length > 0 && (
        <>
          <h3>Tags</h3>
          <Facts of={tags.map(([name, value]) => [name, <span class="text">{value}</span>])} />
        </>
      )}
      <p class="row">
        <Copy text={JSON.stringify(receipt, null, 2)} label="Copy as JSON" />
      </p>
    </div>
  );
}
