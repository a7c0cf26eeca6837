/**
 * Usage and cost of the requests of a batch. Each line of the result has its own row, written in the
 * transaction that charges it, so that the sum is exact across processes.
 */
import * as z from 'zod';
import { NO_TOKENS, type Settlement, type TokenCounts } from '../billing/ledger/ledger.ts';
import { nano, toUsdNumber } from '../core/money.ts';
import { type Row, snakeCase } from '../db/db.ts';

const FIGURES = [
  'usdNano',
  'diemNano',
  'promptTokens',
  'completionTokens',
  'cachedTokens',
  'reasoningTokens',
] as const;
type Figure = (typeof FIGURES)[number];

export type BatchUse = Readonly<Record<Figure, bigint>>;

function eachFigure<T>(of: (name: Figure) => T): Record<Figure, T> {
  return Object.fromEntries(FIGURES.map((name) => [name, of(name)])) as Record<Figure, T>; // all
}

/** In the order of `useValues`. */
export const USE_COLUMNS = FIGURES.map(snakeCase);
/** NULL in a batch from before usage was counted. */
export const MAYBE_USE_SHAPE = eachFigure(() => z.bigint().nullable());
export const NO_USE: BatchUse = eachFigure(() => 0n);

export function useOf(
  { usdNano, diemNano }: Pick<Settlement, 'usdNano' | 'diemNano'>,
  { prompt, completion, cached, reasoning }: TokenCounts = NO_TOKENS,
): BatchUse {
  return {
    usdNano,
    diemNano,
    promptTokens: BigInt(prompt),
    completionTokens: BigInt(completion),
    cachedTokens: BigInt(cached),
    reasoningTokens: BigInt(reasoning),
  };
}

export function sumOfUses(a: BatchUse, b: BatchUse): BatchUse {
  return eachFigure((name) => a[name] + b[name]);
}

export function useValues(use: BatchUse): bigint[] {
  return FIGURES.map((name) => use[name]);
}

/** The usage in a row; `undefined` if it was not counted. */
export function useOfRow(row: Readonly<Record<Figure, bigint | null>>): BatchUse | undefined {
  return row.usdNano === null ? undefined : eachFigure((name) => row[name] ?? 0n);
}

/** The sums of `USE_COLUMNS` over lines. */
export function useOfSums(row: Row): BatchUse {
  return eachFigure((name) => BigInt(String(row[snakeCase(name)])));
}

export function useBody(use: BatchUse) {
  const [input_tokens, output_tokens] = [Number(use.promptTokens), Number(use.completionTokens)];
  return {
    usage: {
      input_tokens,
      input_tokens_details: { cached_tokens: Number(use.cachedTokens) },
      output_tokens,
      output_tokens_details: { reasoning_tokens: Number(use.reasoningTokens) },
      total_tokens: input_tokens + output_tokens,
    },
    cost: { usd: toUsdNumber(nano(use.usdNano)), diem: toUsdNumber(nano(use.diemNano)) },
  };
}
