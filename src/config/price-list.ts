/**
 * Reads the prices of suppliers from the public lists: the price file of LiteLLM
 * (`model_prices_and_context_window.json`), `api.json` of models.dev, and the response of
 * OpenRouter's `GET /models`. Prices are parsed from their digits, so that they are exact.
 */
import type { PriceSettings, TokenPrice } from './models-section.ts';
import {
  decimal,
  type Entry,
  importPrice,
  isEntry,
  MILLION_EXPONENT,
  parseDigits,
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
  readonly warnings: readonly string[];
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
  const warnings: string[] = [];
  const price = importPrice(entry, warnings);
  const { litellm_provider: provider } = entry;
  const name = typeof provider === 'string' ? provider : undefined;
  const model = name !== undefined && key.startsWith(`${name}/`) ? key.slice(name.length + 1) : key;
  return listed({ key, provider: name, model, price, warnings });
}

function ofModelsDev([provider, { models }]: [string, Entry]): ListedPrice[] {
  return Object.entries(isEntry(models) ? models : {}).flatMap(([model, entry]) => {
    const cost = isEntry(entry) ? entry['cost'] : undefined;
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
    return listed({ key: `${provider}/${model}`, provider, model, price, warnings });
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
  return listed({ key: id, provider, model: rest.join('/') || id, price, warnings });
}

/** Omits entries without a price. */
function listed(one: ListedPrice): ListedPrice[] {
  return Object.keys(one.price).length === 0 ? [] : [one];
}
