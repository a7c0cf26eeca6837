/**
 * The chat flow: resolve the model, check what it can do, set the money aside, run the engine, and
 * settle before the last byte leaves. `docs/architecture.md` draws its stages.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing but the text that had left.
 */
import { boundFor } from '../catalog/catalog.ts';
import { type Nano, ZERO, nano } from '../core/money.ts';
import { fitToModel } from './wire/capability-gates.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { RateRule, Sale, SaleRequest } from '../billing/sale.ts';
import { requireSold } from '../catalog/model-access.ts';
import { type AdditionsPlan, NOTHING_PREPARED, type PreparedAdditions } from './chat-additions.ts';
import { MIN_OUTPUT_TOKENS, chatBounds, tokensEstimate, withinContext } from './chat-bounds.ts';
import { ChatRounds } from './chat-rounds.ts';
import type { ChatCall, ChatParts, ChatRun, ChatWish } from './chat-run.ts';
import { surchargesOf } from './extra-uses.ts';
import { TOOL_OFFER_TOKENS, TURN_TOKENS } from './round.ts';
import { streamAnswer } from './streamed-answer.ts';
import { wholeAnswer } from './whole-answer.ts';

export type { AdditionParts } from './chat-additions.ts';
export { PaidFindings } from './paid-findings.ts';
export { planAdditions } from './plan-additions.ts';
export type { ChatCall, ChatNotes, ChatParts, ChatReceiver, WholeAnswer } from './chat-run.ts';

/** An answer that is cut before this is of little use: what a request holds before a share begins. */
const USEFUL_OUTPUT_TOKENS = 256;
const USEFUL_STEPS = BigInt(USEFUL_OUTPUT_TOKENS - MIN_OUTPUT_TOKENS);

export async function runChat(parts: ChatParts, call: ChatCall): Promise<void> {
  const { caller } = call;
  const { model, deprecation } = parts.catalog.require(call.request.model, 'text');
  call.note({ model: model.id });
  call.receiver.resolved(model, deprecation);
  const price = requireSold(model, caller);
  const request = fitToModel(call.request, model, parts.canSearch);
  const additions = parts.planAdditions(call, request, model);
  const systemPrompt = joinPrompts(parts, request, additions);
  const wish = {
    parts,
    call,
    request,
    model,
    deprecation,
    price,
    additions,
    systemPrompt,
  };
  const rate = parts.rateOf(call.caller, model);
  await parts.sales.sell(saleOf(wish, rate), async (admission) => {
    call.receiver.admitted(admission, rate);
    const { prepare } = additions;
    const prepared = prepare === undefined ? NOTHING_PREPARED : await prepare();
    const rounds = planRounds(wish, admission, prepared);
    const run: ChatRun = { ...wish, rate, admission, rounds };
    await (request.stream ? streamAnswer(run) : wholeAnswer(run));
  });
}

/**
 * Prices the worst case and holds what the balance affords. The least is the prompt as it came with
 * what preparing it costs; the most has every text that may be added, and every round of a search.
 */
function saleOf(wish: ChatWish, rate: RateRule): SaleRequest {
  const { call, request, model, price, additions, systemPrompt } = wish;
  const bounds = chatBounds(request, model, Buffer.byteLength(systemPrompt ?? ''));
  const { socialSearch } = additions;
  const uses = [
    ...additions.usesBound,
    ...(socialSearch === undefined ? [] : [socialSearch.bound]),
  ];
  const base = { choices: request.choiceCount, surcharges: surchargesOf(uses) };
  const leastOutput = Math.min(bounds.outputTokens, MIN_OUTPUT_TOKENS);
  const least = { ...base, promptTokens: bounds.promptTokens, maxOutputTokens: leastOutput };
  const longest = bounds.promptTokens + additions.textBytesBound;
  const searches = additions.autoSearch?.searchesLeft ?? 0;
  const most = mostOf(wish, longest, { outputTokens: bounds.outputTokens, searches });
  const minNano = boundFor(least, price);
  const maxNano = boundFor(withBase(base, most), price);
  const isPlain = searches === 0 && additions.textBytesBound === 0;
  const useful = {
    outputTokens: Math.min(bounds.outputTokens, USEFUL_OUTPUT_TOKENS),
    searches: Math.min(searches, 1),
  };
  const usefulNano = isPlain
    ? costBetween(minNano, maxNano, bounds.outputTokens)
    : boundFor(withBase(base, mostOf(wish, longest, useful)), price);
  return {
    requestId: call.requestId,
    caller: call.caller,
    kind: 'chat',
    modelId: model.id,
    tier: model.tier,
    rate,
    tokensEstimate: tokensEstimate(request, model, bounds.outputTokens),
    price: { minNano, usefulNano, maxNano, maxIsNamed: request.maxOutputTokens !== undefined },
    signal: call.signal,
    paid: additions.paid,
    priceVersion: price.version,
    keeper: call.receiver.keeper,
  };
}

/** The cost grows evenly with the output, so a useful answer's needs no third look at the price. */
function costBetween(least: Nano, most: Nano, outputTokens: number): Nano {
  if (outputTokens <= USEFUL_OUTPUT_TOKENS) return most;
  const steps = BigInt(outputTokens - MIN_OUTPUT_TOKENS);
  return nano(least + ((most - least) * USEFUL_STEPS) / steps);
}

interface MostUse {
  readonly promptTokens: number;
  readonly maxOutputTokens: number;
  readonly surcharges: Nano;
}

function withBase(base: { choices: number; surcharges: Nano }, most: MostUse) {
  return { ...base, ...most, surcharges: nano(base.surcharges + most.surcharges) };
}

/** The most tokens and searches of all rounds; each round reads what the earlier ones said. */
function mostOf(
  wish: ChatWish,
  firstPrompt: number,
  { outputTokens, searches }: { outputTokens: number; searches: number },
): MostUse {
  const { model, additions } = wish;
  const auto = additions.autoSearch;
  let promptTokens = withinContext(firstPrompt, model);
  if (auto === undefined) {
    return { promptTokens, maxOutputTokens: outputTokens, surcharges: ZERO };
  }
  for (let round = 1; round <= searches; round += 1) {
    const found = round * (auto.searchBytes + 3 * TURN_TOKENS) + TOOL_OFFER_TOKENS;
    promptTokens += withinContext(firstPrompt + outputTokens + found, model);
  }
  const maxOutputTokens = outputTokens + searches * MIN_OUTPUT_TOKENS;
  return { promptTokens, maxOutputTokens, surcharges: surchargesOf([auto.cost(searches)]) };
}

/** The first round is planned now that its prompt is known. Throws 402 when it is too dear. */
function planRounds(wish: ChatWish, admission: Sale, prepared: PreparedAdditions): ChatRounds {
  const { request, model, price, additions, systemPrompt } = wish;
  const inputs = {
    request,
    model,
    price,
    grantedNano: admission.hold.grantedNano,
    systemBytes: Buffer.byteLength(systemPrompt ?? ''),
    additions: prepared,
    auto: additions.autoSearch,
    social: additions.socialSearch,
  };
  const rounds = ChatRounds.plan(inputs);
  if (rounds === undefined) throw admission.tooDear(ChatRounds.leastCost(inputs));
  return rounds;
}

/** The service's prompt first, then the persona; the caller's own follow in the messages. */
function joinPrompts(
  parts: ChatParts,
  request: ChatRequest,
  additions: AdditionsPlan,
): string | undefined {
  const own = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  const joined = [own, ...additions.systemPrompts].filter((text) => text !== '').join('\n\n');
  return joined === '' ? undefined : joined;
}
