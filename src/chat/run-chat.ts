/**
 * A chat from its parsed request on, whatever protocol it came in: resolve the model, check what it
 * can do, set the money aside, run the engine, and settle before the last byte leaves.
 * `docs/architecture.md` draws its stages.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing but the text that had left.
 */
import type { Sale } from '../billing/sale.ts';
import { priceFor, saleRequest } from '../http/model-sale.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type AdditionsPlan, NOTHING_ADDED, NOTHING_PREPARED } from './additions.ts';
import { chatBounds, holdBounds, tokensEstimate } from './chat-bounds.ts';
import { type ChatParts, type ChatPlan, type ChatRun, startRun } from './chat-run.ts';
import { streamAnswer } from './streamed-answer.ts';
import { wholeAnswer } from './whole-answer.ts';
import { fitToModel } from './wire/capability-gates.ts';
import type { AnswerProtocol } from './agents/answer-protocol.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import { isTagValue } from '../http/tags.ts';

/**
 * Runs a chat; a refusal says what was learned before it. `protocol` is how its answer is said, when
 * that is not as chat completions.
 */
export function runChat(
  parts: ChatParts,
  context: RequestContext,
  asked: ChatRequest,
  protocol?: AnswerProtocol,
): Promise<void> {
  const resolved = parts.catalog.require(asked.model, 'text');
  const price = priceFor(context, resolved);
  const { model, deprecation } = resolved;
  const { caller, cancellation } = context;
  const most = model.maxCompletionTokens || Infinity;
  const given = protocol === undefined ? asked : withinCap(asked, most);
  // A plain request asks no more of a model than that.
  const isFit = given.isPlain && (given.maxOutputTokens ?? 0) <= most;
  const request = isFit ? given : fitToModel(given, model, parts.canSearch);
  const { accountId } = caller;
  const additions = request.isPlain
    ? NOTHING_ADDED
    : parts.planAdditions({
        request,
        model,
        accountId,
        signal: cancellation.signal,
        maxSearches: protocol?.maxSearches,
      });
  const systemPrompt = joinPrompts(parts, request, additions);
  const bounds = chatBounds(request, model, Buffer.byteLength(systemPrompt));
  const plan: ChatPlan = {
    parts,
    context,
    cancellation,
    request,
    model,
    deprecation,
    price,
    additions,
    systemPrompt,
    bounds,
    protocol,
  };
  const work = (sale: Sale): Promise<void> => {
    context.known = { model, deprecation, sale };
    const { prepare } = additions;
    if (prepare === undefined) return answer(startRun(plan, sale, NOTHING_PREPARED));
    return prepare().then((prepared) => answer(startRun(plan, sale, prepared)));
  };
  const wanted = saleRequest(context, {
    kind: 'chat',
    model,
    price,
    rate: parts.rateOf(caller, model),
    tokensEstimate: tokensEstimate(request, model, bounds.outputTokens),
    bounds: holdBounds(plan),
    paid: additions.paid,
    metadata: request.isPlain && protocol === undefined ? undefined : tagsFor(request, protocol),
  });
  return parts.sales.sell(wanted, work);
}

function answer(run: ChatRun): Promise<void> {
  return run.request.stream ? streamAnswer(run) : wholeAnswer(run);
}

/** Agents ask for as much as they can think of: their caps are lowered where a chat's are refused. */
function withinCap(request: ChatRequest, most: number): ChatRequest {
  if ((request.maxOutputTokens ?? 0) <= most) return request;
  return { ...request, maxOutputTokens: most };
}

/** By which a session of an agent is summed up, beside what the caller tags it with. */
function tagsFor({ metadata, promptCacheKey }: ChatRequest, protocol: AnswerProtocol | undefined) {
  const session = promptCacheKey ?? '';
  const hasSession = session !== '' && isTagValue(session);
  if (protocol === undefined && !hasSession) return metadata;
  return {
    ...metadata,
    ...(protocol === undefined ? {} : { protocol: protocol.name }),
    ...(hasSession ? { prompt_cache_key: session } : {}),
  };
}

/** The service's prompt first, then the persona; the caller's own follow in the messages. */
function joinPrompts(parts: ChatParts, request: ChatRequest, additions: AdditionsPlan): string {
  const own = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  if (additions.systemPrompts.length === 0) return own;
  return [own, ...additions.systemPrompts].filter((text) => text !== '').join('\n\n');
}
