/**
 * Reads an engine's ranking in any common format, most relevant first; rejects incomplete or
 * repeated entries.
 */
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';

export interface Ranked {
  readonly index: number;
  readonly score: number;
}

export interface ReadRanking {
  readonly ranked: readonly Ranked[];
  readonly tokens: number | undefined;
}

export function readRanking(
  answer: unknown,
  count: number,
  wanted: number,
): ReadRanking | undefined {
  // Cohere, Jina, vLLM and llama.cpp use `results`, Voyage uses `data`, TEI returns a list.
  const list: unknown = isJsonObject(answer) ? (answer['results'] ?? answer['data']) : answer;
  if (!Array.isArray(list)) return undefined;
  const ranked: Ranked[] = [];
  const seen = new Set<number>();
  for (const one of list) {
    if (!isJsonObject(one)) return undefined;
    const { index, relevance_score: given, score = given } = one;
    if (typeof index !== 'number' || !Number.isSafeInteger(index)) return undefined;
    if (typeof score !== 'number' || !Number.isFinite(score)) return undefined;
    if (index < 0 || index >= count || seen.has(index)) return undefined;
    seen.add(index);
    ranked.push({ index, score });
  }
  if (ranked.length < wanted) return undefined;
  ranked.sort((a, b) => b.score - a.score || a.index - b.index);
  return {
    ranked: ranked.slice(0, wanted),
    tokens: isJsonObject(answer) ? tokensOf(answer) : undefined,
  };
}

function tokensOf({ usage, meta }: JsonObject): number | undefined {
  const ofMeta = isJsonObject(meta) && isJsonObject(meta['tokens']) ? meta['tokens'] : {};
  const ofUsage = isJsonObject(usage) ? usage : {};
  const told = ofUsage['prompt_tokens'] ?? ofUsage['total_tokens'] ?? ofMeta['input_tokens'];
  return typeof told === 'number' && Number.isSafeInteger(told) && told >= 0 ? told : undefined;
}
