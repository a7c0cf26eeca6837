/**
 * Admits a chat request of any protocol: resolves the model, checks its capabilities, plans
 * additions and holds the money. Then the run begins.
 */
import type { Sale } from '../billing/sale.ts';
import { type CatalogModel, soldTier } from '../catalog/catalog.ts';
import { nano } from '../core/money.ts';
import { priceFor, saleRequest } from '../http/model-sale.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import { isTagValue } from '../http/tags.ts';
import { NOTHING_ADDED, NOTHING_PREPARED, type PreparedAdditions } from './additions.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import { surchargesOf } from './chat-bill.ts';
import {
  chatBounds,
  holdBounds,
  leastCostOfRound,
  planRound,
  type PromptExtras,
  type Round,
  type RoundInputs,
  tokensEstimate,
} from './chat-bounds.ts';
import { ChatRun } from './run.ts';
import { type ChatParts, type ChatPlan, roundInputs } from './chat-plan.ts';
import { StreamRun } from './stream-run.ts';
import { fitToModel } from './wire/capability-gates.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from './wire/chat-request.ts';
import { mayEngineSearch } from './wire/engine-request.ts';

/** `parseChatRequest` on another thread, for large bodies. */
export type ReadLargeChat = (
  body: Buffer,
  caller: string,
  options: ChatRequestOptions,
) => Promise<ChatRequest>;

export function chatHandler(parts: ChatParts, readLarge: ReadLargeChat): Route['handle'] {
  const options = { serviceName: parts.serviceName };
  return (context) => {
    const { body } = context;
    return body.length < LARGE_BODY_BYTES
      ? sellChat(parts, context, parseChatRequest(body, options))
      : readLarge(body, context.caller.accountId, options).then((request) =>
          sellChat(parts, context, request),
        );
  };
}

/** Any replica may serve the request, so the largest setting of their engines counts. */
/** `protocol`: how to write the response, unless as a chat completion. */
export function sellChat(
  parts: ChatParts,
  context: RequestContext,
  given: ChatRequest,
  protocol?: ResponseProtocol,
): Promise<void> {
  const resolved = parts.catalog.require(given.model, 'text');
  const { model, deprecation } = resolved;
  // A batch has one price.
  const hasTier = !given.isPlain && context.caller.isBatch !== true;
  const tier = hasTier ? soldTier(model.price, given.fields['service_tier']) : undefined;
  const price = priceFor(context, resolved, tier);
  const { caller, cancellation } = context;
  const most = model.maxCompletionTokens || Infinity;
  const isFit = given.isPlain && (given.maxOutputTokens ?? 0) <= most;
  const request = isFit ? given : fitted(parts, given, model, protocol);
  const additions = request.isPlain
    ? NOTHING_ADDED
    : parts.planAdditions({
        request,
        model,
        accountId: caller.accountId,
        signal: cancellation.signal,
        maxSearches: protocol?.maxSearches,
      });
  let systemPrompt = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  if (additions.systemPrompts.length > 0) {
    const all = [systemPrompt, ...additions.systemPrompts];
    systemPrompt = all.filter((text) => text !== '').join('\n\n');
  }
  const mayEngineAdd =
    additions.socialSearch !== undefined || (!request.isPlain && mayEngineSearch(request.fields));
  const extras: PromptExtras = {
    templateTokens: parts.templates.tokensOf(model) + model.addedPromptTokens,
    searchTokens: mayEngineAdd ? parts.searchPromptTokens() : 0,
  };
  const bounds = chatBounds(request, model, Buffer.byteLength(systemPrompt), extras);
  const plan: ChatPlan = {
    parts,
    context,
    request,
    model,
    deprecation,
    price,
    tier: tier && { name: tier, standard: priceFor(context, resolved) },
    additions,
    systemPrompt,
    extras,
    bounds,
    protocol,
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
  return parts.sales.sell(wanted, (sale) => {
    context.known = { model, deprecation, sale };
    const { prepare } = additions;
    if (prepare === undefined) return runChat(plan, sale, NOTHING_PREPARED);
    return prepare().then((prepared) => runChat(plan, sale, prepared));
  });
}

function runChat(plan: ChatPlan, sale: Sale, prepared: PreparedAdditions): Promise<void> {
  const { request, bounds, systemPrompt } = plan;
  let round: Round | undefined;
  if (request.isPlain && sale.hold.grantedNano === sale.request.price?.maxNano) {
    const promptBytes = request.facts.textBytes + Buffer.byteLength(systemPrompt);
    round = { ...bounds, messages: undefined, searches: 0, promptBytes };
  } else {
    const inputs = firstInputs(plan, sale, prepared);
    round = planRound(inputs);
    if (round === undefined) {
      return sale.rejectExpensive(
        nano(sale.hold.grantedNano - inputs.leftNano + leastCostOfRound(inputs)),
      );
    }
  }
  const Run = request.stream ? StreamRun : ChatRun;
  return new Run(plan, sale, prepared, round).respond();
}

function firstInputs(plan: ChatPlan, { hold }: Sale, prepared: PreparedAdditions): RoundInputs {
  const social = plan.additions.socialSearch;
  const surcharges = surchargesOf(social ? [...prepared.uses, social.bound] : prepared.uses);
  return roundInputs(plan, {
    messages: prepared.messages,
    addedBytes: Buffer.byteLength(plan.systemPrompt) + prepared.textBytes,
    leftNano: nano(hold.grantedNano - surcharges),
    usedOutputTokens: 0,
  });
}

function fitted(
  { canSearch }: ChatParts,
  given: ChatRequest,
  model: CatalogModel,
  protocol: ResponseProtocol | undefined,
): ChatRequest {
  const most = model.maxCompletionTokens || Infinity;
  // Agents send the largest cap that they know, so it is lowered instead of rejected.
  const isLowered = protocol !== undefined && (given.maxOutputTokens ?? 0) > most;
  return fitToModel(isLowered ? { ...given, maxOutputTokens: most } : given, model, canSearch);
}

function tagsFor(
  { metadata, promptCacheKey }: ChatRequest,
  protocol: ResponseProtocol | undefined,
) {
  const session = promptCacheKey ?? '';
  const hasSession = session !== '' && isTagValue(session);
  if (protocol === undefined && !hasSession) return metadata;
  return {
    ...metadata,
    ...(protocol === undefined ? {} : { protocol: protocol.name }),
    ...(hasSession ? { prompt_cache_key: session } : {}),
  };
}
