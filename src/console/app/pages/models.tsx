/** The models page: prices, context, capabilities and limits of each model. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { countText, exactDecimals, marginText, roughCount } from '../format.ts';
import { SearchField } from '../parts/filters.tsx';
import { Segments } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Count, Facts, NONE, OpenButton, State, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Margin, isLoss, priceName } from '../parts/margin.tsx';
import { type Column, Table, aside, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { isOperator } from '../session.ts';
import type { Amount, List, Model, PricesResponse, RateLimits } from '../shapes.ts';

export function Models() {
  const models = useCall<List<Model>>('/models?type=all');
  const limits = useCall<{ data: RateLimits }>('/api_keys/rate_limits');
  const costs = useCall<PricesResponse>(isOperator.value ? '/admin/prices' : undefined);
  const search = useSignal('');
  const type = useSignal('');
  const address = useAddress();
  const opened = models.data?.data.find(({ id }) => id === address.open);
  const rates = useMemo(
    () => new Map(limits.data?.data.rateLimits.map((one) => [one.apiModelId, one.rateLimits])),
    [limits.data],
  );
  return (
    <>
      <PageHead title="Models" lead="The models that you can use, with capabilities and prices." />
      <Loaded from={models}>
        {({ data }) => {
          const types = [...new Set(data.map((model) => model.type))];
          const wanted = search.value.toLowerCase();
          const shown = data.filter(
            (model) =>
              (type.value === '' || model.type === type.value) &&
              `${model.id} ${model.model_spec.name}`.toLowerCase().includes(wanted),
          );
          return (
            <>
              <div class="filters">
                <SearchField
                  label="Find"
                  placeholder="Name or id"
                  value={search.value}
                  onInput={(words) => (search.value = words)}
                />
                <Segments
                  legend="Type"
                  value={type.value}
                  options={[['', 'All'], ...types.map((one) => [one, typeName(one)] as const)]}
                  onInput={(one) => (type.value = one)}
                />
              </div>
              {shown.length === 0 ? (
                <Empty title={data.length === 0 ? 'No models are available' : 'No model matches'}>
                  {data.length === 0 && (
                    <p>The operator of the server adds models in its configuration.</p>
                  )}
                </Empty>
              ) : (
                <ModelTable models={shown} open={({ id }) => address.show(id)} />
              )}
            </>
          );
        }}
      </Loaded>
      {opened !== undefined && (
        <ModelDrawer
          model={opened}
          rates={rates.get(opened.id) ?? []}
          margins={costs.data?.data.find(({ model }) => model === opened.id)?.margins ?? []}
          close={address.close}
        />
      )}
    </>
  );
}

function ModelTable({ models, open }: { models: readonly Model[]; open: (model: Model) => void }) {
  const columns: readonly Column<Model>[] = [
    {
      name: 'Model',
      show: (model) => (
        <>
          <OpenButton isStrong open={() => open(model)}>
            {model.model_spec.name}
          </OpenButton>
          {model.id !== model.model_spec.name && (
            <span class="under">
              <code>{model.id}</code>
            </span>
          )}
        </>
      ),
    },
    aside('Type', ({ type }) => typeName(type)),
    figure(
      'Context',
      ({ context_length: size }) => (size === undefined ? '–' : roughCount(size)),
      'wide',
    ),
    {
      name: 'Price',
      kind: 'figure',
      decimals: (rows) => exactDecimals(rows.flatMap(mainPrices)),
      show: (model, decimals) => <ShortPrice model={model} decimals={decimals} />,
    },
    {
      name: 'Capabilities',
      kind: 'wide',
      show: (model) => <Capabilities model={model} max={4} />,
    },
    {
      name: 'State',
      show: ({ model_spec: spec }) =>
        spec.offline ? (
          <>
            <State value="offline" />
            <span class="under text wide">{spec.offlineReason}</span>
          </>
        ) : (
          <State value={spec.deprecation === undefined ? 'ready' : 'deprecated'} />
        ),
    },
  ];
  return (
    <Table label="Models" columns={columns} rows={models} keyOf={({ id }) => id} open={open} />
  );
}

/** Units by the name of the price. */
const UNITS: Readonly<Record<string, string>> = {
  input: 'per million input tokens',
  output: 'per million output tokens',
  cache_input: 'per million cached input tokens',
  cache_write: 'per million tokens written to the cache',
  generation: 'per image',
  per_request: 'per request',
  per_search: 'per web search',
  per_audio_second: 'per second of audio',
  cache_write_1h: 'per million tokens written to the cache for one hour',
  audio_input: 'per million audio input tokens',
  image_input: 'per million image input tokens',
  reasoning: 'per million reasoning tokens',
  audio_output: 'per million audio output tokens',
  image_output: 'per million image output tokens',
};

/** The unit of a price, which depends on the type of the model. */
function unitOf(model: Model, name: string): string {
  if (model.type === 'tts' && name === 'input') return 'per million characters';
  if (model.type === 'rerank' && name === 'per_search') return 'per search of 100 documents';
  return UNITS[name] ?? name;
}

function isAmount(value: unknown): value is Amount {
  return typeof value === 'object' && value !== null && 'usd' in value;
}

/** The prices that are a single amount, with their names. Embeddings have no output to price. */
function amountsOf({ type }: Model, prices: object | undefined): (readonly [string, Amount])[] {
  return Object.entries(prices ?? {}).filter(
    (entry): entry is [string, Amount] =>
      isAmount(entry[1]) && !(type === 'embedding' && entry[0] === 'output'),
  );
}

function mainPrices(model: Model): number[] {
  return amountsOf(model, model.model_spec.pricing)
    .slice(0, 2)
    .map(([, { usd }]) => usd);
}

function ShortPrice({ model, decimals }: { model: Model; decimals: number }) {
  const prices = amountsOf(model, model.model_spec.pricing);
  const { input, output } = Object.fromEntries(prices);
  if (input !== undefined && output !== undefined) {
    return (
      <span class="num">
        <Usd value={input.usd} decimals={decimals} /> <span class="soft">/</span>{' '}
        <Usd value={output.usd} decimals={decimals} />
        <span class="under">per 1M tokens in / out</span>
      </span>
    );
  }
  const [first] = prices;
  if (first === undefined) return <span class="soft">by quote</span>;
  const [name, price] = first;
  return (
    <span class="num">
      <Usd value={price.usd} decimals={decimals} />
      <span class="under">{unitOf(model, name)}</span>
    </span>
  );
}

/** `supportsFunctionCalling` becomes `function calling`. */
function capabilityName(name: string): string {
  return name
    .replace(/^supports/, '')
    .replaceAll(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase();
}

function Capabilities({ model, max = 20 }: { model: Model; max?: number }) {
  const values: Readonly<Record<string, unknown>> = model.model_spec.capabilities ?? {};
  const all = Object.keys(values).filter((name) => values[name] === true);
  if (all.length === 0) return NONE;
  return (
    <span class="chips">
      {all.slice(0, max).map((name) => (
        <span key={name} class="chip">
          {capabilityName(name)}
        </span>
      ))}
      {all.length > max && <span class="soft">+{all.length - max}</span>}
    </span>
  );
}

interface ModelDrawerProps {
  readonly model: Model;
  readonly rates: RateLimits['rateLimits'][number]['rateLimits'];
  readonly margins: readonly Margin[];
  readonly close: () => void;
}

const RATE_NAMES: Readonly<Record<string, string>> = {
  RPM: 'Requests per minute',
  RPD: 'Requests per day',
  TPM: 'Tokens per minute',
};

function ModelDrawer({ model, rates, margins, close }: ModelDrawerProps) {
  const { model_spec: spec } = model;
  const prices = amountsOf(model, spec.pricing);
  const batchPrices = amountsOf(model, spec.pricing?.batch);
  const decimals = exactDecimals([...prices, ...batchPrices].map(([, { usd }]) => usd));
  const costDecimals = exactDecimals(margins.flatMap(({ cost, sold }) => [cost, sold]));
  const priceFacts = (list: typeof prices) =>
    list.map(
      ([name, { usd }]) => [unitOf(model, name), <Usd value={usd} decimals={decimals} />] as const,
    );
  return (
    <Overlay kind="drawer" title={spec.name} close={close}>
      {spec.description !== '' && <p class="text">{spec.description}</p>}
      {spec.offlineReason !== undefined && <p class="notice warn">{spec.offlineReason}.</p>}
      {spec.deprecation !== undefined && (
        <p class="notice warn">
          The model is retired on {spec.deprecation.date}.
          {spec.deprecation.replacementModelId !== undefined &&
            ` Use ${spec.deprecation.replacementModelId} instead.`}
        </p>
      )}
      <p class="row">
        {PLAYGROUNDS[model.type] !== undefined && (
          <a
            class="button primary"
            href={`/console/playground/${PLAYGROUNDS[model.type]}?model=${encodeURIComponent(model.id)}`}
          >
            Try it
          </a>
        )}
        <Copy text={model.id} label="Copy id" />
      </p>
      <Facts
        of={[
          ['Id', <code>{model.id}</code>],
          ['Type', typeName(model.type)],
          model.context_length !== undefined && [
            'Context',
            `${countText(model.context_length)} tokens`,
          ],
          spec.maxCompletionTokens !== undefined && [
            'Max. output',
            `${countText(spec.maxCompletionTokens)} tokens`,
          ],
          spec.embeddingDimensions !== undefined && [
            'Dimensions',
            countText(spec.embeddingDimensions),
          ],
          spec.maxInputTokens !== undefined && [
            'Max. input',
            `${countText(spec.maxInputTokens)} tokens`,
          ],
          ['Privacy', spec.privacy],
          spec.traits.length > 0 && ['Traits', spec.traits.join(', ')],
          ['Available since', <Time iso={new Date(model.created * 1_000).toISOString()} />],
          spec.regionRestrictions.length > 0 && [
            'Not available in',
            spec.regionRestrictions.join(', '),
          ],
        ]}
      />
      <h3>Prices in USD</h3>
      {prices.length === 0 ? (
        <p class="soft">By quote. Request a quote in the playground.</p>
      ) : (
        <Facts of={priceFacts(prices)} />
      )}
      {batchPrices.length > 0 && (
        <>
          <h3>Batch prices in USD</h3>
          <Facts of={priceFacts(batchPrices)} />
        </>
      )}
      {margins.length > 0 && (
        <>
          <h3>Costs of suppliers in USD</h3>
          <Facts
            of={margins.map((margin) => [
              `${priceName(margin)} (${margin.engine})`,
              <MarginValue of={margin} decimals={costDecimals} />,
            ])}
          />
        </>
      )}
      <h3>Capabilities</h3>
      <p>
        <Capabilities model={model} />
      </p>
      <h3>Your limits</h3>
      {rates.length === 0 ? (
        <p class="soft">No limits for this model alone.</p>
      ) : (
        <Facts
          of={rates.map(({ type, amount }) => [RATE_NAMES[type] ?? type, <Count value={amount} />])}
        />
      )}
    </Overlay>
  );
}

function MarginValue({ of, decimals }: { of: Margin; decimals: number }) {
  const { sold, cost, percent } = of;
  const text = percent === null ? 'not sold' : marginText(percent);
  return (
    <span class="num">
      <Usd value={cost} decimals={decimals} /> <span class="soft">sold for</span>{' '}
      <Usd value={sold} decimals={decimals} />
      <span class="under">margin {isLoss(of) ? <State value={text} tone="bad" /> : text}</span>
    </span>
  );
}

/** Pages of the playground with a choice of the model. */
const PLAYGROUNDS: Readonly<Record<string, string>> = {
  text: 'chat',
  image: 'images',
  tts: 'speech',
  embedding: 'embeddings',
  rerank: 'rerank',
  video: 'video',
};

/** The names of the playground, for types with a short name. */
const TYPE_NAMES: Readonly<Record<string, string>> = {
  asr: 'transcription',
  inpaint: 'background removal',
  rerank: 'reranking',
  tts: 'speech',
};

function typeName(type: string): string {
  return TYPE_NAMES[type] ?? type;
}
