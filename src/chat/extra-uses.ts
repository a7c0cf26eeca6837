/**
 * What a chat request uses beside tokens, each with its count and its price: the surcharge of the
 * bill and the lines of the receipt are made of the same list.
 */
import { surcharge } from '../catalog/catalog.ts';
import { type Nano, ZERO, formatUsd, nano } from '../core/money.ts';

export interface ExtraUse {
  /** In the words of the request's parameters. */
  readonly name: 'web_search' | 'web_scraping' | 'x_search';
  /** Searches, pages, results. */
  readonly count: number;
  readonly eachNano: Nano;
}

/** Prices of one search, of one page that was read, of one result of an engine's own search. */
export interface ExtraPrices {
  readonly searchNano: Nano;
  readonly pageNano: Nano;
  readonly socialNano: Nano;
}

const USD_DECIMALS = 9;

/** What the uses cost together. */
export function surchargesOf(uses: readonly ExtraUse[]): Nano {
  return uses.reduce((sum, use) => nano(sum + surcharge(use.count, use.eachNano)), ZERO);
}

/** The lines of the receipt, with USD as exact decimal text. */
export function receiptLines(
  uses: readonly ExtraUse[],
): Record<string, { readonly count: number; readonly usd: string }> {
  const lines = uses
    .filter((use) => use.count > 0)
    .map((use) => {
      const usd = formatUsd(surcharge(use.count, use.eachNano), USD_DECIMALS);
      return [use.name, { count: use.count, usd }] as const;
    });
  return Object.fromEntries(lines);
}
