/**
 * Computes charges. Prices are exact integers (femto-USD per token, nano-USD per unit). A charge is
 * summed exactly and rounded once, half up. A bound is never below the charge of any usage within
 * it: `charge(usage) <= bound(usage's bounds)`. This file moves no money.
 */
import type { ModelType, PriceSettings } from '../config/config.ts';
import { assert } from '../core/assert.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import {
  type Nano,
  FEMTO_PER_NANO,
  decimalUsd,
  divideHalfUp,
  femtoToNano,
  femtoToNanoBound,
  larger,
  nano,
  perMillionToFemto,
  smaller,
  usdToNano,
} from '../core/money.ts';

/** Femto-USD per token. */
interface TokenRates {
  readonly input: bigint;
  /** Missing if the work has no output (embeddings). */
  readonly output: bigint | undefined;
  readonly cacheInput: bigint;
  readonly cacheWrite: bigint;
}

/** Maximum price of a token; a bound does not know which kind of token it will be. */
type MaxRates = Pick<TokenRates, 'input' | 'output'>;

export interface Price {
  /** 12 hex digits of the row's hash; stored with every usage record. */
  readonly version: string;
  readonly tokens: TokenRates | undefined;
  readonly maxRates: MaxRates | undefined;
  /**
   * Rates of the whole request if the prompt has more than `above` tokens. A prompt whose bound is
   * above may still be shorter, so its maximum rates are the higher ones of both rows.
   */
  readonly extended:
    | { readonly above: number; readonly rates: TokenRates; readonly maxRates: MaxRates }
    | undefined;
  readonly perImage: Nano | undefined;
  /** By size and quality; the first match applies. */
  readonly imageRates: readonly ImageRate[];
  readonly perSecond: Nano | undefined;
  readonly perCharacter: bigint | undefined;
  readonly perSearch: Nano | undefined;
  readonly perRequest: Nano;
  /** The row as configured, for lists. */
  readonly row: PriceSettings;
}

/** Properties of an image that determine its price; a missing one matches any. */
export interface ImageKind {
  readonly size?: string | undefined;
  readonly quality?: string | undefined;
}

interface ImageRate extends ImageKind {
  readonly eachNano: Nano;
}

interface Units {
  readonly images?: number;
  readonly characters?: number;
  /** Searches, each of up to 100 ranked documents. */
  readonly searches?: number;
  /** Milliseconds of audio. */
  readonly audioMs?: number;
  /** Searches, scraped pages and similar extras in nano-USD, priced by their feature. */
  readonly surcharges?: Nano;
}

/** The usage of a request. All counts are non-negative integers. */
export interface Usage extends Units {
  /** All prompt tokens, cached ones included. */
  readonly promptTokens?: number;
  readonly cachedTokens?: number;
  readonly cacheWriteTokens?: number;
  /** All completion tokens of all choices, reasoning included. */
  readonly completionTokens?: number;
}

export interface UsageBound extends Units {
  readonly promptTokens?: number;
  /** Token limit of one choice. */
  readonly maxOutputTokens?: number;
  /** Number of choices (`n`). Default 1. */
  readonly choices?: number;
}

const VERSION_DIGITS = 12;
const MS_PER_SECOND = 1_000n;

/** Compiles a validated price row; a missing price is `undefined`, and the work cannot be sold. */
export function compilePrice(row: PriceSettings): Price {
  const amount = (usd: string | undefined) => (usd === undefined ? undefined : usdToNano(usd));
  const tokens = compileRates(row);
  return {
    version: versionOf(row),
    tokens,
    maxRates: tokens && maxRatesOf(tokens),
    extended: compileExtended(row, tokens),
    perImage: amount(row.perImage),
    imageRates: (row.imageRates ?? []).map(({ perImage, ...kind }) => {
      return { ...kind, eachNano: usdToNano(perImage) };
    }),
    perSecond: amount(row.perSecond),
    perCharacter:
      row.perMillionCharacters === undefined
        ? undefined
        : perMillionToFemto(row.perMillionCharacters),
    perSearch: amount(row.perSearch),
    perRequest: usdToNano(row.perRequest ?? '0'),
    row,
  };
}

/** Equal rows have equal versions, whatever the order and format of their amounts. */
function versionOf(row: PriceSettings): string {
  const { extended, imageRates = [], ...flat } = row;
  const { above, ...long } = extended ?? {};
  const parts = [
    ...Object.entries(flat),
    ...Object.entries(long).map(([key, usd]) => [`extended.${key}`, usd] as const),
  ].flatMap(([key, usd]) => (usd === undefined ? [] : [`${key}=${usdToNano(usd)}`]));
  if (above !== undefined) parts.push(`extended.above=${above}`);
  // The order matters, because the first match applies.
  for (const [place, { size = '', quality = '', perImage }] of imageRates.entries()) {
    parts.push(`image.${place}.${size}.${quality}=${usdToNano(perImage)}`);
  }
  return sha256Hex(parts.toSorted().join('&')).slice(0, VERSION_DIGITS);
}

function compileRates(row: PriceSettings): TokenRates | undefined {
  if (row.input === undefined) return undefined;
  const input = perMillionToFemto(row.input);
  return {
    input,
    output: row.output === undefined ? undefined : perMillionToFemto(row.output),
    cacheInput: row.cacheInput === undefined ? input : perMillionToFemto(row.cacheInput),
    cacheWrite: row.cacheWrite === undefined ? input : perMillionToFemto(row.cacheWrite),
  };
}

function compileExtended(row: PriceSettings, base: TokenRates | undefined): Price['extended'] {
  const { extended } = row;
  if (extended === undefined || base === undefined) return undefined;
  const input = perMillionToFemto(extended.input);
  // A cache price that the extended row omits is that of the base row, or else its input price.
  const cacheInput = extended.cacheInput ?? row.cacheInput ?? extended.input;
  const cacheWrite = extended.cacheWrite ?? row.cacheWrite ?? extended.input;
  const rates = {
    input,
    output: perMillionToFemto(extended.output),
    cacheInput: perMillionToFemto(cacheInput),
    cacheWrite: perMillionToFemto(cacheWrite),
  };
  const max = maxRatesOf(rates);
  const short = maxRatesOf(base);
  return {
    above: extended.above,
    rates,
    maxRates: {
      input: larger(max.input, short.input),
      output: short.output === undefined ? undefined : larger(rates.output, short.output),
    },
  };
}

function maxRatesOf({ input, output, cacheInput, cacheWrite }: TokenRates): MaxRates {
  return { input: larger(input, larger(cacheInput, cacheWrite)), output };
}

export function requirePrice(model: {
  readonly id: string;
  readonly price: Price | undefined;
}): Price {
  if (model.price !== undefined) return model.price;
  throw new Fault('MODEL_OFFLINE', {
    message: `The model "${model.id}" has no price and is not sold`,
    canRetry: false,
  });
}

/** The price of a request in a batch; throws 403 if the model does not support batches. */
export function requireBatchPrice(model: {
  readonly id: string;
  readonly price: Price | undefined;
  readonly batchPrice: Price | undefined;
}): Price {
  if (model.batchPrice !== undefined) return model.batchPrice;
  requirePrice(model);
  const message = `The model "${model.id}" is not offered in batches`;
  throw new Fault('MODEL_NOT_ALLOWED', { message });
}

/**
 * The price row scaled by a factor, each price rounded half up to its last decimal. Search prices
 * of a text model stay, because third parties are paid for searches.
 */
export function scaledRow(row: PriceSettings, factor: string, type: ModelType): PriceSettings {
  const factorNano = usdToNano(factor);
  const scaled = (value: unknown, name: string): unknown => {
    if (Array.isArray(value)) return value.map((one) => scaled(one, name));
    if (typeof value === 'object' && value !== null) {
      const entries = Object.entries(value).map(([key, one]) => [key, scaled(one, key)]);
      return Object.fromEntries(entries);
    }
    const isAmount = typeof value === 'string' && name !== 'size' && name !== 'quality';
    if (!isAmount || (name === 'perSearch' && type === 'text')) return value;
    return decimalUsd(divideHalfUp(usdToNano(value) * factorNano, NANO_PER_USD));
  };
  return scaled(row, '') as PriceSettings; // the same members
}

const NANO_PER_USD = 1_000_000_000n;

/** The exact charge of a usage, rounded once, half up. */
export function chargeFor(usage: Usage, price: Price): Nano {
  return femtoToNano(tokenCharge(usage, price) + unitCharge(usage, price));
}

/**
 * The exact charge of one request with several engine calls: each call has the rates of its own
 * length, units are charged once, and the sum is rounded once.
 */
export function chargeForCalls(calls: readonly Usage[], units: Units, price: Price): Nano {
  let femto = unitCharge(units, price);
  for (const call of calls) femto += tokenCharge(call, price);
  return femtoToNano(femto);
}

function tokenCharge(usage: Usage, { tokens, extended }: Price): bigint {
  const { promptTokens = 0, completionTokens = 0, cachedTokens = 0, cacheWriteTokens = 0 } = usage;
  const prompt = BigInt(promptTokens);
  const completion = BigInt(completionTokens);
  assert(prompt >= 0n && completion >= 0n, NOT_NEGATIVE);
  if (prompt === 0n && completion === 0n) return 0n;
  const isLong = extended !== undefined && prompt > BigInt(extended.above);
  const rates = isLong ? extended.rates : (tokens ?? unpriced('tokens'));
  // Cached tokens beyond the prompt tokens are not billed.
  const cached = cachedTokens === 0 ? 0n : smaller(tokenCount(cachedTokens), prompt);
  const written =
    cacheWriteTokens === 0 ? 0n : smaller(tokenCount(cacheWriteTokens), prompt - cached);
  const output = completion === 0n ? 0n : completion * (rates.output ?? unpriced('output'));
  return (
    (prompt - cached - written) * rates.input +
    cached * rates.cacheInput +
    written * rates.cacheWrite +
    output
  );
}

function unitCharge(units: Units, price: Price): bigint {
  let femto = (price.perRequest + (units.surcharges ?? 0n)) * FEMTO_PER_NANO;
  if (units.images) {
    femto += tokenCount(units.images) * (price.perImage ?? unpriced('images')) * FEMTO_PER_NANO;
  }
  if (units.audioMs) {
    const perMs = ((price.perSecond ?? unpriced('audio')) * FEMTO_PER_NANO) / MS_PER_SECOND;
    femto += tokenCount(units.audioMs) * perMs;
  }
  if (units.characters) {
    femto += tokenCount(units.characters) * (price.perCharacter ?? unpriced('characters'));
  }
  if (units.searches) {
    femto +=
      tokenCount(units.searches) * (price.perSearch ?? unpriced('searches')) * FEMTO_PER_NANO;
  }
  return femto;
}

export function imagePrice({ size, quality }: ImageKind, price: Price): Nano {
  const rate = price.imageRates.find(
    (one) =>
      (one.size === undefined || one.size === size) &&
      (one.quality === undefined || one.quality === quality),
  );
  return rate?.eachNano ?? price.perImage ?? unpriced('images');
}

/** The maximum of `imagePrice` for all images that match the given properties. */
export function highestImagePrice({ size, quality }: ImageKind, price: Price): Nano {
  let most = price.perImage ?? unpriced('images');
  for (const one of price.imageRates) {
    const fits =
      (size === undefined || one.size === undefined || one.size === size) &&
      (quality === undefined || one.quality === undefined || one.quality === quality);
    if (fits && one.eachNano > most) most = one.eachNano;
  }
  return most;
}

/** An upper bound of `chargeFor` for every usage within `bound`; the amount of a hold. */
export function boundFor(bound: UsageBound, price: Price): Nano {
  const { promptTokens = 0, maxOutputTokens = 0, choices = 1 } = bound;
  const prompt = BigInt(promptTokens);
  let output = BigInt(maxOutputTokens);
  assert(prompt >= 0n && output >= 0n, NOT_NEGATIVE);
  if (choices !== 1) output *= tokenCount(choices);
  let femto = unitCharge(bound, price);
  if (prompt > 0n || output > 0n) {
    const max = boundRates(bound, price);
    femto += prompt * max.input;
    if (output > 0n) femto += output * (max.output ?? unpriced('output'));
  }
  return femtoToNanoBound(femto);
}

/**
 * The largest `maxOutputTokens` whose bound fits into `granted`; `undefined` if the prompt alone
 * exceeds it. Without an output price it is `Number.MAX_SAFE_INTEGER`.
 */
export function outputTokensAffordable(
  granted: Nano,
  bound: UsageBound,
  price: Price,
): number | undefined {
  const max = boundRates(bound, price);
  const fixed = unitCharge(bound, price) + tokenCount(bound.promptTokens) * max.input;
  const left = granted * FEMTO_PER_NANO - fixed;
  if (left < 0n) return undefined;
  const { choices = 1 } = bound;
  let perToken = max.output ?? unpriced('output');
  if (choices !== 1) perToken *= tokenCount(choices);
  if (perToken === 0n) return Number.MAX_SAFE_INTEGER;
  const tokens = left / perToken;
  return tokens > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(tokens);
}

/** Maximum price of a token in a request with a prompt up to the bound. */
function boundRates({ promptTokens = 0 }: UsageBound, price: Price): MaxRates {
  const { extended } = price;
  if (extended !== undefined && promptTokens > extended.above) return extended.maxRates;
  return price.maxRates ?? unpriced('tokens');
}

function unpriced(what: string): never {
  throw new Fault('MODEL_OFFLINE', {
    message: `The model has no price for ${what} and does not sell them`,
    canRetry: false,
  });
}

const NOT_NEGATIVE = 'a usage is not negative';

/** Throws if the value is negative; `BigInt` throws if it is no integer. */
function tokenCount(value = 0): bigint {
  const count = BigInt(value);
  assert(count >= 0n, NOT_NEGATIVE);
  return count;
}

/** Nano-USD of `count` units at a price, for surcharges. */
export function surcharge(count: number, each: Nano): Nano {
  return nano(tokenCount(count) * each);
}
