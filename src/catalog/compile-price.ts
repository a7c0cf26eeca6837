/**
 * Compiles the configured prices of a model: rates of all kinds of tokens, steps of long prompts,
 * and the rows of service tiers and times of day. Prices are exact integers (femto-USD per token,
 * nano-USD per unit).
 */
import {
  type ModelType,
  type PriceSettings,
  type ServiceTier,
  stepsOf,
  type TokenPrice,
} from '../config/config.ts';
import { type Clock, DAY_MS, MINUTE_MS } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import {
  type Nano,
  decimalUsd,
  divideHalfUp,
  larger,
  perMillionToFemto,
  usdToNano,
} from '../core/money.ts';

/** Femto-USD per token. */
export interface TokenRates {
  readonly input: bigint;
  /** Missing if the work has no output (embeddings). */
  readonly output: bigint | undefined;
  readonly cacheInput: bigint;
  readonly cacheWrite: bigint;
  /** `undefined` if these tokens have the prices of other ones. */
  readonly special: SpecialRates | undefined;
}

interface SpecialRates {
  readonly cacheWrite1h: bigint;
  readonly audioInput: bigint;
  readonly imageInput: bigint;
  readonly reasoning: bigint | undefined;
  readonly audioOutput: bigint | undefined;
  readonly imageOutput: bigint | undefined;
}

/** Maximum price of a token; a bound does not know which kind of token it will be. */
export type MaxRates = Pick<TokenRates, 'input' | 'output'>;

/**
 * Rates of the whole request if the prompt has more than `above` tokens. A prompt whose bound is
 * above may still be shorter, so its maximum rates are the highest of this and all lower steps.
 */
interface Step {
  readonly above: number;
  readonly rates: TokenRates;
  readonly maxRates: MaxRates;
}

export interface Price {
  /** 12 hex digits of the row's hash; stored with every usage record. */
  readonly version: string;
  readonly tokens: TokenRates | undefined;
  readonly maxRates: MaxRates | undefined;
  /** Longest prompts first. */
  readonly steps: readonly Step[] | undefined;
  readonly perImage: Nano | undefined;
  /** By size and quality; the first match applies. */
  readonly imageRates: readonly ImageRate[];
  readonly perSecond: Nano | undefined;
  readonly perCharacter: bigint | undefined;
  readonly perSearch: Nano | undefined;
  readonly perRequest: Nano;
  /** The row as configured, without tiers and windows, for lists. */
  readonly row: PriceRow;
  /** Prices by service tier and time of day; `undefined` if there are none. */
  readonly variants: PriceVariants | undefined;
  /** The list price of the same work, if this is the own price of a customer. */
  readonly list: Price | undefined;
}

type PriceRow = Omit<PriceSettings, 'serviceTiers' | 'windows'>;

/** Properties of an image that determine its price; a missing one matches any. */
export interface ImageKind {
  readonly size?: string | undefined;
  readonly quality?: string | undefined;
}

interface ImageRate extends ImageKind {
  readonly eachNano: Nano;
}

const VERSION_DIGITS = 12;

/** `clock` is needed for prices by time of day. */
export interface PriceOptions {
  readonly type: ModelType;
  readonly clock: Pick<Clock, 'nowMs'>;
  /** The list price, for the own price of a customer. */
  readonly list?: Price | undefined;
  /** Receives each compiled price, variants included. */
  readonly keep?: ((price: Price) => void) | undefined;
}

/** Compiles validated prices; a missing price is `undefined`, and the work cannot be sold. */
export function compilePrice(settings: PriceSettings, options?: PriceOptions): Price {
  const { serviceTiers, windows, ...row } = settings;
  const varies = serviceTiers ?? windows ?? options?.list?.variants;
  const variants =
    options === undefined || varies === undefined
      ? undefined
      : new PriceVariants(settings, options);
  return compileRow(row, options ?? {}, variants);
}

function compileRow(
  row: PriceRow,
  { list, keep }: Pick<PriceOptions, 'list' | 'keep'>,
  variants?: PriceVariants,
): Price {
  const amount = (usd: string | undefined) => (usd === undefined ? undefined : usdToNano(usd));
  const tokens = compileRates(row);
  const price: Price = {
    version: versionOf(row, list),
    tokens,
    maxRates: tokens && maxRatesOf(tokens),
    steps: compileSteps(row, tokens),
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
    variants,
    list,
  };
  keep?.(price);
  return price;
}

/** The prices of a model by service tier and time of day, compiled when they are first used. */
class PriceVariants {
  readonly settings: PriceSettings;
  readonly #options: PriceOptions;
  readonly #compiled = new Map<string, Price>();

  constructor(settings: PriceSettings, options: PriceOptions) {
    this.settings = settings;
    this.#options = options;
  }

  /** The price of a request that starts now. A tier without a price has the standard price. */
  now(tier: ServiceTier | undefined): Price {
    return this.at(this.#options.clock.nowMs(), tier);
  }

  /** The price at a time of day: a text such as `16:30`, or Unix milliseconds. */
  at(time: string | number, tier: ServiceTier | undefined): Price {
    const { windows = [] } = this.settings;
    const minute =
      typeof time === 'string' ? minuteOf(time) : Math.floor((time % DAY_MS) / MINUTE_MS);
    const { list } = this.#options;
    return this.of(
      windows.find(({ from, to }) => isWithin(minute, from, to)),
      tier,
      list?.variants?.at(time, tier) ?? list,
    );
  }

  /** The price in a window of the settings. `list`: the list price at the same time. */
  of(
    window: Variation | undefined,
    tier: ServiceTier | undefined,
    list: Price | undefined = this.#options.list,
  ): Price {
    const { serviceTiers, windows: _windows, ...row } = this.settings;
    const key = `${window?.from} ${window?.to} ${tier} ${list?.version}`;
    const known = this.#compiled.get(key);
    if (known !== undefined) return known;
    const { type, keep } = this.#options;
    const variations = [window, tier && serviceTiers?.[tier]];
    const made = compileRow(
      variations.reduce<PriceRow>((sum, one) => (one ? variedRow(sum, one, type) : sum), row),
      { list, keep },
    );
    this.#compiled.set(key, made);
    return made;
  }

  /** Every price that was used. */
  used(): Iterable<Price> {
    return this.#compiled.values();
  }
}

/** The row with the factor and the prices of a window or tier. */
function variedRow<T extends PriceRow>(row: T, variation: Variation, type: ModelType): T {
  const { factor, from: _from, to: _to, ...own } = variation;
  return { ...(factor === undefined ? row : scaledRow(row, factor, type)), ...own };
}

type Variation = NonNullable<NonNullable<PriceSettings['serviceTiers']>[ServiceTier]> & {
  readonly from?: string;
  readonly to?: string;
};

function isWithin(minute: number, from: string, to: string): boolean {
  const [start, end] = [minuteOf(from), minuteOf(to)];
  return start < end ? minute >= start && minute < end : minute >= start || minute < end;
}

function minuteOf(time: string): number {
  return Number(time.slice(0, 2)) * 60 + Number(time.slice(3));
}

/** The service tier of a request, if the model sells it. */
export function soldTier(price: Price | undefined, wanted: unknown): ServiceTier | undefined {
  const tier = wanted === 'flex' || wanted === 'priority' ? wanted : undefined;
  const tiers = price?.variants?.settings.serviceTiers;
  return tier === undefined || tiers?.[tier] === undefined ? undefined : tier;
}

/** Equal rows have equal versions, whatever the order and format of their amounts. */
function versionOf(row: PriceRow, list: Price | undefined): string {
  const { extended: _steps, imageRates = [], ...flat } = row;
  const parts = Object.entries(flat).flatMap(([key, usd]) =>
    usd === undefined ? [] : [`${key}=${usdToNano(usd)}`],
  );
  for (const [place, { above, ...long }] of stepsOf(row).entries()) {
    const name = place === 0 ? 'extended' : `extended${place}`;
    parts.push(`${name}.above=${above}`);
    for (const [key, usd] of Object.entries(long)) {
      if (usd !== undefined) parts.push(`${name}.${key}=${usdToNano(usd)}`);
    }
  }
  // The order matters, because the first match applies.
  for (const [place, { size = '', quality = '', perImage }] of imageRates.entries()) {
    parts.push(`image.${place}.${size}.${quality}=${usdToNano(perImage)}`);
  }
  const text = parts.toSorted().join('&');
  const own = list === undefined ? text : `${text}|${list.version}`;
  return sha256Hex(own).slice(0, VERSION_DIGITS);
}

type TokenRow = Pick<PriceRow, TokenPrice>;

function compileRates(row: TokenRow): TokenRates | undefined {
  if (row.input === undefined) return undefined;
  const femto = (usd: string | undefined) =>
    usd === undefined ? undefined : perMillionToFemto(usd);
  const input = perMillionToFemto(row.input);
  const output = femto(row.output ?? row.imageOutput);
  const cacheInput = femto(row.cacheInput) ?? input;
  const cacheWrite = femto(row.cacheWrite) ?? input;
  const { cacheWrite1h, audioInput, imageInput, reasoning, audioOutput, imageOutput } = row;
  const own = [cacheWrite1h, audioInput, imageInput, reasoning, audioOutput, imageOutput];
  const usual = { input, output, cacheInput, cacheWrite, special: undefined };
  if (own.every((usd) => usd === undefined)) return usual;
  const rates = specialRates(usual);
  const special = {
    cacheWrite1h: femto(cacheWrite1h) ?? rates.cacheWrite1h,
    audioInput: femto(audioInput) ?? rates.audioInput,
    imageInput: femto(imageInput) ?? rates.imageInput,
    reasoning: femto(reasoning) ?? rates.reasoning,
    audioOutput: femto(audioOutput) ?? rates.audioOutput,
    imageOutput: femto(imageOutput) ?? rates.imageOutput,
  };
  return { ...usual, special };
}

/** The rates of tokens that can have prices of their own; without one they have those of other tokens. */
export function specialRates({ input, output, cacheWrite, special }: TokenRates): SpecialRates {
  if (special !== undefined) return special;
  const cacheWrite1h = larger(cacheWrite, input);
  const ofPrompt = { cacheWrite1h, audioInput: input, imageInput: input };
  return { ...ofPrompt, reasoning: output, audioOutput: output, imageOutput: output };
}

function compileSteps(row: PriceRow, base: TokenRates | undefined): Price['steps'] {
  if (row.extended === undefined || base === undefined) return undefined;
  let most = maxRatesOf(base);
  const steps: Step[] = [];
  for (const { above, ...long } of stepsOf(row)) {
    const rates = compileRates({ ...row, ...withoutUndefined(long) }) ?? base;
    most = largerRates(maxRatesOf(rates), most);
    steps.unshift({ above, rates, maxRates: most });
  }
  return steps;
}

function withoutUndefined<T extends object>(value: T): T {
  // Only optional keys are removed.
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as T;
}

function maxRatesOf({ input, output, cacheInput, cacheWrite, special }: TokenRates): MaxRates {
  const usual = larger(input, larger(cacheInput, cacheWrite));
  if (special === undefined) return { input: usual, output };
  const { cacheWrite1h, audioInput, imageInput, reasoning, audioOutput, imageOutput } = special;
  const ofPrompt = [cacheWrite1h, audioInput, imageInput].reduce(larger, usual);
  const ofOutput = [reasoning, audioOutput, imageOutput].filter((rate) => rate !== undefined);
  return {
    input: ofPrompt,
    output: output === undefined ? output : ofOutput.reduce(larger, output),
  };
}

function largerRates(a: MaxRates, b: MaxRates): MaxRates {
  const output =
    a.output === undefined || b.output === undefined ? undefined : larger(a.output, b.output);
  return { input: larger(a.input, b.input), output };
}

/** The prices of requests in batches: those of the tier `batch`, else scaled by the factor. */
export function compileBatchPrice(
  { serviceTiers, ...settings }: PriceSettings,
  factor: string,
  options: PriceOptions,
): Price {
  const batch = serviceTiers?.batch;
  const row = batch
    ? variedRow(settings, batch, options.type)
    : scaledRow(settings, factor, options.type);
  return compilePrice(row, options);
}

/**
 * Prices scaled by a factor: a row, or the pricing of a video model. Each price is rounded half up
 * to its last decimal. Search prices of a text model stay, because third parties are paid for searches.
 */
export function scaledRow<T extends object>(row: T, factor: string, type: ModelType): T {
  const factorNano = usdToNano(factor);
  const scaled = (value: unknown, name: string): unknown => {
    if (Array.isArray(value)) return value.map((one) => scaled(one, name));
    if (typeof value === 'object' && value !== null) {
      const entries = Object.entries(value).map(([key, one]) => [key, scaled(one, key)]);
      return Object.fromEntries(entries);
    }
    const isAmount = typeof value === 'string' && !NO_AMOUNTS.has(name);
    if (!isAmount || (name === 'perSearch' && type === 'text')) return value;
    return decimalUsd(divideHalfUp(usdToNano(value) * factorNano, NANO_PER_USD));
  };
  return scaled(row, '') as T; // the same members
}

const NO_AMOUNTS: ReadonlySet<string> = new Set([
  'size',
  'quality',
  'from',
  'to',
  'factor',
  'kind',
]);

const NANO_PER_USD = 1_000_000_000n;
