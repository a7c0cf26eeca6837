/**
 * One engine call of a chat request, and how large it may become: a round is planned so that its
 * dearest outcome, and everything that must still follow it, fit into what is left of the hold.
 *
 * With searches left, what must follow is those searches and one more round that reads them; where
 * the money does not reach for that, the search tool is not offered.
 */
import {
  type CatalogModel,
  type Price,
  boundFor,
  outputTokensAffordable,
} from '../catalog/catalog.ts';
import type { Nano } from '../core/money.ts';
import { tokensAtMost } from '../core/token-count.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage, ChatTool } from './wire/chat-schema.ts';
import type { AutoSearch } from './auto-search.ts';
import { type ChatBounds, MIN_OUTPUT_TOKENS, chatBounds, withinContext } from './chat-bounds.ts';
import { surchargesOf } from './extra-uses.ts';

/** What templates write around a tool offer and around one message, in tokens. */
export const TOOL_OFFER_TOKENS = 1_024;
export const TURN_TOKENS = 256;
/** An answer that may end in a search needs room for the call. */
const MIN_CALL_TOKENS = 128;

export interface Round {
  /** Replaces the request's messages. */
  readonly messages: readonly ChatMessage[] | undefined;
  readonly extraTools: readonly ChatTool[];
  /** Searches that its answer may ask for; 0 offers no tool. */
  readonly searches: number;
  /** UTF-8 bytes of the prompt's text. */
  readonly promptBytes: number;
  readonly bounds: ChatBounds;
  /** The output cap that the hold covers: what the engine is told. */
  readonly outputTokens: number;
}

export interface RoundInputs {
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly price: Price;
  readonly messages: readonly ChatMessage[] | undefined;
  /** Text that stands in the prompt beside the caller's. */
  readonly addedBytes: number;
  /** What is left of the hold for tokens and searches. */
  readonly leftNano: Nano;
  /** Output of earlier rounds, which the caller's cap includes. */
  readonly usedOutputTokens: number;
  readonly auto: AutoSearch | undefined;
}

/** The next round, or `undefined` when the money does not cover it. */
export function planRound(inputs: RoundInputs): Round | undefined {
  const { auto } = inputs;
  const left = auto?.searchesLeft ?? 0;
  const plain = boundsOf(inputs);
  const wish = Math.max(
    Math.min(plain.outputTokens, MIN_OUTPUT_TOKENS),
    plain.outputTokens - inputs.usedOutputTokens,
  );
  for (const searches of new Set([left, Math.min(left, 1)])) {
    if (auto === undefined || searches === 0) break;
    const bounds = withTool(plain, inputs.model);
    const outputTokens = largest(wish, (tokens) => fits(inputs, bounds, auto, searches, tokens));
    const least = searches > 1 ? wish : Math.min(wish, MIN_CALL_TOKENS);
    if (outputTokens >= least) return roundOf(inputs, bounds, searches, outputTokens);
  }
  const outputTokens = Math.min(wish, affordable(inputs, plain));
  if (outputTokens < Math.min(wish, MIN_OUTPUT_TOKENS)) return undefined;
  return roundOf(inputs, plain, 0, outputTokens);
}

/** What the shortest answer of a round without searches can cost. */
export function leastOfRound(inputs: RoundInputs): Nano {
  const { promptTokens, outputTokens } = boundsOf(inputs);
  const maxOutputTokens = Math.min(outputTokens, MIN_OUTPUT_TOKENS);
  return boundFor(
    { promptTokens, maxOutputTokens, choices: inputs.request.choiceCount },
    inputs.price,
  );
}

/** A round whatever it costs: when an engine used more than it can, the hold is the end. */
export function lastResort(inputs: RoundInputs): Round {
  return roundOf(inputs, boundsOf(inputs), 0, MIN_OUTPUT_TOKENS);
}

function boundsOf(inputs: RoundInputs): ChatBounds {
  const { request, model, addedBytes, messages } = inputs;
  const turns = Math.max(0, (messages?.length ?? 0) - request.messages.length);
  const bounds = chatBounds(request, model, addedBytes);
  const promptTokens = withinContext(bounds.promptTokens + turns * TURN_TOKENS, model);
  return { ...bounds, promptTokens };
}

function withTool(bounds: ChatBounds, model: CatalogModel): ChatBounds {
  return { ...bounds, promptTokens: withinContext(bounds.promptTokens + TOOL_OFFER_TOKENS, model) };
}

function roundOf(
  inputs: RoundInputs,
  bounds: ChatBounds,
  searches: number,
  outputTokens: number,
): Round {
  const { messages, auto, request, addedBytes } = inputs;
  return {
    messages,
    extraTools: auto === undefined || searches === 0 ? [] : [auto.tool],
    searches,
    promptBytes: request.facts.textBytes + addedBytes,
    bounds: { ...bounds, outputTokens },
    outputTokens,
  };
}

function affordable(inputs: RoundInputs, bounds: ChatBounds): number {
  const { price, request, leftNano } = inputs;
  if (leftNano < 0n) return 0;
  const bound = { promptTokens: bounds.promptTokens, choices: request.choiceCount };
  return outputTokensAffordable(leftNano, bound, price) ?? 0;
}

/** Whether this round with that much output, the searches, and the answer to them fit. */
function fits(
  inputs: RoundInputs,
  bounds: ChatBounds,
  auto: AutoSearch,
  searches: number,
  outputTokens: number,
): boolean {
  const { price, model, leftNano } = inputs;
  const { promptTokens } = bounds;
  const found = searches * (tokensAtMost(auto.searchBytes) + TURN_TOKENS);
  const next = withinContext(promptTokens + outputTokens + found + TURN_TOKENS, model);
  const now = boundFor({ promptTokens, maxOutputTokens: outputTokens }, price);
  const then = boundFor(
    {
      promptTokens: next,
      maxOutputTokens: MIN_OUTPUT_TOKENS,
      surcharges: surchargesOf([auto.cost(searches)]),
    },
    price,
  );
  return now + then <= leftNano;
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
