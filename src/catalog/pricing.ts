/**
 * What a request costs. Prices are exact integers (femto-USD per token, nano-USD per unit), a
 * charge is summed exactly and rounded once, half up, and a bound is never below the charge of any
 * usage within it: `charge(usage) <= bound(usage's bounds)`. Holds no balance and moves no money.
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
  /** Absent where the work has no output (embeddings). */
  readonly output: bigint | undefined;
  readonly cacheInput: bigint;
  readonly cacheWrite: bigint;
}

/** The most that a token may turn out to cost: a bound does not know which kind it will be. */
type DearestRates = Pick<TokenRates, 'input' | 'output'>;

/** A price row, ready to compute with. */
export interface Price {
  /** 12 hex digits of the row's hash; stands on every usage record. */
  readonly version: string;
  readonly tokens: TokenRates | undefined;
  readonly dearest: DearestRates | undefined;
  /**
   * Rates of the whole request when the prompt has more than `above` tokens. A prompt whose bound is
   * above may stay below, so its dearest rates are those of both rows.
   */
  readonly extended:
    | { readonly above: number; readonly rates: TokenRates; readonly dearest: DearestRates }
    | undefined;
  readonly perImage: Nano | undefined;
  /** By size and quality, the first that fits. */
  readonly imageRates: readonly ImageRate[];
  readonly perSecond: Nano | undefined;
  /** Femto-USD per character of text that is spoken. */
  readonly perCharacter: bigint | undefined;
  readonly perSearch: Nano | undefined;
  readonly perRequest: Nano;
  /** The row as it was written, for lists. */
  readonly row: PriceSettings;
}

/** What an image is made as; what is not said is any. */
export interface ImageKind {
  readonly size?: string | undefined;
  readonly quality?: string | undefined;
}

interface ImageRate extends ImageKind {
  readonly eachNano: Nano;
}

/** What has a price of its own. */
interface Units {
  readonly images?: number;
  /** Of text that is spoken. */
  readonly characters?: number;
  /** Of up to 100 documents that are ranked. */
  readonly searches?: number;
  /** Length of audio. */
  readonly audioMs?: number;
  /** Searches, scraped pages and the like, priced by who ran them. */
  readonly surcharges?: Nano;
}

/** What a request used. All counts are whole and not negative. */
export interface Usage extends Units {
  /** All prompt tokens, cached ones included. */
  readonly promptTokens?: number;
  /** Of the prompt tokens: read from a cache. */
  readonly cachedTokens?: number;
  /** Of the prompt tokens: written to a cache. */
  readonly cacheWriteTokens?: number;
  /** All completion tokens of all choices, reasoning included. */
  readonly completionTokens?: number;
}

/** The most that a request can use. */
export interface UsageBound extends Units {
  readonly promptTokens?: number;
  /** Cap of one choice. */
  readonly maxOutputTokens?: number;
  /** Number of choices (`n`). Default 1. */
  readonly choices?: number;
}

const VERSION_DIGITS = 12;
const MS_PER_SECOND = 1_000n;

/** Compiles a checked price row; an unknown price is `undefined` and sells nothing. */
export function compilePrice(row: PriceSettings): Price {
  const amount = (usd: string | undefined) => (usd === undefined ? undefined : usdToNano(usd));
  const tokens = compileRates(row);
  return {
    version: versionOf(row),
    tokens,
    dearest: tokens && dearestOf(tokens),
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

/** Equal rows have equal versions, in whatever order and spelling their amounts were written. */
function versionOf(row: PriceSettings): string {
  const { extended, imageRates = [], ...flat } = row;
  const { above, ...long } = extended ?? {};
  const parts = [
    ...Object.entries(flat),
    ...Object.entries(long).map(([key, usd]) => [`extended.${key}`, usd] as const),
  ].flatMap(([key, usd]) => (usd === undefined ? [] : [`${key}=${usdToNano(usd)}`]));
  if (above !== undefined) parts.push(`extended.above=${above}`);
  // Their order counts: the first that fits holds.
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
  // A cache price that the long row leaves out is the one the short row names, else its input.
  const cacheInput = extended.cacheInput ?? row.cacheInput ?? extended.input;
  const cacheWrite = extended.cacheWrite ?? row.cacheWrite ?? extended.input;
  const rates = {
    input,
    output: perMillionToFemto(extended.output),
    cacheInput: perMillionToFemto(cacheInput),
    cacheWrite: perMillionToFemto(cacheWrite),
  };
  const dearest = dearestOf(rates);
  const short = dearestOf(base);
  return {
    above: extended.above,
    rates,
    dearest: {
      input: larger(dearest.input, short.input),
      output: short.output === undefined ? undefined : larger(rates.output, short.output),
    },
  };
}

function dearestOf({ input, output, cacheInput, cacheWrite }: TokenRates): DearestRates {
  return { input: larger(input, larger(cacheInput, cacheWrite)), output };
}

/** The price of a model, or the refusal to serve it for nothing. */
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

/** The same for a request of a batch; a model that is sold may be none of batches (403). */
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
 * The row of a model at a share of its prices, each rounded half up to its last decimal. What a text
 * model searches keeps its price: others are paid for it.
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
 * The exact charge of one request that took several engine calls: each call has the rates of its
 * own length, units are charged once, and the sum is rounded once.
 */
export function chargeForCalls(calls: readonly Usage[], units: Units, price: Price): Nano {
  let femto = unitCharge(units, price);
  for (const call of calls) femto += tokenCharge(call, price);
  return femtoToNano(femto);
}

function tokenCharge(usage: Usage, { tokens, extended }: Price): bigint {
  const { promptTokens, completionTokens = 0, cachedTokens = 0, cacheWriteTokens = 0 } = usage;
  const prompt = tokenCount(promptTokens);
  const completion = tokenCount(completionTokens);
  if (prompt === 0n && completion === 0n) return 0n;
  const isLong = extended !== undefined && prompt > BigInt(extended.above);
  const rates = isLong ? extended.rates : (tokens ?? unpriced('tokens'));
  // An engine that reports more cached tokens than prompt tokens is not paid for the difference.
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

/** What one image of a kind costs. */
export function imagePrice({ size, quality }: ImageKind, price: Price): Nano {
  const rate = price.imageRates.find(
    (one) =>
      (one.size === undefined || one.size === size) &&
      (one.quality === undefined || one.quality === quality),
  );
  return rate?.eachNano ?? price.perImage ?? unpriced('images');
}

/** The most that `imagePrice` is for any image that fits what is said of its kind. */
export function dearestImage({ size, quality }: ImageKind, price: Price): Nano {
  let most = price.perImage ?? unpriced('images');
  for (const one of price.imageRates) {
    const fits =
      (size === undefined || one.size === undefined || one.size === size) &&
      (quality === undefined || one.quality === undefined || one.quality === quality);
    if (fits && one.eachNano > most) most = one.eachNano;
  }
  return most;
}

/** A true upper bound of `chargeFor` for every usage within `bound`; what a hold reserves. */
export function boundFor(bound: UsageBound, price: Price): Nano {
  const prompt = tokenCount(bound.promptTokens);
  const { choices = 1 } = bound;
  let output = tokenCount(bound.maxOutputTokens);
  if (choices !== 1) output *= tokenCount(choices);
  let femto = unitCharge(bound, price);
  if (prompt > 0n || output > 0n) {
    const dearest = dearestRates(bound, price);
    femto += prompt * dearest.input;
    if (output > 0n) femto += output * (dearest.output ?? unpriced('output'));
  }
  return femtoToNanoBound(femto);
}

/**
 * The largest `maxOutputTokens` whose bound fits into `granted`; `undefined` when not even the
 * prompt fits. Without a price on output it is `Number.MAX_SAFE_INTEGER`.
 */
export function outputTokensAffordable(
  granted: Nano,
  bound: UsageBound,
  price: Price,
): number | undefined {
  const dearest = dearestRates(bound, price);
  const fixed = unitCharge(bound, price) + tokenCount(bound.promptTokens) * dearest.input;
  const left = granted * FEMTO_PER_NANO - fixed;
  if (left < 0n) return undefined;
  const { choices = 1 } = bound;
  let perToken = dearest.output ?? unpriced('output');
  if (choices !== 1) perToken *= tokenCount(choices);
  if (perToken === 0n) return Number.MAX_SAFE_INTEGER;
  const tokens = left / perToken;
  return tokens > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(tokens);
}

/** What a token may cost at most in a request with a prompt of up to so many. */
function dearestRates({ promptTokens = 0 }: UsageBound, price: Price): DearestRates {
  const { extended } = price;
  if (extended !== undefined && promptTokens > extended.above) return extended.dearest;
  return price.dearest ?? unpriced('tokens');
}

/** No price, no sale: a kind of work that the row does not price is refused. */
function unpriced(what: string): never {
  throw new Fault('MODEL_OFFLINE', {
    message: `The model has no price for ${what} and does not sell them`,
    canRetry: false,
  });
}

function tokenCount(value: number | undefined): bigint {
  const given = value ?? 0;
  assert(Number.isSafeInteger(given) && given >= 0, 'a usage is a whole number, zero or more');
  return BigInt(given);
}

/** Nano-USD of `count` units at a price, for surcharges. */
export function surcharge(count: number, each: Nano): Nano {
  return nano(tokenCount(count) * each);
}
