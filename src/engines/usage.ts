/**
 * Token usage: parses the formats of engines and writes the one of the API.
 *
 * Invariant: an explicit zero is a zero; a missing value is not invented here. Cached and
 * cache-write tokens are part of `promptTokens`, reasoning tokens of `completionTokens`.
 */
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';

export interface TokenUsage {
  /** Every prompt token, cached ones included. */
  readonly promptTokens: number;
  /** Every generated token, reasoning included. */
  readonly completionTokens: number;
  readonly cachedTokens: number;
  /** Prompt tokens written to the cache, which have their own price. */
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
  /** Tokens that can have prices of their own; missing if the engine reports none. */
  readonly detail?: TokenDetail | undefined;
  /** Tokens that only the total contains. Not billed, unless the provider is known to report reasoning so. */
  readonly uncountedTokens?: number;
  /** Results of the engine's own search, if reported. */
  readonly searchSources?: number;
}

/** Parts of the cache-write, prompt and completion tokens. */
export interface TokenDetail {
  readonly cacheWrite1h: number;
  readonly audioInput: number;
  readonly imageInput: number;
  readonly audioOutput: number;
  readonly imageOutput: number;
}

export interface ReportedUsage {
  readonly usage: TokenUsage;
  /** UTF-8 bytes of output received by then. */
  readonly atBytes: number;
  /** The `service_tier` that the engine reports. */
  readonly tier?: unknown;
}

/** The cost in response bodies: USD numbers, by the charged currency. */
export interface Cost {
  readonly usd: number;
  readonly diem: number;
}

/** Parses the usage object of an engine; `undefined` if it has no usable value. */
export function readUsage(value: unknown): TokenUsage | undefined {
  if (!isJsonObject(value)) return undefined;
  const prompt = count(value, 'prompt_tokens') ?? inputTokens(value);
  if (prompt === undefined) return undefined;
  const completion =
    count(value, 'completion_tokens', 'output_tokens') ?? restOfTotal(value, prompt);
  if (completion === undefined) return undefined;
  const promptDetails = value['prompt_tokens_details'] ?? value['input_tokens_details'];
  const ofPrompt = isJsonObject(promptDetails) ? promptDetails : undefined;
  const completionDetails = value['completion_tokens_details'] ?? value['output_tokens_details'];
  const ofCompletion = isJsonObject(completionDetails) ? completionDetails : undefined;
  const cached =
    (ofPrompt && count(ofPrompt, 'cached_tokens')) ??
    count(value, 'prompt_cache_hit_tokens', 'cache_read_input_tokens', 'cached_tokens') ??
    0;
  const cacheWrite =
    (ofPrompt && count(ofPrompt, 'cache_creation_input_tokens', 'cache_write_tokens')) ??
    count(value, 'cache_creation_input_tokens') ??
    0;
  const reasoning =
    (ofCompletion && count(ofCompletion, 'reasoning_tokens', 'thinking_tokens')) ??
    count(value, 'reasoning_tokens') ??
    0;
  const cachedTokens = Math.min(cached, prompt);
  const usage = {
    promptTokens: prompt,
    completionTokens: completion,
    cachedTokens,
    cacheWriteTokens: Math.min(cacheWrite, prompt - cachedTokens),
    reasoningTokens: Math.min(reasoning, completion),
  };
  const sources = count(value, 'num_sources_used');
  const mayHaveDetail = ofPrompt !== undefined || ofCompletion !== undefined;
  const detail =
    mayHaveDetail || value['cache_creation'] !== undefined
      ? detailOf(value, ofPrompt, ofCompletion)
      : undefined;
  const { total_tokens: total } = value;
  const isTotal = typeof total === 'number' && Number.isSafeInteger(total);
  const uncounted = isTotal ? total - prompt - completion : 0;
  if (sources === undefined && detail === undefined && uncounted <= 0) return usage;
  return {
    ...usage,
    ...(uncounted > 0 ? { uncountedTokens: uncounted } : {}),
    ...(detail === undefined ? {} : { detail }),
    ...(sources === undefined ? {} : { searchSources: sources }),
  };
}

/** The usage of a provider whose completion tokens exclude reasoning: only its total contains that. */
export function withReasoning({ uncountedTokens: beside = 0, ...usage }: TokenUsage): TokenUsage {
  return {
    ...usage,
    completionTokens: usage.completionTokens + beside,
    reasoningTokens: Math.max(usage.reasoningTokens, beside),
  };
}

/** Returns `undefined` if all counts are 0. */
function detailOf(
  usage: JsonObject,
  ofPrompt: JsonObject | undefined,
  ofCompletion: JsonObject | undefined,
): TokenDetail | undefined {
  const given =
    usage['cache_creation'] ??
    ofPrompt?.['cache_creation'] ??
    ofPrompt?.['cache_creation_token_details'];
  const written = isJsonObject(given) ? given : undefined;
  const cacheWrite1h = (written && count(written, HOURLY)) ?? 0;
  const audioInput = (ofPrompt && count(ofPrompt, 'audio_tokens')) ?? 0;
  const imageInput = (ofPrompt && count(ofPrompt, 'image_tokens')) ?? 0;
  const audioOutput = (ofCompletion && count(ofCompletion, 'audio_tokens')) ?? 0;
  const imageOutput = (ofCompletion && count(ofCompletion, 'image_tokens')) ?? 0;
  if (cacheWrite1h + audioInput + imageInput + audioOutput + imageOutput === 0) return undefined;
  return { cacheWrite1h, audioInput, imageInput, audioOutput, imageOutput };
}

const HOURLY = 'ephemeral_1h_input_tokens';

export function chatUsage(usage: TokenUsage): JsonObject {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: {
      cached_tokens: usage.cachedTokens,
      cache_creation_input_tokens: usage.cacheWriteTokens,
      ...promptDetail(usage),
    },
    completion_tokens_details: {
      reasoning_tokens: usage.reasoningTokens,
      ...(usage.detail?.audioOutput ? { audio_tokens: usage.detail.audioOutput } : {}),
      ...(usage.detail?.imageOutput ? { image_tokens: usage.detail.imageOutput } : {}),
    },
  };
}

function promptDetail({ cacheWriteTokens, detail }: TokenUsage): JsonObject {
  if (detail === undefined) return {};
  const { cacheWrite1h, audioInput, imageInput } = detail;
  const shorter = Math.max(0, cacheWriteTokens - cacheWrite1h);
  const cache_creation = { ephemeral_5m_input_tokens: shorter, [HOURLY]: cacheWrite1h };
  return {
    ...(cacheWrite1h > 0 ? { cache_creation } : {}),
    ...(audioInput > 0 ? { audio_tokens: audioInput } : {}),
    ...(imageInput > 0 ? { image_tokens: imageInput } : {}),
  };
}

/** The same as JSON. */
export function chatUsageText(usage: TokenUsage): string {
  if (usage.detail !== undefined) return JSON.stringify(chatUsage(usage));
  const { promptTokens, completionTokens, cachedTokens, cacheWriteTokens, reasoningTokens } = usage;
  return `{"prompt_tokens":${promptTokens},"completion_tokens":${completionTokens},"total_tokens":${promptTokens + completionTokens},"prompt_tokens_details":{"cached_tokens":${cachedTokens},"cache_creation_input_tokens":${cacheWriteTokens}},"completion_tokens_details":{"reasoning_tokens":${reasoningTokens}}}`;
}

function inputTokens(usage: JsonObject): number | undefined {
  const input = count(usage, 'input_tokens');
  if (input === undefined) return undefined;
  // If `input_tokens` comes with these two, it excludes tokens read from or written to the cache.
  const read = count(usage, 'cache_read_input_tokens') ?? 0;
  const written = count(usage, 'cache_creation_input_tokens') ?? 0;
  return input + read + written;
}

function restOfTotal(usage: JsonObject, prompt: number): number | undefined {
  const total = count(usage, 'total_tokens');
  return total === undefined || total < prompt ? undefined : total - prompt;
}

/** The first member that is a non-negative integer. */
function count(usage: JsonObject, ...names: readonly string[]): number | undefined {
  for (const name of names) {
    const given = usage[name];
    if (typeof given === 'number' && Number.isSafeInteger(given) && given >= 0) return given;
  }
  return undefined;
}
