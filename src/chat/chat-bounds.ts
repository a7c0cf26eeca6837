/**
 * How much a chat request can use at most, before anybody has counted a token: the basis of its
 * hold. A tokenizer never makes more tokens than there are bytes, so bytes are a true bound on the
 * text; media is bounded by the context, which no engine exceeds, or by their number.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import { Fault } from '../core/faults.ts';
import {
  mediaTokensAtMost,
  tokensAbout,
  tokensAtLeast,
  tokensAtMost,
  tokensMostly,
} from '../core/token-count.ts';
import type { ChatRequest } from './wire/chat-request.ts';

/** Tokens that a chat template adds: system defaults, role marks, the opening of the answer. */
const TEMPLATE_TOKENS = 256;
const TOKENS_PER_MESSAGE = 16;
/** Instructions that templates add when tools are offered. */
const TOOL_TEMPLATE_TOKENS = 512;
/** A request whose prompt leaves less room than this for an answer is not worth running. */
export const MIN_OUTPUT_TOKENS = 16;
/** The output cap of a model that names neither a cap nor a context. */
const FALLBACK_OUTPUT_TOKENS = 8_192;

/** Few answers are longer, and few pictures or sounds take more of the prompt. */
const USUAL_OUTPUT_TOKENS = 1_024;
const USUAL_MEDIA_TOKENS = 1_024;

export interface ChatBounds {
  readonly promptTokens: number;
  /** Cap of one choice, before the balance clamps it. */
  readonly outputTokens: number;
}

/** Extra text that the service adds to the prompt, in bytes. */
export function chatBounds(
  request: ChatRequest,
  model: CatalogModel,
  addedBytes: number,
): ChatBounds {
  const { facts } = request;
  const textBytes = facts.textBytes + addedBytes;
  refuseOverflow(textBytes, model);
  const template =
    TEMPLATE_TOKENS +
    TOKENS_PER_MESSAGE * facts.messageCount +
    (request.tools.length > 0 ? TOOL_TEMPLATE_TOKENS : 0);
  const hasMedia = facts.imageCount + facts.audioCount + facts.videoCount > 0;
  const bound = tokensAtMost(textBytes) + mediaTokensAtMost(facts) + template;
  const promptTokens = hasMedia && model.context > 0 ? model.context : withinContext(bound, model);
  return { promptTokens, outputTokens: outputWish(request, model, textBytes + template) };
}

/**
 * About what a request will use, for the limit of tokens per minute. No bound: money never hangs on
 * it, and the settle puts the true use in its place.
 */
export function tokensEstimate(
  { facts, choiceCount }: ChatRequest,
  model: CatalogModel,
  outputTokens: number,
): number {
  const media = facts.imageCount + facts.audioCount + facts.videoCount;
  const prompt = tokensAbout(facts.textBytes) + media * USUAL_MEDIA_TOKENS;
  const output = Math.min(outputTokens, USUAL_OUTPUT_TOKENS) * choiceCount;
  return withinContext(prompt, model) + output;
}

/** No engine takes a longer prompt than its context; a context of 0 is not known. */
export function withinContext(promptTokens: number, model: CatalogModel): number {
  return model.context === 0 ? promptTokens : Math.min(promptTokens, model.context);
}

/** What the caller asked for; else the model's cap, as far as the context has room for it. */
function outputWish(request: ChatRequest, model: CatalogModel, promptBytes: number): number {
  const cap = model.maxCompletionTokens || model.context || FALLBACK_OUTPUT_TOKENS;
  if (request.maxOutputTokens !== undefined) return Math.min(request.maxOutputTokens, cap);
  if (model.context === 0) return cap;
  // Engines refuse a prompt and a cap that exceed the context together.
  const surely = model.context - promptBytes;
  const usually = model.context - tokensMostly(promptBytes);
  const room = surely >= MIN_OUTPUT_TOKENS ? surely : usually;
  return Math.max(MIN_OUTPUT_TOKENS, Math.min(cap, room));
}

/** What cannot fit by any count is refused here; what might fit is the engine's to decide. */
export function refuseOverflow(textBytes: number, model: CatalogModel): void {
  if (model.context === 0) return;
  const atLeast = tokensAtLeast(textBytes);
  if (atLeast > model.context) throw contextOverflow(model, `at least ${atLeast}`);
}

/** The refusal in the shape that SDKs know: an error object. */
export function contextOverflow(model: CatalogModel, tokens: string | undefined): Fault {
  const has = tokens === undefined ? '' : `; the prompt has ${tokens}`;
  const message = `The context of ${model.id} holds ${model.context} tokens${has}. Shorten the messages`;
  return new Fault('CONTEXT_LENGTH_EXCEEDED', {
    message,
    body: {
      error: {
        message,
        type: 'invalid_request_error',
        param: 'messages',
        code: 'context_length_exceeded',
      },
    },
  });
}
