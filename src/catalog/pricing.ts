/**
 * Computes charges. A charge is summed exactly and rounded once, half up. A bound is never below the charge of any usage within
 * it: `charge(usage) <= bound(usage's bounds)`. This file moves no money.
 */
import type { TokenPrice } from '../config/config.ts';
import { assert } from '../core/assert.ts';
import { Fault } from '../core/faults.ts';
import {
  type Nano,
  ZERO,
  FEMTO_PER_NANO,
  decimalUsd,
  femtoToNano,
  femtoToNanoBound,
  larger,
  nano,
  smaller,
} from '../core/money.ts';
import {
  type ImageKind,
  type MaxRates,
  type Price,
  specialRates,
  type TokenRates,
} from './compile-price.ts';
import type { CatalogModel } from './model.ts';

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
  readonly reasoningTokens?: number;
  readonly detail?: TokenDetail | undefined;
}

/** Tokens with prices of their own, as parts of the cache-write, prompt or completion tokens. */
export interface TokenDetail {
  readonly cacheWrite1h: number;
  readonly audioInput: number;
  readonly imageInput: number;
  readonly audioOutput: number;
  readonly imageOutput: number;
}

export interface UsageBound extends Units {
  readonly promptTokens?: number;
  /** Token limit of one choice. */
  readonly maxOutputTokens?: number;
  /** Number of choices (`n`). Default 1. */
  readonly choices?: number;
}

const MS_PER_SECOND = 1_000n;

export function requirePrice(model: Pick<CatalogModel, 'id' | 'price'>): Price {
  if (model.price !== undefined) return model.price;
  throw new Fault('MODEL_OFFLINE', {
    message: `The model "${model.id}" has no price and is not sold`,
    canRetry: false,
  });
}

/** The price of a request in a batch; throws 403 if the model does not support batches. */
export function requireBatchPrice(model: Pick<CatalogModel, 'id' | 'price' | 'batchPrice'>): Price {
  if (model.batchPrice !== undefined) return model.batchPrice;
  requirePrice(model);
  const message = `The model "${model.id}" is not offered in batches`;
  throw new Fault('MODEL_NOT_ALLOWED', { message });
}

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

function tokenCharge(usage: Usage, price: Price): bigint {
  const { promptTokens = 0, completionTokens = 0, cachedTokens = 0, cacheWriteTokens = 0 } = usage;
  const prompt = BigInt(promptTokens);
  const completion = BigInt(completionTokens);
  assert(prompt >= 0n && completion >= 0n, NOT_NEGATIVE);
  if (prompt === 0n && completion === 0n) return 0n;
  const { tokens, steps } = price;
  const rates =
    steps === undefined ? (tokens ?? unpriced('tokens')) : ratesFor(promptTokens, price);
  if (usage.detail !== undefined || rates.special !== undefined) {
    return tokenLines(usage, price).reduce((sum, { count, rate }) => sum + count * rate, 0n);
  }
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

/** The rates of a prompt of this length. */
function ratesFor(promptTokens: number, { tokens, steps }: Price): TokenRates {
  const step = steps?.find(({ above }) => promptTokens > above);
  return step?.rates ?? tokens ?? unpriced('tokens');
}

/** Tokens of one kind; `rate` is femto-USD per token. */
interface TokenLine {
  readonly kind: TokenPrice;
  readonly count: bigint;
  readonly rate: bigint;
}

/** The tokens of one engine call by kind; kinds without tokens are omitted. */
export function tokenLines(usage: Usage, price: Price): TokenLine[] {
  const { promptTokens = 0, completionTokens = 0, reasoningTokens = 0, detail } = usage;
  const rates = ratesFor(promptTokens, price);
  const { input, output, cacheInput, cacheWrite } = rates;
  const special = specialRates(rates);
  const lines: TokenLine[] = [];
  /** Takes up to `wanted` tokens of the rest, and returns the new rest. */
  const take = (kind: TokenPrice, wanted: number | bigint, rest: bigint, rate?: bigint) => {
    const count = smaller(tokenCount(wanted), rest);
    if (count > 0n) lines.push({ kind, count, rate: rate ?? unpriced('output') });
    return rest - count;
  };
  let rest = tokenCount(promptTokens);
  const cached = smaller(tokenCount(usage.cachedTokens), rest);
  const written = smaller(tokenCount(usage.cacheWriteTokens), rest - cached);
  rest -= cached + written;
  rest = take('audioInput', detail?.audioInput ?? 0, rest, special.audioInput);
  rest = take('imageInput', detail?.imageInput ?? 0, rest, special.imageInput);
  take('input', rest, rest, input);
  take('cacheInput', cached, cached, cacheInput);
  const shorter = take('cacheWrite1h', detail?.cacheWrite1h ?? 0, written, special.cacheWrite1h);
  take('cacheWrite', shorter, shorter, cacheWrite);
  rest = tokenCount(completionTokens);
  rest = take('audioOutput', detail?.audioOutput ?? 0, rest, special.audioOutput);
  rest = take('imageOutput', detail?.imageOutput ?? 0, rest, special.imageOutput);
  if (rates.special !== undefined)
    rest = take('reasoning', reasoningTokens, rest, special.reasoning);
  take('output', rest, rest, output);
  return lines;
}

/** Tokens of one kind and price, as the receipt stores them. */
export interface StoredLine {
  readonly kind: TokenLine['kind'];
  readonly count: number;
  /** USD per 1,000,000 tokens. */
  readonly price: string;
  /** The list price, for an account with its own prices. */
  readonly list?: string;
}

/** The tokens of all engine calls of a request by kind and price. */
export function storedTokenLines(calls: readonly Usage[], price: Price): StoredLine[] {
  const sums = new Map<string, TokenLine & { readonly listRate: bigint | undefined }>();
  for (const call of calls) {
    const atList = price.list && tokenPrices(price.list, call.promptTokens ?? 0);
    for (const line of tokenLines(call, price)) {
      const listRate = atList?.get(line.kind);
      const key = `${line.kind} ${line.rate} ${listRate}`;
      const count = (sums.get(key)?.count ?? 0n) + line.count;
      sums.set(key, { ...line, count, listRate });
    }
  }
  return [...sums.values()].map(({ kind, count, rate, listRate }) => {
    const list = listRate === undefined ? {} : { list: decimalUsd(listRate) };
    return { kind, count: Number(count), price: decimalUsd(rate), ...list };
  });
}

/** Nano-USD per million tokens by kind, for a prompt of this length. */
export function tokenPrices(price: Price, promptTokens: number): ReadonlyMap<string, bigint> {
  if (price.tokens === undefined) return new Map();
  const rates = ratesFor(promptTokens, price);
  const { input, output, cacheInput, cacheWrite } = rates;
  const all = { input, output, cacheInput, cacheWrite, ...specialRates(rates) };
  return new Map(
    Object.entries(all).flatMap(([kind, rate]) => (rate === undefined ? [] : [[kind, rate]])),
  );
}

/** The kinds of tokens in a usage that have no price of their own. */
export function unpricedKinds({ detail }: Usage, { row }: Price): TokenPrice[] {
  const counts = Object.entries(detail ?? {}) as [keyof TokenDetail, number][]; // its members
  return counts.flatMap(([kind, count]) => (count > 0 && row[kind] === undefined ? [kind] : []));
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

export function imagePrice(kind: ImageKind, price: Price): Nano {
  return imageRate(kind, price) ?? unpriced('images');
}

/** The same, or `undefined` if the image has no price. */
export function imageRate({ size, quality }: ImageKind, price: Price): Nano | undefined {
  const rate = price.imageRates.find(
    (one) =>
      (one.size === undefined || one.size === size) &&
      (one.quality === undefined || one.quality === quality),
  );
  return rate?.eachNano ?? price.perImage;
}

/** The maximum of `imagePrice` for all images that match the given properties. */
export function highestImagePrice({ size, quality }: ImageKind, price: Price): Nano {
  let most = ZERO;
  for (const one of price.imageRates) {
    const coversSize = one.size === undefined || one.size === size;
    const coversQuality = one.quality === undefined || one.quality === quality;
    const fits = (coversSize || size === undefined) && (coversQuality || quality === undefined);
    if (fits && one.eachNano > most) most = one.eachNano;
    // Later rates apply to no image of this kind.
    if (coversSize && coversQuality) return most;
  }
  return nano(larger(most, price.perImage ?? unpriced('images')));
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
  const step = price.steps?.find(({ above }) => promptTokens > above);
  return step?.maxRates ?? price.maxRates ?? unpriced('tokens');
}

function unpriced(what: string): never {
  throw new Fault('MODEL_OFFLINE', {
    message: `The model has no price for ${what} and does not sell them`,
    canRetry: false,
  });
}

const NOT_NEGATIVE = 'a usage is not negative';

/** Throws if the value is negative; `BigInt` throws if it is no integer. */
function tokenCount(value: number | bigint = 0): bigint {
  const count = BigInt(value);
  assert(count >= 0n, NOT_NEGATIVE);
  return count;
}

/** Nano-USD of `count` units at a price, for surcharges. */
export function surcharge(count: number, each: Nano): Nano {
  return nano(tokenCount(count) * each);
}
