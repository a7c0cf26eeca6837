/**
 * Reads prices and properties of models from a price file in the LiteLLM format
 * (`model_prices_and_context_window.json`). Prices there are USD per token, written as decimals
 * such as `1.5e-07`; they are read from the digits of the file, never through a double.
 */
import { divideHalfUp, formatUsd, parseDecimal } from '../core/money.ts';
import { didYouMean } from '../core/nearest-word.ts';
import type { Capability, ModelType, PriceSettings } from './models-section.ts';

/** What the price file knows about one model, and what could not be taken over as it stands. */
export type ImportedModel = Exclude<ReturnType<typeof importModel>, string>;

/** The model of a key, or a sentence that says why there is none. */
export type PriceFile = (key: string) => ImportedModel | string;

/** A number of the file with its digits. */
class Digits {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Entry = Readonly<Record<string, unknown>>;

/** Parses the file; throws a SyntaxError when it is not JSON. */
export function readPriceFile(text: string): PriceFile {
  const keepDigits = (_key: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' ? new Digits(context?.source ?? String(value)) : value;
  const parsed: unknown = JSON.parse(text, keepDigits);
  const entries = isEntry(parsed) ? parsed : {};
  return (key) => {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
    if (isEntry(entry)) return importModel(entry);
    return `The price file has no entry "${key}"${didYouMean(key, Object.keys(entries))}`;
  };
}

function isEntry(value: unknown): value is Entry {
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

function importModel(entry: Entry) {
  const mode = typeof entry['mode'] === 'string' ? entry['mode'] : 'chat';
  const type = TYPES[mode];
  if (type === undefined) return `The entry is of mode "${mode}", which cannot be imported`;
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

function whole(value: unknown): number | undefined {
  const text = value instanceof Digits ? value.text : value;
  const number = Number(text);
  return text !== undefined && Number.isSafeInteger(number) && number > 0 ? number : undefined;
}

function importPrice(entry: Entry, warnings: string[]): PriceSettings {
  const token = (key: string) => decimal(entry[key], MILLION_EXPONENT, key, warnings);
  const unit = (key: string) => decimal(entry[key], 0, key, warnings);
  const extended = importExtended(entry, token, warnings);
  return withoutUndefined({
    input: token('input_cost_per_token'),
    output: token('output_cost_per_token'),
    cacheInput: token('cache_read_input_token_cost'),
    cacheWrite: token('cache_creation_input_token_cost'),
    extended,
    perImage: unit('output_cost_per_image') ?? unit('input_cost_per_image'),
    perSecond: unit('input_cost_per_second'),
    perMillionCharacters: token('input_cost_per_character'),
    perSearch: unit('input_cost_per_query'),
  });
}

const ABOVE = /^input_cost_per_token_above_(\d+)k_tokens$/;

function importExtended(
  entry: Entry,
  token: (key: string) => string | undefined,
  warnings: string[],
): PriceSettings['extended'] {
  const steps = Object.keys(entry)
    .flatMap((key) => ABOVE.exec(key)?.[1] ?? [])
    .toSorted((a, b) => Number(a) - Number(b));
  const step = steps[0];
  if (step === undefined) return undefined;
  if (steps.length > 1) {
    warnings.push(
      `It has prices above ${steps.join('k, ')}k tokens; those above ${step}k are used`,
    );
  }
  const above = (key: string) => token(`${key}_above_${step}k_tokens`);
  const input = above('input_cost_per_token') ?? token('input_cost_per_token') ?? '0';
  return withoutUndefined({
    above: Number(step) * 1_000,
    input,
    output: above('output_cost_per_token') ?? token('output_cost_per_token') ?? '0',
    cacheInput: above('cache_read_input_token_cost'),
    cacheWrite: above('cache_creation_input_token_cost'),
  });
}

const MILLION_EXPONENT = 6;

/** The value times 10^shift as decimal text with at most 9 decimals, the finest step of a price. */
function decimal(
  value: unknown,
  shift: number,
  key: string,
  warnings: string[],
): string | undefined {
  const text = value instanceof Digits ? value.text : value;
  if (typeof text !== 'string') return undefined;
  const parsed = parseDecimal(text);
  if (parsed === undefined) {
    warnings.push(`${key} is no price: ${text.slice(0, 40)}`);
    return undefined;
  }
  const power = parsed.power + shift + 9;
  const divisor = power < 0 ? 10n ** BigInt(-power) : 1n;
  const scaled = power < 0 ? parsed.digits : parsed.digits * 10n ** BigInt(power);
  if (scaled % divisor !== 0n) {
    // Finer than a femto-dollar a token: the rest of a double in the file, such as 2.0000000000001.
    warnings.push(`${key} ${text} is finer than 10^-15 USD and is rounded`);
  }
  return trimZeros(formatUsd(divideHalfUp(scaled, divisor)));
}

function trimZeros(decimalText: string): string {
  return decimalText.replace(/\.?0+$/, '');
}

function withoutUndefined<T extends object>(value: T): T {
  const entries = Object.entries(value).filter(([, entry]) => entry !== undefined);
  // Leaves out optional keys only, so the type stands.
  return Object.fromEntries(entries) as T;
}
