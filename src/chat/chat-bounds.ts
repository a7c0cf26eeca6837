/**
 * How much a chat request can use at most, before anybody has counted a token: the basis of its
 * hold, and of the output that each of its engine calls is granted. A tokenizer never makes more
 * tokens than there are bytes, so bytes are a true bound on the text; media is bounded by the
 * context, which no engine exceeds, or by their number.
 *
 * A round is one engine call. It is planned so that its dearest outcome, and everything that must
 * still follow it, fit into what is left of the hold. With searches left, what must follow is those
 * searches and one more round that reads them; where the money does not reach for that, the search
 * tool is not offered.
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
  mediaTokensAtMost,
  tokensAbout,
  tokensAtLeast,
  tokensAtMost,
  tokensMostly,
} from '../core/token-count.ts';
import { type ExtraUse, type RoundLimits, surchargesOf } from './chat-bill.ts';
import { USUAL_TEMPLATE_TOKENS } from './learned-templates.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage } from './wire/chat-message.ts';

const TOKENS_PER_MESSAGE = 16;
/** Instructions that templates add when tools are offered. */
const TOOL_TEMPLATE_TOKENS = 512;
/** A request whose prompt leaves less room than this for an answer is not worth running. */
const MIN_OUTPUT_TOKENS = 16;
/** An answer that is cut before this is of little use: what a request holds before a share begins. */
const USEFUL_OUTPUT_TOKENS = 256;
const FALLBACK_OUTPUT_TOKENS = 8_192;
/** What templates write around a tool offer and around one message of a search, in tokens. */
const TOOL_OFFER_TOKENS = 1_024;
const SEARCH_MESSAGE_TOKENS = 256;
/** An answer that may end in a search needs room for the call. */
const MIN_CALL_TOKENS = 128;
/** Few answers are longer, and few pictures or sounds take more of the prompt. */
const USUAL_OUTPUT_TOKENS = 1_024;
const USUAL_MEDIA_TOKENS = 1_024;

type ModelLimits = Pick<CatalogModel, 'id' | 'context' | 'maxCompletionTokens'>;

export interface ChatBounds {
  readonly promptTokens: number;
  /** Cap of one choice, before the balance clamps it. */
  readonly outputTokens: number;
}

/** Tokens of a prompt that come from no text of the request, at most. */
export interface PromptExtras {
  /** Of the chat template: system defaults, role marks, the opening of the answer. */
  readonly templateTokens: number;
  readonly searchTokens: number;
}

export const USUAL_EXTRAS: PromptExtras = {
  templateTokens: USUAL_TEMPLATE_TOKENS,
  searchTokens: 0,
};

/** `addedBytes`: text that the service adds to the prompt. Throws 400 for what cannot fit. */
export function chatBounds(
  request: ChatRequest,
  model: ModelLimits,
  addedBytes: number,
  extras: PromptExtras = USUAL_EXTRAS,
): ChatBounds {
  const { facts } = request;
  const knownBytes = facts.textBytes + addedBytes;
  refuseOverflow(knownBytes, model);
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
  } else if (model.context > 0) {
    // Engines refuse a prompt and a cap that exceed the context together.
    const promptBytes = textBytes + template;
    const surely = model.context - promptBytes;
    const room = surely >= MIN_OUTPUT_TOKENS ? surely : model.context - tokensMostly(promptBytes);
    outputTokens = Math.max(MIN_OUTPUT_TOKENS, Math.min(cap, room));
  }
  return { promptTokens, outputTokens };
}

/**
 * About what a request will use, for the limit of tokens per minute. No bound: money never hangs on
 * it, and the settle puts the true use in its place.
 */
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

/** No engine takes a longer prompt than its context; a context of 0 is not known. */
export function withinContext(promptTokens: number, model: Pick<ModelLimits, 'context'>): number {
  return model.context === 0 ? promptTokens : Math.min(promptTokens, model.context);
}

/** What cannot fit by any count is refused here; what might fit is the engine's to decide. */
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
  /** Searches of the model and of the engine are not in it. */
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
  /** Of a protocol whose clients are better refused than given less output than this, in tokens. */
  readonly protocol?: { readonly leastOutputTokens?: number } | undefined;
}

/**
 * What is held for the worst case, as far as the balance affords it. The least is the prompt as it
 * came with what preparing it costs; the most has every text that may be added, and every round of
 * a search.
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
    // The cost grows evenly with the output, so a useful answer's needs no third look at the price.
    const steps = BigInt(outputTokens - leastOutput);
    const usefulSteps = BigInt(Math.max(0, USEFUL_OUTPUT_TOKENS - leastOutput));
    usefulNano = nano(minNano + ((maxNano - minNano) * usefulSteps) / steps);
  }
  return { minNano, usefulNano, maxNano, maxIsNamed: request.maxOutputTokens !== undefined };
}

/** The cost of the most tokens of all rounds; each round reads what the earlier ones said. */
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
  /** Searches that its answer may ask for; 0 offers no tool. */
  readonly searches: number;
}

export interface RoundInputs {
  readonly request: ChatRequest;
  readonly model: ModelLimits;
  readonly price: Price;
  readonly messages: readonly ChatMessage[] | undefined;
  readonly bounds: ChatBounds;
  readonly addedBytes: number;
  /** What is left of the hold for tokens and searches. */
  readonly leftNano: Nano;
  /** Output of earlier rounds, which the caller's cap includes. */
  readonly usedOutputTokens: number;
  readonly auto: SearchOffer | undefined;
}

/** The next round, or `undefined` when the money does not cover it. */
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

/** What the shortest answer of a round without searches can cost. */
export function leastOfRound(inputs: RoundInputs): Nano {
  const { request, price, bounds } = inputs;
  const maxOutputTokens = Math.min(bounds.outputTokens, MIN_OUTPUT_TOKENS);
  const promptTokens = promptOf(inputs);
  return boundFor({ promptTokens, maxOutputTokens, choices: request.choiceCount }, price);
}

/** A round whatever it costs: when an engine used more than it can, the hold is the end. */
export function lastResort(inputs: RoundInputs): Round {
  return roundOf(inputs, promptOf(inputs), 0, MIN_OUTPUT_TOKENS);
}

/** With the messages that earlier rounds have added. */
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

/** Whether this round with that much output, the searches, and the answer to them fit. */
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

/** The largest whole number up to `max` that holds, where smaller ones hold too; 0 when none. */
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
