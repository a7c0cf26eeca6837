/**
 * Compares the prices of a model with the costs of its replicas, for the operator: each kind of
 * work, at each step of long prompts, for each service tier and time of day.
 */
import {
  type CallerPrices,
  type PriceSource,
  type ServiceTier,
  ruleFor,
  stepsOf,
} from '../config/config.ts';
import { decimalUsd, usdToNano } from '../core/money.ts';
import type { Price } from './compile-price.ts';
import { soldModel } from './customer-prices.ts';
import type { CatalogModel } from './model.ts';
import { tokenPrices } from './pricing.ts';

/** One price beside its cost; amounts are USD as decimal text. */
export interface Margin {
  readonly engine: string;
  /** Name of the price in the settings. */
  readonly kind: string;
  /** The service tier; `undefined` for the standard price. */
  readonly tier: ServiceTier | undefined;
  /** Prompt tokens above which both apply. */
  readonly above: number;
  /** Time of day from which both apply, UTC; `undefined` if it has no effect. */
  readonly from: string | undefined;
  /** The list price, which differs from `sold` for a customer with own prices. */
  readonly list: string;
  readonly sold: string;
  readonly cost: string;
  /** Share of the price that remains, in percent with one decimal; `null` if the price is 0. */
  readonly percent: number | null;
}

const TIERS = [undefined, 'flex', 'priority', 'batch'] as const;

/** The margins of a model with its configured costs. */
export function marginsOf(model: CatalogModel): Margin[] {
  if (model.video !== undefined) return videoMargins(model);
  return model.replicas.flatMap(({ engine, cost }) =>
    cost === undefined ? [] : againstCost(model, engine, cost),
  );
}

function againstCost(model: CatalogModel, engine: string, cost: Price | undefined): Margin[] {
  return TIERS.flatMap((tier) => {
    const sold = soldPrice(model, tier);
    return sold === undefined ? [] : ofTier(engine, tier, sold, cost ?? sold);
  });
}

/** A price of a customer beside the list price and the cost of the supplier, if it is known. */
export interface PriceLine extends Omit<Margin, 'engine' | 'list' | 'cost'> {
  readonly engine: string | null;
  readonly list: string | null;
  readonly cost: string | null;
}

/** All prices of a model for a customer, and the place of the rule that sets them. */
export function pricesFor(
  listed: CatalogModel,
  prices: CallerPrices,
): { readonly source: PriceSource | undefined; readonly lines: readonly PriceLine[] } {
  const model = soldModel(listed, prices);
  const source = ruleFor(prices, listed)?.source;
  if (model.video !== undefined) return { source, lines: videoLines(listed, model) };
  const margins = marginsOf(model);
  const costed = new Set(margins.map(({ kind }) => kind));
  const others = againstCost(model, '', undefined).filter(({ kind }) => !costed.has(kind));
  const lines = [...margins, ...others.map((one) => ({ ...one, ...WITHOUT_COST }))];
  return { source, lines };
}

const WITHOUT_COST = { engine: null, cost: null, percent: null } as const;

function videoLines(listed: CatalogModel, sold: CatalogModel): PriceLine[] {
  const list = new Map(amountsIn(listed.video?.pricing));
  return amountsIn(sold.video?.pricing).map(([kind, usd]) => {
    const usual = list.get(kind);
    return {
      ...WITHOUT_COST,
      ...WITHOUT_STEPS,
      kind,
      list: usual === undefined ? null : decimalUsd(usdToNano(usual)),
      sold: decimalUsd(usdToNano(usd)),
    };
  });
}

/** Amounts of the same name; pricings of different kinds cannot be compared. */
function videoMargins({ video, listModel, replicas }: CatalogModel): Margin[] {
  const list = new Map(amountsIn(listModel?.video?.pricing));
  return replicas.flatMap(({ engine, videoCost }) => {
    if (video === undefined || videoCost?.kind !== video.pricing.kind) return [];
    const costs = new Map(amountsIn(videoCost));
    return amountsIn(video.pricing).flatMap(([kind, usd]) => {
      const cost = costs.get(kind);
      if (cost === undefined) return [];
      const amounts = { list: list.get(kind) ?? usd, sold: usd, cost };
      return {
        ...WITHOUT_STEPS,
        ...amounts,
        engine,
        kind,
        percent: percentOf(usdToNano(usd), usdToNano(cost)),
      };
    });
  });
}

const WITHOUT_STEPS = { tier: undefined, above: 0, from: undefined } as const;

/** Share of the price that remains, with one decimal; `null` if the price is 0. */
function percentOf(soldNano: bigint, costNano: bigint): number | null {
  return soldNano === 0n ? null : Number(((soldNano - costNano) * 1_000n) / soldNano) / 10;
}

/** The amounts of a pricing with their names, such as `rates.720p.sound`. */
function amountsIn(value: unknown, name = ''): [name: string, usd: string][] {
  if (typeof value === 'string') return name === 'kind' ? [] : [[name, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, one]) =>
    amountsIn(one, name === '' ? key : `${name}.${key}`),
  );
}

export function isLoss({ percent, cost }: Margin): boolean {
  return percent === null ? Number(cost) > 0 : percent < 0;
}

export function lossText({ engine, kind, tier, above, from, sold, cost }: Margin): string {
  const where = [
    tier === undefined ? '' : `, service tier ${tier}`,
    above === 0 ? '' : `, above ${above} prompt tokens`,
    from === undefined ? '' : `, from ${from} UTC`,
  ].join('');
  return `${kind}${where} is sold for ${sold} USD and costs ${cost} USD at ${engine}`;
}

/** `undefined` if the model does not sell the tier. */
function soldPrice(model: CatalogModel, tier: ServiceTier | undefined): Price | undefined {
  if (tier === 'batch') return model.batchPrice;
  const tiers = model.price?.variants?.settings.serviceTiers;
  return tier === undefined || tiers?.[tier] !== undefined ? model.price : undefined;
}

function ofTier(engine: string, tier: Margin['tier'], sold: Price, cost: Price): Margin[] {
  const windows = [sold, cost].flatMap(({ variants }) => variants?.settings.windows ?? []);
  const times = new Set(windows.flatMap(({ from, to }) => [from, to]));
  // A batch price has its own windows, but no tiers.
  const soldTier = tier === 'batch' ? undefined : tier;
  return [...(times.size === 0 ? [undefined] : times)].flatMap((from) => {
    const soldThen = sold.variants?.at(from ?? NOON, soldTier) ?? sold;
    const costThen = cost.variants?.at(from ?? NOON, tier) ?? cost;
    return compared(soldThen, costThen).map((one) => ({ engine, tier, from, ...one }));
  });
}

/** Any time, if there are no windows. */
const NOON = '12:00';

type Compared = Pick<Margin, 'kind' | 'above' | 'list' | 'sold' | 'cost' | 'percent'>;

function compared(sold: Price, cost: Price): Compared[] {
  const thresholds = [sold, cost].flatMap(({ row }) => stepsOf(row).map(({ above }) => above));
  // A kind that no row names has the price of the tokens that contain it on both sides.
  const isNamed = (kind: string) =>
    [sold, cost].some(({ row }) => [row, ...stepsOf(row)].some((one) => kind in one));
  const list = sold.list ?? sold;
  const tokens = [...new Set([0, ...thresholds])].flatMap((above) => {
    const at = (price: Price) => tokenPrices(price, above + 1);
    return differences(at(list), at(sold), at(cost), above);
  });
  const units = differences(unitPrices(list), unitPrices(sold), unitPrices(cost), 0);
  return [...tokens.filter(({ kind }) => isNamed(kind)), ...units];
}

type Named = ReadonlyMap<string, bigint>;

/** Compares each kind that the supplier charges for. */
function differences(list: Named, sold: Named, cost: Named, above: number): Compared[] {
  return [...cost].map(([kind, costNano]) => {
    const soldNano = sold.get(kind) ?? 0n;
    return {
      kind,
      above,
      list: decimalUsd(list.get(kind) ?? 0n),
      sold: decimalUsd(soldNano),
      cost: decimalUsd(costNano),
      percent: percentOf(soldNano, costNano),
    };
  });
}

function unitPrices(price: Price): Named {
  const all: [string, bigint | undefined][] = [
    ['perImage', price.perImage],
    ['perSecond', price.perSecond],
    ['perMillionCharacters', price.perCharacter],
    ['perSearch', price.perSearch],
    ['perRequest', price.perRequest === 0n ? undefined : price.perRequest],
  ];
  return new Map(all.flatMap(([kind, amount]) => (amount === undefined ? [] : [[kind, amount]])));
}
