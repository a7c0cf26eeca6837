/**
 * `POST /chat/completions`: parse, resolve the model, check what it can do, set the money aside, run
 * the engine, and settle before the last byte leaves. `docs/architecture.md` draws its stages.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing but the text that had left.
 */
import type { Sale } from '../billing/sale.ts';
import { requireSold } from '../catalog/model-access.ts';
import type { KnownFacts } from '../http/answer-headers.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_BODY, type Route } from '../http/route.ts';
import { type AdditionsPlan, NOTHING_ADDED, NOTHING_PREPARED } from './additions.ts';
import { chatBounds, holdBounds, tokensEstimate } from './chat-bounds.ts';
import { CHAT_DESCRIPTION } from './chat-completions/schema.ts';
import { type ChatParts, type ChatPlan, startRun } from './chat-run.ts';
import { streamAnswer } from './streamed-answer.ts';
import { wholeAnswer } from './whole-answer.ts';
import { fitToModel } from './wire/capability-gates.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from './wire/chat-request.ts';

export { type AdditionParts, planAdditions } from './additions.ts';
export type { ChatParts } from './chat-run.ts';
export { LearnedDialects } from './learned-dialects.ts';
export { PaidFindings } from './paid-findings.ts';

/** `parseChatRequest` for a body that would hold up the event loop. */
export type ReadLargeChat = (body: Buffer, options: ChatRequestOptions) => Promise<ChatRequest>;

export function chatCompletionsRoute(parts: ChatParts, readLarge: ReadLargeChat): Route {
  const options = { serviceName: parts.serviceName };
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: async (context) => {
      const { body } = context;
      const request =
        body.length < LARGE_BODY_BYTES
          ? parseChatRequest(body, options)
          : await readLarge(body, options);
      await runChat(parts, context, request);
    },
  };
}

/** Runs a chat; a refusal says what was learned before it. */
async function runChat(
  parts: ChatParts,
  context: RequestContext,
  given: ChatRequest,
): Promise<void> {
  const { model, deprecation } = parts.catalog.require(given.model, 'text');
  context.notes.model = model.id;
  let facts: KnownFacts = { model, deprecation };
  try {
    const { caller, workSignal: signal } = context;
    const price = requireSold(model, caller);
    const most = model.maxCompletionTokens || Infinity;
    // A plain request asks no more of a model than that.
    const isFit = given.isPlain && (given.maxOutputTokens ?? 0) <= most;
    const request = isFit ? given : fitToModel(given, model, parts.canSearch);
    const { accountId } = caller;
    const additions = request.isPlain
      ? NOTHING_ADDED
      : parts.planAdditions({ request, model, accountId, signal });
    const systemPrompt = joinPrompts(parts, request, additions);
    const bounds = chatBounds(request, model, Buffer.byteLength(systemPrompt));
    const plan: ChatPlan = {
      parts,
      context,
      signal,
      request,
      model,
      deprecation,
      price,
      additions,
      systemPrompt,
      bounds,
    };
    const work = async (sale: Sale): Promise<void> => {
      facts = { model, deprecation, sale };
      const { prepare } = additions;
      const prepared = prepare === undefined ? NOTHING_PREPARED : await prepare();
      const run = startRun(plan, sale, prepared);
      await (request.stream ? streamAnswer(run) : wholeAnswer(run));
    };
    const wanted = {
      requestId: context.requestId,
      caller,
      kind: 'chat',
      modelId: model.id,
      tier: model.tier,
      rate: parts.rateOf(caller, model),
      tokensEstimate: tokensEstimate(request, model, bounds.outputTokens),
      price: holdBounds(plan),
      signal,
      paid: additions.paid,
      priceVersion: price.version,
      keeper: context.keeper,
      metadata: request.metadata,
    };
    await parts.sales.sell(wanted, work);
  } catch (error) {
    context.setAll(parts.headers.answered(facts));
    throw error;
  }
}

/** The service's prompt first, then the persona; the caller's own follow in the messages. */
function joinPrompts(parts: ChatParts, request: ChatRequest, additions: AdditionsPlan): string {
  const own = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  if (additions.systemPrompts.length === 0) return own;
  return [own, ...additions.systemPrompts].filter((text) => text !== '').join('\n\n');
}
