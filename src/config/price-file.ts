/**
 * Reads prices and properties of models from a price file in the LiteLLM format
 * (`model_prices_and_context_window.json`). Its prices are USD per token, such as `1.5e-07`. They are parsed
 * from their digits, so that they are exact.
 */
import { divideHalfUp, formatUsd, parseDecimal } from '../core/money.ts';
import { didYouMean } from '../core/nearest-word.ts';
import type { Capability, ModelType, PriceSettings } from './models-section.ts';

/** Properties of one model, and warnings about values that were changed or ignored. */
export type ImportedModel = Exclude<ReturnType<typeof importModel>, string>;

/** Returns the model of a key, or the error message if there is none. */
export type PriceFile = (key: string) => ImportedModel | string;

/** A number as it is written in the file. */
export class Digits {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export type Entry = Readonly<Record<string, unknown>>;

/** Throws a SyntaxError if the text is not JSON. */
export function readPriceFile(text: string): PriceFile {
  const parsed = parseDigits(text);
  const entries = isEntry(parsed) ? parsed : {};
  return (key) => {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    if (isEntry(entry)) return importModel(entry);
    return `The price file has no entry "${key}"${didYouMean(key, Object.keys(entries))}`;
  };
}

/** Parses JSON with its numbers as `Digits`. */
export function parseDigits(text: string): unknown {
  const keepDigits = (_key: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' ? new Digits(context?.source ?? String(value)) : value;
  return JSON.parse(text, keepDigits);
}

export function isEntry(value: unknown): value is Entry {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const TYPES: Readonly<Record<string, ModelType>> = {
  chat: 'text',
  completion: 'text',
  responses: 'text',
  embedding: 'embedding',
  audio_transcription: 'asr',
  image_generation: 'image',
  image_edit: 'image',
  video_generation: 'video',
  audio_speech: 'tts',
  rerank: 'rerank',
  moderation: 'moderation',
};

const SUPPORTS: Readonly<Record<string, readonly Capability[]>> = {
  supports_function_calling: ['functionCalling'],
  supports_response_schema: ['responseSchema'],
  supports_vision: ['vision', 'multipleImages'],
  supports_reasoning: ['reasoning', 'reasoningEffort'],
  supports_audio_input: ['audioInput'],
  supports_video_input: ['videoInput'],
};

export function importModel(entry: Entry) {
  const mode = typeof entry['mode'] === 'string' ? entry['mode'] : 'chat';
  const type = TYPES[mode];
  if (type === undefined)
    return `The mode "${mode}" of the entry cannot be imported; allowed: ${Object.keys(TYPES).join(', ')}`;
  const warnings: string[] = [];
  const maxTokens = whole(entry['max_tokens']);
  const context = whole(entry['max_input_tokens']) ?? maxTokens;
  const output = whole(entry['max_output_tokens']) ?? maxTokens;
  return {
    type,
    context: type === 'text' ? context : undefined,
    maxCompletionTokens: type === 'text' ? smaller(output, context) : undefined,
    maxInputTokens: context,
    dimensions: whole(entry['output_vector_size']),
    capabilities: Object.entries(SUPPORTS).flatMap(([key, capabilities]) =>
      entry[key] === true ? capabilities : [],
    ),
    price: importPrice(entry, warnings),
    warnings,
  };
}

function smaller(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.min(a, b);
}

export function whole(value: unknown): number | undefined {
  const text = value instanceof Digits ? value.text : value;
  const number = Number(text);
  return text !== undefined && Number.isSafeInteger(number) && number > 0 ? number : undefined;
}

export function importPrice(entry: Entry, warnings: string[]): PriceSettings {
  const token = (key: string) => decimal(entry[key], MILLION_EXPONENT, key, warnings);
  const unit = (key: string) => decimal(entry[key], 0, key, warnings);
  const extended = importExtended(entry, token);
  return withoutUndefined({
    input: token('input_cost_per_token'),
    output: token('output_cost_per_token'),
    cacheInput: token('cache_read_input_token_cost'),
    cacheWrite: token('cache_creation_input_token_cost'),
    cacheWrite1h: token('cache_creation_input_token_cost_above_1hr'),
    audioInput: token('input_cost_per_audio_token'),
    imageInput: token('input_cost_per_image_token'),
    reasoning: token('output_cost_per_reasoning_token'),
    audioOutput: token('output_cost_per_audio_token'),
    imageOutput: token('output_cost_per_image_token'),
    extended,
    perImage: unit('output_cost_per_image') ?? unit('input_cost_per_image'),
    perSecond: unit('input_cost_per_second'),
    perMillionCharacters: token('input_cost_per_character'),
    perSearch: unit('input_cost_per_query'),
    serviceTiers: importTiers(token),
  });
}

/** Prices of batches are those of another API of the supplier. */
const TIER_ENDS = { flex: '_flex', priority: '_priority' } as const;

function importTiers(token: Convert): PriceSettings['serviceTiers'] {
  const tiers = Object.entries(TIER_ENDS).flatMap(([tier, end]) => {
    const row = withoutUndefined({
      input: token(`input_cost_per_token${end}`),
      output: token(`output_cost_per_token${end}`),
      cacheInput: token(`cache_read_input_token_cost${end}`),
    });
    return Object.keys(row).length === 0 ? [] : [[tier, row] as const];
  });
  return tiers.length === 0 ? undefined : Object.fromEntries(tiers);
}

const ABOVE = /^input_cost_per_token_above_(\d+)k_tokens$/;

type Convert = (key: string) => string | undefined;

function importExtended(entry: Entry, token: Convert): PriceSettings['extended'] {
  const steps = Object.keys(entry)
    .flatMap((key) => ABOVE.exec(key)?.[1] ?? [])
    .toSorted((a, b) => Number(a) - Number(b));
  const prices = steps.map((step, index) => {
    // A price that a step lacks is that of the step below.
    const lower = steps.slice(0, index + 1).toReversed();
    const above = (key: string): string | undefined =>
      lower.map((one) => token(`${key}_above_${one}k_tokens`)).find((one) => one !== undefined);
    return withoutUndefined({
      above: Number(step) * 1_000,
      input: above('input_cost_per_token') ?? token('input_cost_per_token') ?? '0',
      output: above('output_cost_per_token') ?? token('output_cost_per_token') ?? '0',
      cacheInput: above('cache_read_input_token_cost'),
      cacheWrite: above('cache_creation_input_token_cost'),
      cacheWrite1h: above('cache_creation_input_token_cost_above_1hr'),
    });
  });
  return prices.length > 1 ? prices : prices[0];
}

export const MILLION_EXPONENT = 6;

/** Returns the value times 10^shift as decimal text, rounded to 9 decimals. */
export function decimal(
  value: unknown,
  shift: number,
  key: string,
  warnings: string[],
): string | undefined {
  const text = value instanceof Digits ? value.text : value;
  if (typeof text !== 'string') return undefined;
  const parsed = parseDecimal(text);
  if (parsed === undefined) {
    warnings.push(`${key} is not a decimal number: ${text.slice(0, 40)}`);
    return undefined;
  }
  const power = parsed.power + shift + 9;
  const divisor = power < 0 ? 10n ** BigInt(-power) : 1n;
  const scaled = power < 0 ? parsed.digits : parsed.digits * 10n ** BigInt(power);
  if (scaled % divisor !== 0n) {
    // Usually a rounding error in the file, such as 2.0000000000001.
    warnings.push(`${key} ${text} is finer than 10^-15 USD and is rounded`);
  }
  return trimZeros(formatUsd(divideHalfUp(scaled, divisor)));
}

function trimZeros(decimalText: string): string {
  return decimalText.replace(/\.?0+$/, '');
}

export function withoutUndefined<T extends object>(value: T): T {
  const entries = Object.entries(value).filter(([, entry]) => entry !== undefined);
  // Only optional keys are removed.
  return Object.fromEntries(entries) as T;
}
