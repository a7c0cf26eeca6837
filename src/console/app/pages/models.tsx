/** What is on offer: prices, context, abilities and limits of every model. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { amountText, countText, roughCount } from '../format.ts';
import { SearchField } from '../parts/filters.tsx';
import { Segments } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Facts, State, Time } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, aside, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { Amount, Model } from '../shapes.ts';

interface LimitsResponse {
  readonly data: {
    readonly rateLimits: readonly {
      readonly apiModelId: string;
      readonly rateLimits: readonly { readonly type: string; readonly amount: number }[];
    }[];
  };
}

export function Models() {
  const models = useCall<{ data: readonly Model[] }>('/models?type=all');
  const limits = useCall<LimitsResponse>('/api_keys/rate_limits');
  const search = useSignal('');
  const type = useSignal('');
  const opened = useSignal<Model | undefined>(undefined);
  const rates = useMemo(
    () => new Map(limits.data?.data.rateLimits.map((one) => [one.apiModelId, one.rateLimits])),
    [limits.data],
  );
  return (
    <>
      <PageHead title="Models" lead="What you may ask, what it can do, and what it costs." />
      <Loaded from={models} rows={8}>
        {({ data }) => {
          const types = [...new Set(data.map((model) => model.type))];
          const sought = search.value.toLowerCase();
          const shown = data.filter(
            (model) =>
              (type.value === '' || model.type === type.value) &&
              `${model.id} ${model.model_spec.name}`.toLowerCase().includes(sought),
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
                  options={[['', 'All'], ...types.map((one) => [one, one] as const)]}
                  onInput={(one) => (type.value = one)}
                />
              </div>
              {shown.length === 0 ? (
                <Empty title={data.length === 0 ? 'No model is on offer' : 'No model fits'}>
                  {data.length === 0 && (
                    <p>Whoever runs this server adds models to its configuration.</p>
                  )}
                </Empty>
              ) : (
                <ModelTable models={shown} open={(model) => (opened.value = model)} />
              )}
            </>
          );
        }}
      </Loaded>
      {opened.value !== undefined && (
        <ModelDrawer
          model={opened.value}
          rates={rates.get(opened.value.id) ?? []}
          close={() => (opened.value = undefined)}
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
          <button type="button" class="link strong" onClick={() => open(model)}>
            {model.model_spec.name}
          </button>
          {model.id !== model.model_spec.name && (
            <span class="under">
              <code>{model.id}</code>
            </span>
          )}
        </>
      ),
    },
    aside('Type', ({ type }) => type),
    figure(
      'Context',
      ({ context_length: size }) => (size === undefined ? '–' : roughCount(size)),
      'wide',
    ),
    { name: 'Price', kind: 'figure', show: (model) => <ShortPrice model={model} /> },
    { name: 'Can', kind: 'wide', show: (model) => <Abilities model={model} most={4} /> },
    {
      name: 'State',
      show: ({ model_spec: spec }) =>
        spec.offline ? (
          <State value="offline" tone="bad" />
        ) : spec.deprecation === undefined ? (
          <State value="ready" tone="good" />
        ) : (
          <State value="deprecated" tone="warn" />
        ),
    },
  ];
  return (
    <Table label="Models" columns={columns} rows={models} keyOf={({ id }) => id} open={open} />
  );
}

/** What a unit is of, by the name of its price. */
const UNITS: Readonly<Record<string, string>> = {
  input: 'per million input tokens',
  output: 'per million output tokens',
  cache_input: 'per million cached input tokens',
  cache_write: 'per million tokens written to the cache',
  generation: 'per image',
  per_request: 'per request',
  per_search: 'per web search',
  per_audio_second: 'per second of sound',
};

/** The unit of a price, which differs by what a model makes. */
function unitOf(model: Model, name: string): string {
  if (model.type === 'tts' && name === 'input') return 'per million characters';
  if (model.type === 'rerank' && name === 'per_search') return 'per search of 100 documents';
  return UNITS[name] ?? name;
}

function isAmount(value: unknown): value is Amount {
  return typeof value === 'object' && value !== null && 'usd' in value;
}

/** Prices that are one amount, by their names. */
function amountsOf(prices: object | undefined): (readonly [string, Amount])[] {
  return Object.entries(prices ?? {}).filter((entry): entry is [string, Amount] =>
    isAmount(entry[1]),
  );
}

function ShortPrice({ model }: { model: Model }) {
  const { input, output } = (model.model_spec.pricing ?? {}) as { input?: Amount; output?: Amount };
  if (input !== undefined && output !== undefined) {
    return (
      <span class="num">
        ${amountText(input.usd)} <span class="soft">/</span> ${amountText(output.usd)}
        <span class="under">per million in / out</span>
      </span>
    );
  }
  const [first] = amountsOf(model.model_spec.pricing);
  if (first === undefined) return <span class="soft">by quote</span>;
  const [name, price] = first;
  return (
    <span class="num">
      ${amountText(price.usd)}
      <span class="under">{unitOf(model, name)}</span>
    </span>
  );
}

/** `supportsFunctionCalling` is `function calling`. */
function abilityName(name: string): string {
  return name
    .replace(/^supports/, '')
    .replaceAll(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase();
}

function abilitiesOf(model: Model): string[] {
  return Object.entries(model.model_spec.capabilities ?? {})
    .filter(([, value]) => value === true)
    .map(([name]) => abilityName(name));
}

function Abilities({ model, most = 20 }: { model: Model; most?: number }) {
  const all = abilitiesOf(model);
  if (all.length === 0) return <span class="soft">–</span>;
  return (
    <span class="chips">
      {all.slice(0, most).map((name) => (
        <span key={name} class="chip">
          {name}
        </span>
      ))}
      {all.length > most && <span class="soft">+{all.length - most}</span>}
    </span>
  );
}

interface ModelDrawerProps {
  readonly model: Model;
  readonly rates: readonly { readonly type: string; readonly amount: number }[];
  readonly close: () => void;
}

const RATE_WORDS: Readonly<Record<string, string>> = {
  RPM: 'requests a minute',
  RPD: 'requests a day',
  TPM: 'tokens a minute',
};

function ModelDrawer({ model, rates, close }: ModelDrawerProps) {
  const { model_spec: spec } = model;
  const prices = amountsOf(spec.pricing);
  const batchPrices = amountsOf(spec.pricing?.['batch']);
  return (
    <Overlay kind="drawer" title={spec.name} close={close}>
      {spec.description !== '' && <p class="text">{spec.description}</p>}
      {spec.deprecation !== undefined && (
        <p class="notice warn">
          Retired on {spec.deprecation.date}
          {spec.deprecation.replacementModelId !== undefined &&
            `; use ${spec.deprecation.replacementModelId}`}
          .
        </p>
      )}
      <p class="row">
        {(model.type === 'text' || model.type === 'embedding' || model.type === 'video') && (
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
          ['Type', model.type],
          model.context_length !== undefined && [
            'Context',
            `${countText(model.context_length)} tokens`,
          ],
          spec.maxCompletionTokens !== undefined && [
            'Most output',
            `${countText(spec.maxCompletionTokens)} tokens`,
          ],
          spec.embeddingDimensions !== undefined && [
            'Dimensions',
            countText(spec.embeddingDimensions),
          ],
          spec.maxInputTokens !== undefined && [
            'Most input',
            `${countText(spec.maxInputTokens)} tokens`,
          ],
          ['Privacy', spec.privacy],
          spec.traits.length > 0 && ['Traits', spec.traits.join(', ')],
          ['On offer since', <Time iso={new Date(model.created * 1_000).toISOString()} />],
          spec.regionRestrictions.length > 0 && ['Not in', spec.regionRestrictions.join(', ')],
        ]}
      />
      <h3>Prices in USD</h3>
      {prices.length === 0 ? (
        <p class="soft">By quote: ask for one in the playground.</p>
      ) : (
        <Facts
          of={prices.map(([name, price]) => [
            unitOf(model, name),
            <span class="num">${amountText(price.usd)}</span>,
          ])}
        />
      )}
      {batchPrices.length > 0 && (
        <>
          <h3>Prices in a batch</h3>
          <Facts
            of={batchPrices.map(([name, price]) => [
              unitOf(model, name),
              <span class="num">${amountText(price.usd)}</span>,
            ])}
          />
        </>
      )}
      <h3>Abilities</h3>
      <p>
        <Abilities model={model} />
      </p>
      <h3>Your limits</h3>
      {rates.length === 0 ? (
        <p class="soft">None of its own.</p>
      ) : (
        <Facts
          of={rates.map(({ type, amount }) => [
            RATE_WORDS[type] ?? type,
            <span class="num">{countText(amount)}</span>,
          ])}
        />
      )}
    </Overlay>
  );
}

const PLAYGROUNDS: Readonly<Record<string, string>> = {
  text: 'chat',
  embedding: 'embeddings',
  video: 'video',
};
