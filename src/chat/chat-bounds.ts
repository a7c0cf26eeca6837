/**
 * Bounds the usage of a chat request before any token is counted, for its hold and for the output
 * granted to each engine call. Text has at most as many tokens as bytes; media is bounded by the
 * context or by its number.
 *
 * A round is one engine call. Its most expensive outcome, and everything that must follow it, fit
 * into the rest of the hold. If searches remain, these are the searches and one more round; if the
 * money does not cover them, the search tool is not offered.
 */
import type { PriceBounds } from '../billing/sale.ts';
import {
  type CatalogModel,
  type Price,
  boundFor,
  outputTokensAffordable,
} from '../catalog/catalog.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, ZERO, nano } from '../core/money.ts';
import {
  mediaTokensAbout,
  mediaTokensAtMost,
  tokensAbout,
  tokensAtLeast,
  tokensAtMost,
  tokensMostly,
} from '../core/token-count.ts';
import { type ExtraUse, type RoundLimits, surchargesOf } from './chat-bill.ts';
import { TOKENS_PER_MESSAGE, USUAL_TEMPLATE_TOKENS } from './learned.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage } from './wire/chat-schema.ts';

const TOOL_TEMPLATE_TOKENS = 512;
/** A request that leaves less output than this is not run. */
export const MIN_OUTPUT_TOKENS = 16;
/** Output below this is of little use: a request holds this much before balances are shared. */
const USEFUL_OUTPUT_TOKENS = 256;
/** An agent that gets less repeats its request; an error makes it shorten its conversation. */
const LEAST_FITTED_TOKENS = 1_024;
const FALLBACK_OUTPUT_TOKENS = 8_192;
/** Template text around a tool offer, and around one message of a search. */
const TOOL_OFFER_TOKENS = 1_024;
const SEARCH_MESSAGE_TOKENS = 256;
const MIN_CALL_TOKENS = 128;
/** Estimate of one response for the limit of tokens per minute. */
export const USUAL_OUTPUT_TOKENS = 1_024;
const USUAL_MEDIA_TOKENS = 1_024;

type ModelLimits = Pick<CatalogModel, 'id' | 'context' | 'maxCompletionTokens'>;

export interface ChatBounds {
  readonly promptTokens: number;
  /** Cap of one choice, before the balance limits it. */
  readonly outputTokens: number;
}

/** Bounds of prompt tokens that no text of the request accounts for. */
export interface PromptExtras {
  /** Chat template: default system text, role marks, generation prompt. */
  readonly templateTokens: number;
  readonly searchTokens: number;
  /** Whether a named output limit is lowered to the rest of the context, as agents expect. */
  readonly isOutputFitted?: boolean;
}

export const USUAL_EXTRAS: PromptExtras = {
  templateTokens: USUAL_TEMPLATE_TOKENS,
  searchTokens: 0,
};

/** `addedBytes`: text that the service adds. Throws 400 if the prompt cannot fit. */
export function chatBounds(
  request: ChatRequest,
  model: ModelLimits,
  addedBytes: number,
  extras: PromptExtras = USUAL_EXTRAS,
): ChatBounds {
  const { facts } = request;
  const knownBytes = facts.textBytes + addedBytes;
  // A token has at least one byte.
  if (knownBytes > model.context) refuseOverflow(knownBytes, model);
  const textBytes = knownBytes + facts.unknownBytes;
  const template =
    extras.templateTokens +
    TOKENS_PER_MESSAGE * facts.messageCount +
    (request.tools.length > 0 ? TOOL_TEMPLATE_TOKENS : 0);
  const hasMedia = facts.imageCount + facts.audioCount + facts.videoCount > 0;
  const mediaTokens = hasMedia ? mediaTokensAtMost(facts) : 0;
  const bound = tokensAtMost(textBytes) + mediaTokens + template + extras.searchTokens;
  const promptTokens = hasMedia && model.context > 0 ? model.context : withinContext(bound, model);
  const cap = model.maxCompletionTokens || model.context || FALLBACK_OUTPUT_TOKENS;
  let outputTokens = cap;
  if (request.maxOutputTokens !== undefined) {
    outputTokens = Math.min(request.maxOutputTokens, cap);
    if (extras.isOutputFitted === true && model.context > 0) {
      const prompt = tokensMostly(textBytes) + template + mediaTokensAbout(facts);
      const room = Math.max(LEAST_FITTED_TOKENS, model.context - prompt);
      outputTokens = Math.min(outputTokens, room);
    }
  } else if (model.context > 0) {
    // Engines reject a prompt and a cap that together exceed the context.
    const promptBytes = textBytes + template;
    const surely = model.context - promptBytes;
    const mostly = model.context - tokensMostly(promptBytes);
    // Half of it also fits beside a prompt with more tokens than usual.
    const room = surely >= MIN_OUTPUT_TOKENS ? Math.max(surely, Math.floor(mostly / 2)) : mostly;
    outputTokens = Math.max(MIN_OUTPUT_TOKENS, Math.min(cap, room));
  }
  return { promptTokens, outputTokens };
}

/** An estimate for the tokens-per-minute limit; the settlement corrects it. */
export function tokensEstimate(
  { facts, choiceCount }: ChatRequest,
  model: ModelLimits,
  outputTokens: number,
): number {
  const media = facts.imageCount + facts.audioCount + facts.videoCount;
  const prompt = tokensAbout(facts.textBytes) + media * USUAL_MEDIA_TOKENS;
  const output = Math.min(outputTokens, USUAL_OUTPUT_TOKENS) * choiceCount;
  return withinContext(prompt, model) + output;
}

/** A context of 0 is unknown. */
export function withinContext(promptTokens: number, model: Pick<ModelLimits, 'context'>): number {
  return model.context === 0 ? promptTokens : Math.min(promptTokens, model.context);
}

/** Rejects only a prompt that cannot fit by any count. */
export function refuseOverflow(
  textBytes: number,
  model: ModelLimits,
  param: 'messages' | 'prompt' = 'messages',
): void {
  if (model.context === 0) return;
  const atLeast = tokensAtLeast(textBytes);
  if (atLeast > model.context) throw contextOverflow(model, `at least ${atLeast}`, param);
}

export function contextOverflow(
  model: ModelLimits,
  tokens: string | undefined,
  param: 'messages' | 'prompt' = 'messages',
): Fault {
  const has = tokens === undefined ? '' : `; the prompt has ${tokens}`;
  const message = `The context of ${model.id} holds ${model.context} tokens${has}. Shorten the ${param}`;
  return new Fault('CONTEXT_LENGTH_EXCEEDED', {
    message,
    body: {
      error: {
        message,
        type: 'invalid_request_error',
        param,
        code: 'context_length_exceeded',
      },
    },
  });
}

export interface SearchOffer {
  readonly searchesLeft: number;
  readonly searchBytes: number;
  cost(searches: number): ExtraUse;
}

export interface AdditionBounds {
  readonly textBytesBound: number;
  /** Searches before the completion and scraped pages only. */
  readonly usesBound: readonly ExtraUse[];
  readonly autoSearch: SearchOffer | undefined;
  readonly socialSearch: { readonly bound: ExtraUse } | undefined;
}

export interface HoldInputs {
  readonly request: ChatRequest;
  readonly model: ModelLimits;
  readonly price: Price;
  readonly bounds: ChatBounds;
  readonly additions: AdditionBounds;
  /** Less output than this is rejected, in tokens. */
  readonly protocol?: { readonly leastOutputTokens?: number } | undefined;
}

/**
 * Computes the least hold (the prompt and its preparation), a useful one, and the most (all added
 * texts and all rounds of searches).
 */
export function holdBounds(inputs: HoldInputs): Required<PriceBounds> {
  const { request, price, bounds, additions } = inputs;
  const { promptTokens, outputTokens } = bounds;
  const searches = additions.autoSearch?.searchesLeft ?? 0;
  const { usesBound, socialSearch } = additions;
  const uses = socialSearch === undefined ? usesBound : [...usesBound, socialSearch.bound];
  const surcharges = uses.length === 0 ? ZERO : surchargesOf(uses);
  const leastUseful = inputs.protocol?.leastOutputTokens ?? MIN_OUTPUT_TOKENS;
  const leastOutput = Math.min(outputTokens, leastUseful);
  const choices = request.choiceCount;
  const least = { choices, promptTokens, maxOutputTokens: leastOutput, surcharges };
  const minNano = boundFor(least, price);
  const isPlain = additions.autoSearch === undefined && additions.textBytesBound === 0;
  const maxNano = isPlain
    ? boundFor({ choices, promptTokens, maxOutputTokens: outputTokens, surcharges }, price)
    : mostNano(inputs, surcharges, outputTokens, searches);
  let usefulNano = maxNano;
  if (!isPlain) {
    const useful = Math.min(outputTokens, Math.max(USEFUL_OUTPUT_TOKENS, leastOutput));
    usefulNano = mostNano(inputs, surcharges, useful, Math.min(searches, 1));
  } else if (outputTokens > USEFUL_OUTPUT_TOKENS && outputTokens > leastOutput) {
    // The cost is linear in the output, so the useful hold is interpolated.
    const steps = BigInt(outputTokens - leastOutput);
    const usefulSteps = BigInt(Math.max(0, USEFUL_OUTPUT_TOKENS - leastOutput));
    usefulNano = nano(minNano + ((maxNano - minNano) * usefulSteps) / steps);
  }
  return { minNano, usefulNano, maxNano, maxIsNamed: request.maxOutputTokens !== undefined };
}

/** The maximum cost of all rounds; each round reads the output of the earlier ones. */
function mostNano(
  { request, model, price, bounds, additions }: HoldInputs,
  surcharges: Nano,
  outputTokens: number,
  searches: number,
): Nano {
  const auto = additions.autoSearch;
  const firstPrompt = bounds.promptTokens + additions.textBytesBound;
  const bound = {
    choices: request.choiceCount,
    promptTokens: withinContext(firstPrompt, model),
    maxOutputTokens: outputTokens,
    surcharges,
  };
  if (auto === undefined) return boundFor(bound, price);
  for (let round = 1; round <= searches; round += 1) {
    const found = round * (auto.searchBytes + 3 * SEARCH_MESSAGE_TOKENS) + TOOL_OFFER_TOKENS;
    bound.promptTokens += withinContext(firstPrompt + outputTokens + found, model);
  }
  bound.maxOutputTokens += searches * MIN_OUTPUT_TOKENS;
  bound.surcharges = nano(surcharges + surchargesOf([auto.cost(searches)]));
  return boundFor(bound, price);
}

export interface Round extends RoundLimits {
  readonly messages: readonly ChatMessage[] | undefined;
  /** Searches that the model may request; 0 offers no tool. */
  readonly searches: number;
}

export interface RoundInputs {
  readonly request: ChatRequest;
  readonly model: ModelLimits;
  readonly price: Price;
  readonly messages: readonly ChatMessage[] | undefined;
  readonly bounds: ChatBounds;
  readonly addedBytes: number;
  readonly leftNano: Nano;
  /** Output of earlier rounds, which counts towards the caller's cap. */
  readonly usedOutputTokens: number;
  readonly auto: SearchOffer | undefined;
}

export function planRound(inputs: RoundInputs): Round | undefined {
  const { request, model, price, bounds, leftNano, auto } = inputs;
  const cap = Math.max(
    Math.min(bounds.outputTokens, MIN_OUTPUT_TOKENS),
    bounds.outputTokens - inputs.usedOutputTokens,
  );
  const promptTokens = promptOf(inputs);
  const left = auto?.searchesLeft ?? 0;
  for (const searches of left > 1 ? [left, 1] : [left]) {
    if (auto === undefined || searches === 0) break;
    const offered = withinContext(promptTokens + TOOL_OFFER_TOKENS, model);
    const outputTokens = largest(cap, (tokens) => fits(inputs, offered, auto, searches, tokens));
    const least = searches > 1 ? cap : Math.min(cap, MIN_CALL_TOKENS);
    if (outputTokens >= least) return roundOf(inputs, offered, searches, outputTokens);
  }
  if (leftNano < 0n) return undefined;
  const bound = { promptTokens, choices: request.choiceCount };
  const outputTokens = Math.min(cap, outputTokensAffordable(leftNano, bound, price) ?? 0);
  if (outputTokens < Math.min(cap, MIN_OUTPUT_TOKENS)) return undefined;
  return roundOf(inputs, promptTokens, 0, outputTokens);
}

/**
 * The round with the output that surely fits beside its prompt, after an engine has rejected both
 * together; `undefined` if none does, or if the caller has named the limit.
 */
export function shorterRound(
  { request, model }: Pick<RoundInputs, 'request' | 'model'>,
  round: Round,
): Round | undefined {
  const outputTokens = model.context - round.promptTokens;
  const isShorter = outputTokens >= MIN_OUTPUT_TOKENS && outputTokens < round.outputTokens;
  return request.maxOutputTokens === undefined && isShorter
    ? { ...round, outputTokens }
    : undefined;
}

export function leastCostOfRound(inputs: RoundInputs): Nano {
  const { request, price, bounds } = inputs;
  const maxOutputTokens = Math.min(bounds.outputTokens, MIN_OUTPUT_TOKENS);
  const promptTokens = promptOf(inputs);
  return boundFor({ promptTokens, maxOutputTokens, choices: request.choiceCount }, price);
}

/** The round after an engine exceeded its bounds; its charge is limited by the hold. */
export function minimalRound(inputs: RoundInputs): Round {
  return roundOf(inputs, promptOf(inputs), 0, MIN_OUTPUT_TOKENS);
}

function promptOf({ request, model, messages, bounds }: RoundInputs): number {
  const added = Math.max(0, (messages?.length ?? 0) - request.messages.length);
  return withinContext(bounds.promptTokens + added * SEARCH_MESSAGE_TOKENS, model);
}

function roundOf(
  { messages, request, addedBytes }: RoundInputs,
  promptTokens: number,
  searches: number,
  outputTokens: number,
): Round {
  const promptBytes = request.facts.textBytes + addedBytes;
  return { messages, searches, promptBytes, promptTokens, outputTokens };
}

function fits(
  { price, model, leftNano }: RoundInputs,
  promptTokens: number,
  auto: SearchOffer,
  searches: number,
  outputTokens: number,
): boolean {
  const found = searches * (tokensAtMost(auto.searchBytes) + SEARCH_MESSAGE_TOKENS);
  const next = promptTokens + outputTokens + found + SEARCH_MESSAGE_TOKENS;
  const now = boundFor({ promptTokens, maxOutputTokens: outputTokens }, price);
  const later = boundFor(
    {
      promptTokens: withinContext(next, model),
      maxOutputTokens: MIN_OUTPUT_TOKENS,
      surcharges: surchargesOf([auto.cost(searches)]),
    },
    price,
  );
  return now + later <= leftNano;
}

/** Binary search for the largest number up to `max` that holds; 0 if none does. */
function largest(max: number, holds: (value: number) => boolean): number {
  if (holds(max)) return max;
  let low = 0;
  let high = max;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}

export const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Names, settings and figures that an engine adds to a small response. */
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** One token as a chunk per character, or with twenty log probabilities. */
export const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;

interface ResponsePlan {
  readonly request: Pick<ChatRequest, 'fields' | 'choiceCount'>;
  readonly wire?: { responseBytes(outputTokens: number): number } | undefined;
}

export function mostResponseBytes(
  { request, wire }: ResponsePlan,
  { outputTokens }: Pick<Round, 'outputTokens'>,
): number {
  if (wire !== undefined) return Math.min(MAX_RESPONSE_BYTES, wire.responseBytes(outputTokens));
  // Log probabilities of the prompt are as long as the prompt.
  if (Object.hasOwn(request.fields, 'prompt_logprobs')) return MAX_RESPONSE_BYTES;
  const tokens = outputTokens * request.choiceCount;
  return Math.min(MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES + tokens * RESPONSE_BYTES_PER_TOKEN);
}
