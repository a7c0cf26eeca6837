/**
 * Computes the cost of served work at the prices that the supplier of the engine charges. It never
 * throws for a missing price: the operator may have configured only some of them.
 */
import type { ServiceTier } from '../config/config.ts';
import { FEMTO_PER_NANO, type Nano, decimalUsd, femtoToNano } from '../core/money.ts';
import type { ImageKind, Price } from './compile-price.ts';
import type { CatalogModel } from './model.ts';
import { type Usage, imageRate, tokenLines } from './pricing.ts';

/** The work of one engine, as its supplier counts it. */
export interface SuppliedWork {
  readonly engine: string;
  /** Model id at the engine; default: that of its first replica. */
  readonly target?: string;
  readonly usage: Usage;
  /** Instead of `usage.images`, for prices by size and quality. Without effect on priced tokens. */
  readonly imageKinds?: readonly ImageKind[];
  /** Number of engine calls. Default 1. */
  readonly calls?: number;
  readonly tier?: ServiceTier | undefined;
}

interface CostLine {
  readonly kind: string;
  readonly count: bigint;
  /** Femto-USD of one. */
  readonly femto: bigint;
  /** USD of one, or of a million tokens or characters, as decimal text. */
  readonly price: string;
}

/** Returns `undefined` if no engine of the work has prices. `startedMs`: for prices by time. */
export function supplierCost(
  { replicas }: Pick<CatalogModel, 'replicas'>,
  works: readonly SuppliedWork[],
  startedMs: number,
) {
  const sums = new Map<string, CostLine>();
  let isKnown = false;
  for (const work of works) {
    const { engine, target, tier } = work;
    const served = replicas.find(
      (one) => one.engine === engine && (target === undefined || one.model === target),
    );
    if (served?.cost === undefined) continue;
    isKnown = true;
    const price = served.cost.variants?.at(startedMs, tier) ?? served.cost;
    for (const line of linesOf(work, price)) {
      const key = `${line.kind} ${line.price}`;
      sums.set(key, { ...line, count: (sums.get(key)?.count ?? 0n) + line.count });
    }
  }
  if (!isKnown) return undefined;
  const lines = [...sums.values()];
  const nano: Nano = femtoToNano(lines.reduce((sum, { count, femto }) => sum + count * femto, 0n));
  return {
    nano,
    lines: lines.map(({ kind, count, price }) => [kind, Number(count), price] as const),
  };
}

const MS_PER_SECOND = 1_000n;

function linesOf({ usage, imageKinds, calls = 1 }: SuppliedWork, price: Price): CostLine[] {
  const { tokens, perCharacter, perSearch, perSecond, perRequest } = price;
  // A price without output is that of a model without output.
  const isWithoutOutput = tokens?.output === undefined;
  const counted = isWithoutOutput ? { ...usage, completionTokens: 0 } : usage;
  const ofTokens = tokens === undefined ? [] : tokenLines(counted, price);
  // A price per image is for images without reported tokens.
  const isByImage = tokens === undefined || !usage.completionTokens;
  const images = isByImage
    ? (imageKinds ?? Array.from({ length: usage.images ?? 0 }, () => ({})))
    : [];
  const tokenCosts = ofTokens.map(({ kind, count, rate }) => {
    return { kind, count, femto: rate, price: decimalUsd(rate) };
  });
  const perMs = perSecond && (perSecond * FEMTO_PER_NANO) / MS_PER_SECOND;
  const lines = [
    ...tokenCosts,
    ...images.flatMap((kind) => unitCost('image', 1, imageRate(kind, price))),
    ...unitCost('searches', usage.searches, perSearch),
    ...unitCost('request', calls, perRequest === 0n ? undefined : perRequest),
    ...unitCost('audio_ms', usage.audioMs, perSecond, perMs),
    ...unitCost('characters', usage.characters, perCharacter, perCharacter),
  ];
  return lines.filter(({ count }) => count > 0n);
}

/** `price`: nano-USD, as the receipt shows it; `femto`: the same for one unit. */
function unitCost(
  kind: string,
  count = 0,
  price?: bigint,
  femto = price && price * FEMTO_PER_NANO,
): CostLine[] {
  if (price === undefined || femto === undefined) return [];
  return [{ kind, count: BigInt(count), femto, price: decimalUsd(price) }];
}
