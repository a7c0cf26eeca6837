/**
 * The request of `/completions`: its schema, its bounds, and the engine's body. The prompt is sent
 * unchanged, without template or system prompt.
 */
import { jsonWithoutNulls } from '../../json/json-text.ts';
import * as z from 'zod';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { tokensAbout, tokensAtMost } from '../../core/token-count.ts';
import { checked } from '../../http/read-request.ts';
import { TagMetadata, tagsOf } from '../../http/tags.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import { refuseMember } from '../../json/validation.ts';
import { refuseOverflow, USUAL_OUTPUT_TOKENS, withinContext } from '../chat-bounds.ts';
import { MAX_CHOICES } from '../wire/chat-schema.ts';
import { BEYOND_HOLD } from '../wire/engine-request.ts';
import {
  flag,
  modelName,
  penalty,
  probability,
  stopsUpTo,
  temperature,
  STOP_LIMITS,
} from '../wire/request-fields.ts';

const MAX_PROMPTS = 256;
/** Choices of all prompts together, which multiply the hold. */
const MAX_ALL_CHOICES = 512;
const MAX_PROMPT_IDS = 1_048_576;
/** Log probabilities per token; OpenAI's limit is 5, vLLM's 20. */
const MAX_LOGPROBS = 20;
const DEFAULT_MAX_TOKENS = 16;
/** Special tokens around a prompt. */
const FRAME_TOKENS = 8;

const tokenIds = z.array(z.int().min(0)).min(1).max(MAX_PROMPT_IDS);

export const CompletionBody = z.looseObject({
  model: modelName.describe('Id of a text model, a trait or a compatibility name.'),
  prompt: z
    .union([
      z.string(),
      z.array(z.string()).min(1).max(MAX_PROMPTS),
      tokenIds,
      z.array(tokenIds).min(1).max(MAX_PROMPTS),
    ])
    .describe("Text, token ids of the model's vocabulary, or a list of either."),
  suffix: z.string().nullish().describe('Text after the gap, for models that complete gaps.'),
  max_tokens: z.int().min(0).nullish().describe('Tokens per choice; 16 if absent, 0 with `echo`.'),
  n: z.int().min(1).max(MAX_CHOICES).nullish().describe('Choices per prompt. Default 1.'),
  best_of: z
    .int()
    .min(1)
    .max(MAX_CHOICES)
    .nullish()
    .describe('Choices to generate per prompt, all billed.'),
  echo: flag.describe('Whether to return the prompt before the text.'),
  logprobs: z
    .int()
    .min(0)
    .max(MAX_LOGPROBS)
    .nullish()
    .describe('Number of log probabilities per token.'),
  temperature: temperature.describe('0 to 2: higher is more random.'),
  top_p: probability.describe('0 to 1: picks among the likeliest tokens.'),
  presence_penalty: penalty.describe('-2 to 2: reduces repetition of used tokens. Default 0.'),
  frequency_penalty: penalty.describe('-2 to 2: reduces frequent tokens. Default 0.'),
  logit_bias: z
    .record(z.string(), z.number().min(-100).max(100))
    .nullish()
    .describe('Bias by token id, -100 to 100.'),
  stop: stopsUpTo(STOP_LIMITS.completions).describe(
    'Texts that end a choice and are not returned, up to 4.',
  ),
  seed: z.int().nullish().describe('Seed for reproducible output, if supported.'),
  stream: flag.describe('Whether to send server-sent events. Default false.'),
  stream_options: z
    .looseObject({ include_usage: flag.describe('No effect: a stream always contains its usage.') })
    .nullish()
    .describe('Options of the stream.'),
  metadata: TagMetadata.nullish().describe('Up to 16 tags, for receipts and `GET /usage/tags`.'),
  user: z.string().nullish().describe('Discarded.'),
});
/**
 * `prompt` is validated by hand, because a schema would validate a million token ids one by one.
 */
const BodyBesidePrompt = CompletionBody.omit({ prompt: true });
type BodyBesidePrompt = z.infer<typeof BodyBesidePrompt>;

interface PromptSize {
  readonly textBytes: number;
  readonly ids: number;
}

export interface CompletionRequest {
  readonly model: string;
  readonly body: BodyBesidePrompt;
  readonly prompt: unknown;
  readonly prompts: readonly PromptSize[];
  readonly shownChoices: number;
  readonly madeChoices: number;
  readonly stream: boolean;
  readonly echo: boolean;
  readonly wantsLogprobs: boolean;
  readonly tags: Readonly<Record<string, string>> | undefined;
}

interface CompletionBounds {
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Basis of the bill if the engine reports no usage; ids count as text of usual length. */
  readonly promptBytes: number;
}

const BODY_MEMBERS = new Set(Object.keys(CompletionBody.shape));
const USUAL_BYTES_PER_ID = 4;

export function completionRequest(given: unknown): CompletionRequest {
  const { prompt, ...others } = isJsonObject(given) ? given : {};
  const body = checked(BodyBesidePrompt, isJsonObject(given) ? others : given);
  const prompts = promptsOf(prompt, bytesBeside(body));
  const { n, best_of: bestOf, stream, echo, logprobs, metadata } = body;
  const shownChoices = n ?? 1;
  const madeChoices = Math.max(shownChoices, bestOf ?? 1) * prompts.length;
  refuseChoices(shownChoices, madeChoices, body);
  return {
    model: body.model,
    body,
    prompt,
    prompts,
    shownChoices,
    madeChoices,
    stream: stream === true,
    echo: echo === true,
    wantsLogprobs: logprobs !== null && logprobs !== undefined,
    tags: tagsOf(metadata),
  };
}

function refuseChoices(shown: number, made: number, body: BodyBesidePrompt): void {
  const { best_of: bestOf, stream } = body;
  if (bestOf && bestOf < shown)
    throw refuseMember(['best_of'], `Must be at least n, which is ${shown}`);
  if (bestOf && bestOf > shown && stream === true) {
    const message = 'Must equal n with stream, because the best choice is known only at the end';
    throw refuseMember(['best_of'], message);
  }
  if (made > MAX_ALL_CHOICES) {
    const message = `All prompts together must have at most ${MAX_ALL_CHOICES} choices, not ${made}`;
    throw refuseMember(['n'], message);
  }
}

/** Unknown members may become part of the prompt. */
function bytesBeside(body: BodyBesidePrompt): number {
  let sizeBytes = Buffer.byteLength(body.suffix ?? '');
  for (const [name, value] of Object.entries(body)) {
    if (!BODY_MEMBERS.has(name)) sizeBytes += Buffer.byteLength(JSON.stringify(value) ?? '');
  }
  return sizeBytes;
}

const EXPECTED = 'Expected a string, a list of strings, token ids, or a list of lists of token ids';

function promptsOf(prompt: unknown, besideBytes: number): PromptSize[] {
  const isOne = typeof prompt === 'string' || isTokenIds(prompt);
  const list: unknown = isOne ? [prompt] : prompt;
  if (!Array.isArray(list) || list.length === 0) {
    throw refuseMember(['prompt'], EXPECTED, 'invalid_type');
  }
  if (list.length > MAX_PROMPTS) {
    const message = `At most ${MAX_PROMPTS} prompts are allowed, got ${list.length}`;
    throw refuseMember(['prompt'], message, 'too_big');
  }
  let allIds = 0;
  const areTexts = typeof list[0] === 'string';
  const prompts = list.map((one: unknown): PromptSize => {
    if (areTexts && typeof one === 'string') {
      return { textBytes: Buffer.byteLength(one) + besideBytes, ids: 0 };
    }
    if (areTexts || !isTokenIds(one)) throw refuseMember(['prompt'], EXPECTED, 'invalid_type');
    allIds += one.length;
    return { textBytes: besideBytes, ids: one.length };
  });
  if (allIds <= MAX_PROMPT_IDS) return prompts;
  throw refuseMember(
    ['prompt'],
    `At most ${MAX_PROMPT_IDS} token ids are allowed, got ${allIds}`,
    'too_big',
  );
}

function isTokenIds(value: unknown): value is readonly number[] {
  if (!Array.isArray(value) || value.length === 0) return false;
  return value.every((id) => typeof id === 'number' && Number.isSafeInteger(id) && id >= 0);
}

export function completionBounds(
  request: CompletionRequest,
  model: CatalogModel,
): CompletionBounds {
  const { body, prompts, wantsLogprobs } = request;
  const most = model.maxCompletionTokens || Infinity;
  const asked = body.max_tokens ?? Math.min(DEFAULT_MAX_TOKENS, most);
  if (asked > most) {
    const message = `${asked} is above the ${most} output tokens of ${model.id}`;
    throw refuseMember(['max_tokens'], message, 'too_big');
  }
  if (wantsLogprobs && !model.capabilities.has('logProbs')) {
    const message = `The model ${model.id} does not support logprobs`;
    throw refuseMember(['logprobs'], message, 'unsupported_feature');
  }
  let promptTokens = 0;
  let promptBytes = 0;
  for (const { textBytes, ids } of prompts) {
    refuseOverflow(textBytes, model, 'prompt');
    promptTokens += withinContext(tokensAtMost(textBytes) + ids + FRAME_TOKENS, model);
    promptBytes += textBytes + ids * USUAL_BYTES_PER_ID;
  }
  return { promptTokens, outputTokens: asked, promptBytes };
}

export function completionEstimate(
  { madeChoices }: CompletionRequest,
  { promptBytes, outputTokens }: CompletionBounds,
): number {
  return tokensAbout(promptBytes) + Math.min(outputTokens, USUAL_OUTPUT_TOKENS) * madeChoices;
}

interface CompletionTarget {
  readonly model: string;
  readonly maxTokens: number;
  /** Scoped to the account; `undefined` if the caller sent none. */
  readonly promptCacheKey: string | undefined;
  readonly cacheSalt: string | undefined;
}

export function engineBody(
  { body, prompt, stream }: CompletionRequest,
  { model, maxTokens, promptCacheKey, cacheSalt }: CompletionTarget,
): Buffer {
  const { best_of, stream_options: given, metadata: _ours, user: _nobody, ...fields } = body;
  const options = stream ? { ...given, include_usage: true } : undefined;
  const own = {
    ...BEYOND_HOLD,
    // Tiers are sold for chats only.
    service_tier: undefined,
    prompt,
    best_of,
    model,
    max_tokens: maxTokens,
    stream_options: options,
    ...(promptCacheKey === undefined ? {} : { prompt_cache_key: promptCacheKey }),
    ...(cacheSalt === undefined ? {} : { cache_salt: cacheSalt }),
  };
  return jsonWithoutNulls({ ...fields, ...own });
}
