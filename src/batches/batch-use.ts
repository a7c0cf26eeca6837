/**
 * What the requests of a batch used and cost. It stands beside each line of the result, written in the
 * transaction that charged it, so that the sum is exact whoever ran the lines.
 */
import { NO_TOKENS, type Settlement, type TokenCounts } from '../billing/ledger/ledger.ts';
import { nano, toUsdNumber } from '../core/money.ts';

/** Money in nano-USD. */
export interface BatchUse {
  readonly usdNano: bigint;
  readonly diemNano: bigint;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
  readonly reasoningTokens: number;
}

/** The columns of every table that holds a use. */
export interface UseRow {
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly cached_tokens: bigint;
  readonly reasoning_tokens: bigint;
}

/** In the order of `useValues`. */
export const USE_COLUMNS = [
  'usd_nano',
  'diem_nano',
  'prompt_tokens',
  'completion_tokens',
  'cached_tokens',
  'reasoning_tokens',
] as const satisfies readonly (keyof UseRow)[];

export const NO_USE: BatchUse = {
  usdNano: 0n,
  diemNano: 0n,
  promptTokens: 0,
  completionTokens: 0,
  cachedTokens: 0,
  reasoningTokens: 0,
};

export function useOf(
  { usdNano, diemNano }: Pick<Settlement, 'usdNano' | 'diemNano'>,
  { prompt, completion, cached, reasoning }: TokenCounts = NO_TOKENS,
): BatchUse {
  return {
    usdNano,
    diemNano,
    promptTokens: prompt,
    completionTokens: completion,
    cachedTokens: cached,
    reasoningTokens: reasoning,
  };
}

export function sumOfUses(a: BatchUse, b: BatchUse): BatchUse {
  return {
    usdNano: a.usdNano + b.usdNano,
    diemNano: a.diemNano + b.diemNano,
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  };
}

export function useValues(use: BatchUse): (bigint | number)[] {
  const { usdNano, diemNano, promptTokens, completionTokens, cachedTokens, reasoningTokens } = use;
  return [usdNano, diemNano, promptTokens, completionTokens, cachedTokens, reasoningTokens];
}

export function useOfRow(row: UseRow): BatchUse {
  return {
    usdNano: row.usd_nano,
    diemNano: row.diem_nano,
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    cachedTokens: Number(row.cached_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
  };
}

/** Usage in OpenAI's form, and our cost beside it. */
export function useBody(use: BatchUse) {
  const { promptTokens: input_tokens, completionTokens: output_tokens } = use;
  return {
    usage: {
      input_tokens,
      input_tokens_details: { cached_tokens: use.cachedTokens },
      output_tokens,
      output_tokens_details: { reasoning_tokens: use.reasoningTokens },
      total_tokens: input_tokens + output_tokens,
    },
    cost: { usd: toUsdNumber(nano(use.usdNano)), diem: toUsdNumber(nano(use.diemNano)) },
  };
}
