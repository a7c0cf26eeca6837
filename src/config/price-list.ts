/**
 * Reads the prices of suppliers from the public lists: the price file of LiteLLM
 * (`model_prices_and_context_window.json`), `api.json` of models.dev, and the response of
 * OpenRouter's `GET /models`. Prices are parsed from their digits, so that they are exact.
 */
import type { Capability, ModelType, PriceSettings, TokenPrice } from './models-section.ts';
import {
  decimal,
  type Entry,
  importModel,
  importPrice,
  isEntry,
  MILLION_EXPONENT,
  parseDigits,
  whole,
  withoutUndefined,
} from './price-file.ts';

/** The price of one model at a supplier. */
export interface ListedPrice {
  /** Name in the list, such as `anthropic/claude-sonnet-4-5`. */
  readonly key: string;
  /** `undefined` if the list does not name one. */
  readonly provider: string | undefined;
  /** Id of the model at the provider. */
  readonly model: string;
  readonly price: PriceSettings;
  readonly facts: ModelFacts;
  readonly warnings: readonly string[];
}

/** Properties of a model in the list. */
export interface ModelFacts {
  readonly type?: ModelType | undefined;
  readonly context?: number | undefined;
  readonly maxCompletionTokens?: number | undefined;
  readonly maxInputTokens?: number | undefined;
  readonly dimensions?: number | undefined;
  readonly capabilities?: readonly Capability[] | undefined;
}

/** Throws an Error with a message for the operator if the text is no known list. */
export function readPriceList(text: string): ListedPrice[] {
  let parsed: unknown;
  try {
    parsed = parseDigits(text);
  } catch (cause) {
    throw new Error('The price list is not valid JSON', { cause });
  }
  if (isEntry(parsed)) {
    if (Array.isArray(parsed['data'])) return parsed['data'].filter(isEntry).flatMap(ofOpenRouter);
    const entries = Object.entries(parsed).filter((pair): pair is [string, Entry] =>
      isEntry(pair[1]),
    );
    const [first] = entries;
    if (first !== undefined) {
      return entries.flatMap(isEntry(first[1]['models']) ? ofModelsDev : ofLiteLlm);
    }
  }
  throw new Error(
    'The file must be the price file of LiteLLM, api.json of models.dev, or the response of GET /models of OpenRouter',
  );
}

function ofLiteLlm([key, entry]: [string, Entry]): ListedPrice[] {
  const found = importModel(entry);
  const unknown: string[] = [];
  // The entry of an unknown mode has a price only.
  const { price, warnings, ...facts } =
    typeof found === 'string' ? { price: importPrice(entry, unknown), warnings: unknown } : found;
  const { litellm_provider: provider } = entry;
  const name = typeof provider === 'string' ? provider : undefined;
  const model = name !== undefined && key.startsWith(`${name}/`) ? key.slice(name.length + 1) : key;
  return listed({ key, provider: name, model, price, facts: withoutUndefined(facts), warnings });
}

function ofModelsDev([provider, { models }]: [string, Entry]): ListedPrice[] {
  return Object.entries(isEntry(models) ? models : {}).flatMap(([model, entry]) => {
    if (!isEntry(entry)) return [];
    const { cost } = entry;
    if (!isEntry(cost)) return [];
    const warnings: string[] = [];
    const row = modelsDevRow(cost, warnings);
    const long = cost['context_over_200k'];
    const {
      input = '0',
      output = '0',
      ...others
    } = isEntry(long) ? { ...row, ...modelsDevRow(long, warnings) } : {};
    const extended = isEntry(long) ? { above: 200_000, input, output, ...others } : undefined;
    const price = withoutUndefined({ ...row, extended });
    const facts = modelsDevFacts(entry);
    return listed({ key: `${provider}/${model}`, provider, model, price, facts, warnings });
  });
}

const MODELS_DEV_WORDS: Readonly<Record<string, readonly Capability[]>> = {
  tool_call: ['functionCalling'],
  structured_output: ['responseSchema'],
  reasoning: ['reasoning'],
};

function modelsDevFacts(entry: Entry): ModelFacts {
  const limit = isEntry(entry['limit']) ? entry['limit'] : {};
  const words = Object.entries(MODELS_DEV_WORDS).filter(([word]) => entry[word] === true);
  return withoutUndefined({
    type: 'text' as const,
    context: whole(limit['context']),
    maxCompletionTokens: whole(limit['output']),
    capabilities: words.flatMap(([, capabilities]) => capabilities),
  });
}

/** Prices of models.dev are USD per million tokens. */
function modelsDevRow(cost: Entry, warnings: string[]): Pick<PriceSettings, TokenPrice> {
  const token = (key: string) => decimal(cost[key], 0, key, warnings);
  return withoutUndefined({
    input: token('input'),
    output: token('output'),
    cacheInput: token('cache_read'),
    cacheWrite: token('cache_write'),
    reasoning: token('reasoning'),
    audioInput: token('input_audio'),
    audioOutput: token('output_audio'),
  });
}

function ofOpenRouter(entry: Entry): ListedPrice[] {
  const { id, pricing } = entry;
  // A negative price means that it depends on the model that serves the request.
  if (typeof id !== 'string' || !isEntry(pricing)) return [];
  if (String(pricing['prompt']).startsWith('-')) return [];
  const warnings: string[] = [];
  const token = (key: string) => decimal(pricing[key], MILLION_EXPONENT, key, warnings);
  const unit = (key: string) => decimal(pricing[key], 0, key, warnings);
  const positive = (usd: string | undefined) => (usd === '0' ? undefined : usd);
  const price = withoutUndefined({
    input: token('prompt'),
    output: token('completion'),
    cacheInput: token('input_cache_read'),
    cacheWrite: token('input_cache_write'),
    audioInput: positive(token('audio')),
    reasoning: positive(token('internal_reasoning')),
    perRequest: positive(unit('request')),
    perSearch: positive(unit('web_search')),
  });
  const [provider, ...rest] = id.split('/');
  const top = isEntry(entry['top_provider']) ? entry['top_provider'] : {};
  const facts = withoutUndefined({
    type: 'text' as const,
    context: whole(entry['context_length']),
    maxCompletionTokens: whole(top['max_completion_tokens']),
  });
  return listed({ key: id, provider, model: rest.join('/') || id, price, facts, warnings });
}

/** Omits entries without a price. */
function listed(one: ListedPrice): ListedPrice[] {
  return Object.keys(one.price).length === 0 ? [] : [one];
}

/** The entries of a list by the names under which an engine can refer to them. */
export class PriceNames {
  readonly #keys: ReadonlyMap<string, ListedPrice>;
  readonly #models = new Map<string, ListedPrice[]>();

  constructor(list: readonly ListedPrice[]) {
    this.#keys = new Map(list.map((one) => [one.key, one]));
    for (const one of list) {
      this.#models.set(one.model, [...(this.#models.get(one.model) ?? []), one]);
    }
  }

  /**
   * The entry of the first key that exists, otherwise the entry of the model at the provider, or the
   * only one of the model. Returns a text about the reason if there is none.
   */
  find(keys: readonly string[], model: string, provider: string): ListedPrice | string {
    for (const key of keys) {
      const exact = this.#keys.get(key);
      if (exact !== undefined) return exact;
    }
    const all = this.#models.get(model) ?? [];
    const [found, ...others] = all.filter((one) => one.provider === provider);
    const [only, ...more] = found === undefined ? all : [found, ...others];
    if (only === undefined) return `the list has no "${model}"`;
    if (more.length === 0) return only;
    const some = [only, ...more].map(({ key }) => key).slice(0, 8);
    return `"${model}" is ambiguous: set "import" of the model to one of ${some.join(', ')}`;
  }
}

/** Decimal texts as numbers where these are exact, as people write them in the file. */
export function plainNumbers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plainNumbers);
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plainNumbers(one)]));
  }
  if (typeof value !== 'string') return value;
  const short = value.replace(/\.?0+$/, '');
  return value.includes('.') && String(Number(short)) === short ? Number(short) : numberOf(value);
}

function numberOf(text: string): number | string {
  return String(Number(text)) === text ? Number(text) : text;
}
