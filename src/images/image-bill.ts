/**
 * The hold and the charge of images. Each image costs the price of its size and quality. With token
 * prices, the tokens that the engine reports are charged instead, up to the hold, in which the price
 * per image is the limit of the output.
 */
import type { Outcome } from '../billing/sale.ts';
import {
  type CatalogModel,
  type ImageKind,
  type Price,
  boundFor,
  chargeFor,
  highestImagePrice,
  imagePrice,
  storedTokenLines,
  supplierCost,
  surcharge,
} from '../catalog/catalog.ts';
import { decimalUsd, type Nano, nano, smaller } from '../core/money.ts';
import type { Replica } from '../engines/engines.ts';
import { type TokenUsage, readUsage } from '../engines/usage.ts';
import type { HeldWork } from '../http/sell-work.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';

/** The part of an order that determines its price. */
export interface PricedImages {
  readonly prompt: string;
  readonly count: number;
  readonly inputImages?: number;
  /** Requested by the caller; `undefined` lets the engine choose. */
  readonly kind: ImageKind;
}

/** Prompt tokens that an engine adds to the text. */
const ADDED_PROMPT_TOKENS = 64;

/** The most that an order can cost. */
export function imagesBound(
  { kind, count, prompt, inputImages }: PricedImages,
  { model, price }: { readonly model: CatalogModel; readonly price: Price },
): Nano {
  const output = surcharge(count, highestImagePrice(kind, price));
  if (price.tokens === undefined) return nano(price.perRequest + output);
  // One more image for a mask.
  const images = inputImages === undefined ? 0 : inputImages + 1;
  // A token has at least one byte.
  const ofText = Buffer.byteLength(prompt) + ADDED_PROMPT_TOKENS;
  const promptTokens = ofText + images * model.imageTokens;
  return nano(boundFor({ promptTokens }, price) + output);
}

/** Generated images. `usage`: as reported by the engine. */
export interface ImageWork {
  readonly sizes: readonly string[];
  readonly quality: string | undefined;
  readonly usage: JsonObject | undefined;
}

/** The charge, the counts and the lines of the receipt, and the cost of the supplier. */
export function billImages(
  { sizes, quality: made, usage }: ImageWork,
  order: PricedImages,
  held: HeldWork,
  replica: Replica | undefined,
): Pick<Outcome, 'costNano' | 'tokens' | 'countedBy' | 'extras' | 'supplier'> {
  const quality = order.kind.quality ?? made;
  const tokens = tokensIn(usage);
  const charge =
    tokens === undefined || held.price.tokens?.output === undefined
      ? chargeByKind(sizes, { ...order.kind, quality }, held.price)
      : chargeByTokens(tokens, sizes.length, order, held);
  const { model, sale } = held;
  if (!model.hasCosts || replica === undefined) return charge;
  const imageKinds = sizes.map((size) => ({ size, quality }));
  const { engine, model: target } = replica;
  const work = { engine, target, usage: tokens ?? {}, imageKinds };
  return { ...charge, supplier: supplierCost(model, [work], sale.startedMs) };
}

function chargeByTokens(
  usage: TokenUsage,
  images: number,
  order: PricedImages,
  held: HeldWork,
): Pick<Outcome, 'costNano' | 'tokens' | 'countedBy' | 'extras'> {
  const { promptTokens, completionTokens, cachedTokens, cacheWriteTokens, reasoningTokens } = usage;
  return {
    costNano: smaller(chargeFor(usage, held.price), imagesBound(order, held)),
    tokens: {
      prompt: promptTokens,
      completion: completionTokens,
      cached: cachedTokens,
      cacheWrite: cacheWriteTokens,
      reasoning: reasoningTokens,
    },
    countedBy: 'engine',
    extras: { images, lines: storedTokenLines([usage], held.price) },
  };
}

/** Tokens of the output without details are image tokens. `undefined` if there is no output. */
function tokensIn(usage: JsonObject | undefined): TokenUsage | undefined {
  const read = readUsage(usage);
  if (usage === undefined || read === undefined || read.completionTokens === 0) return undefined;
  if (isJsonObject(usage['output_tokens_details'] ?? usage['completion_tokens_details'])) {
    return read;
  }
  const { completionTokens: imageOutput, detail = NO_DETAIL } = read;
  return { ...read, detail: { ...detail, imageOutput } };
}

const NO_DETAIL = { cacheWrite1h: 0, audioInput: 0, imageInput: 0, audioOutput: 0 };

/**
 * The charge for images of these sizes, and their prices for the receipt: an image smaller than
 * requested has its own price; a larger one is never billed higher.
 */
function chargeByKind(
  sizes: readonly string[],
  { size: wanted, quality }: ImageKind,
  price: Price,
): Pick<Outcome, 'costNano' | 'extras'> {
  const eachOf = (size: string, prices: Price): Nano => {
    const made = imagePrice({ size, quality }, prices);
    return wanted === undefined
      ? made
      : smaller(made, imagePrice({ size: wanted, quality }, prices));
  };
  const lines = new Map<string, { kind: string; count: number; price: string; list?: string }>();
  let sum: bigint = price.perRequest;
  for (const size of sizes) {
    const each = eachOf(size, price);
    sum += each;
    const list = price.list && { list: decimalUsd(eachOf(size, price.list)) };
    const key = `${each} ${list?.list}`;
    const count = (lines.get(key)?.count ?? 0) + 1;
    lines.set(key, { kind: 'image', count, price: decimalUsd(each), ...list });
  }
  return { costNano: nano(sum), extras: { images: sizes.length, lines: [...lines.values()] } };
}
