/** The price of a model beside its cost. */
import type { PricesResponse } from '../shapes.ts';

export type Margin = PricesResponse['data'][number]['margins'][number];

/** For example `input, batch, above 200000 tokens`. */
export function priceName({ kind, tier, above, from }: Margin): string {
  const parts = [kind, tier, above > 0 && `above ${above} tokens`, from && `from ${from} UTC`];
  return parts.filter(Boolean).join(', ');
}

/** Whether the price is below the cost; `false` without a known cost. */
export function isLoss({ cost, percent }: Margin): boolean {
  return percent === null ? Number(cost) > 0 : percent < 0;
}
