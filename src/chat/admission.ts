/**
 * Admits a chat request of any protocol: resolves the model, checks its capabilities, plans
 * additions and holds the money. Then the run begins.
 */
import type { PriceBounds, Sale, SaleRequest } from '../billing/sale.ts';
import { type CatalogModel, type ResolvedModel, soldTier } from '../catalog/catalog.ts';
import { assert } from '../core/assert.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, nano } from '../core/money.ts';
import { isUnavailable } from '../engines/engine-refusal.ts';
import { priceFor, saleRequest, withPrices } from '../http/model-sale.ts';
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

/** `parseChatRequest` on another thread, for large bodies. */
export type ReadLargeChat = (
  body: Buffer,
  caller: string,
  options: ChatRequestOptions,
) => Promise<ChatRequest>;

interface Admitted {
  readonly plan: ChatPlan;
  readonly wanted: SaleRequest;
  readonly hold: Required<PriceBounds>;
}

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

/** `protocol`: how to write the response, unless as a chat completion. */
export function sellChat(
  parts: ChatParts,
  context: RequestContext,
  given: ChatRequest,
  protocol?: ResponseProtocol,
): Promise<void> {
  const resolved = parts.catalog.require(given.model, 'text');
  const admitted = admit(parts, context, given, resolved, protocol);
  const { model, deprecation, additions } = admitted.plan;
  if (model.fallbacks !== undefined) {
    const fallbacks = admitFallbacks(model.fallbacks, admitted.plan, given);
    if (fallbacks.length > 0) return sellWithFallbacks(admitted, fallbacks);
  }
  return parts.sales.sell(admitted.wanted, (sale) => {
    context.known = { model, deprecation, sale };
    const { prepare } = additions;
    if (prepare === undefined) return runChat(admitted.plan, sale, NOTHING_PREPARED);
    return prepare().then((prepared) => runChat(admitted.plan, sale, prepared));
  });
}

/** Plans the request for one model. Throws if the caller may not use it, or it cannot do the work. */
function admit(
  parts: ChatParts,
  context: RequestContext,
  given: ChatRequest,
  found: ResolvedModel,
  protocol: ResponseProtocol | undefined,
): Admitted {
  const { caller, cancellation } = context;
  const { prices } = caller;
  const resolved = prices === undefined ? found : withPrices(found, prices);
  const { model, deprecation } = resolved;
  // A batch has one price.
  const hasTier = !given.isPlain && caller.isBatch !== true;
  const tier = hasTier ? soldTier(model.price, given.fields['service_tier']) : undefined;
  const price = priceFor(context, resolved, tier);
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
        reserve: (totalBytes) => parts.bodyMemory.reserveMedia(context, totalBytes),
        maxSearches: protocol?.maxSearches,
      });
  let systemPrompt = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  if (additions.systemPrompts.length > 0) {
    const all = [systemPrompt, ...additions.systemPrompts];
    systemPrompt = all.filter((text) => text !== '').join('\n\n');
  }
  const extras: PromptExtras = {
    templateTokens: parts.templates.tokensOf(model) + model.addedPromptTokens,
    searchTokens: additions.socialSearch === undefined ? 0 : parts.searchPromptTokens(),
    isOutputFitted: protocol !== undefined,
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
  const hold = holdBounds(plan);
  const wanted = saleRequest(context, {
    kind: 'chat',
    model,
    price,
    rate: parts.rateOf(caller, model),
    tokensEstimate: tokensEstimate(request, model, bounds.outputTokens),
    bounds: hold,
    paid: additions.paid,
    metadata: request.isPlain && protocol === undefined ? undefined : tagsFor(request, protocol),
  });
  return { plan, wanted, hold };
}

/** The fallbacks that the caller may use and that can do the work, in order. */
function admitFallbacks(ids: readonly string[], plan: ChatPlan, given: ChatRequest): Admitted[] {
  const { parts, context, protocol } = plan;
  const { catalog, dialects } = parts;
  const native = protocol?.passThrough?.upstream;
  const admitted = ids.flatMap((id) => {
    try {
      const resolved = catalog.require(id, 'text');
      const { replicas } = resolved.model;
      const isNative = replicas.every((replica) => dialects.of(replica).protocol === native);
      // A removed model is not replaced by another one. Files are only passed on unchanged.
      if (resolved.model.id !== id || (given.keepsFiles === true && !isNative)) return [];
      return [admit(parts, context, given, resolved, protocol)];
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      // The model is offline, or not for this caller or this request.
      return [];
    }
  });
  noteModel(plan);
  return admitted;
}

/**
 * Sells the request with one hold. It covers the most expensive model of the list that the balance
 * allows; a payment covers only the requested model.
 */
function sellWithFallbacks(first: Admitted, fallbacks: readonly Admitted[]): Promise<void> {
  const { parts, context } = first.plan;
  const price = first.hold;
  const all = [first, ...fallbacks];
  const raised = fallbacks
    .map(({ hold }) => hold.maxNano)
    .filter((maxNano) => maxNano > price.maxNano)
    .toSorted((a, b) => (a > b ? -1 : 1));
  return parts.sales.sell({ ...first.wanted, price: undefined }, async (sale) => {
    sale.request = first.wanted;
    if (raised[0] === undefined || context.caller.payment !== undefined) await sale.reserve(price);
    // The share of a balance that a hold gets does not depend on a maximum that the caller did not
    // name. A free model needs no credit.
    else if (!price.maxIsNamed && price.maxNano > 0n)
      await sale.reserve({ ...price, maxNano: raised[0] });
    else if (!(await reserveFirst(sale, raised))) await sale.reserve(price);
    await runFirstAvailable(all, sale);
  });
}

async function reserveFirst(sale: Sale, amounts: readonly Nano[]): Promise<boolean> {
  for (const amount of amounts) if (await sale.reserveAll(amount)) return true;
  return false;
}

async function runFirstAvailable(all: readonly Admitted[], sale: Sale): Promise<void> {
  const [first] = all;
  assert(first !== undefined, 'the requested model is the first');
  const { request } = sale;
  let failure: unknown;
  let leastOutput = 0;
  for (const { plan, wanted } of all) {
    const isFirst = plan === first.plan;
    const { prepare } = plan.additions;
    // The hold must cover as much output of a fallback as of the requested model.
    const least = Math.min(leastOutput, plan.bounds.outputTokens);
    let prepared = NOTHING_PREPARED;
    let round = firstRound(plan, sale, prepared, least);
    // A fallback that cannot run does not prepare, which can cost money.
    if (round === undefined && !isFirst) continue;
    noteModel(plan, sale);
    if (prepare !== undefined) {
      prepared = await prepare();
      round = firstRound(plan, sale, prepared, least);
    }
    if (round === undefined) {
      if (isFirst) return rejectRound(sale, firstInputs(plan, sale, prepared));
      continue;
    }
    if (isFirst) leastOutput = round.outputTokens;
    else sale.request = { ...wanted, rate: request.rate };
    const Run = plan.request.stream ? StreamRun : ChatRun;
    const run = new Run(plan, sale, prepared, round);
    try {
      return await run.respond();
    } catch (error) {
      const { failure: reason, hasBegun } = run;
      if (reason === undefined || hasBegun || sale.state !== 'held') throw error;
      // A fallback may also reject a request that the requested model accepts.
      if (isFirst && !isUnavailable(reason)) throw error;
      failure ??= error;
    }
  }
  sale.request = request;
  noteModel(first.plan, sale);
  throw failure;
}

/** `undefined` if the hold does not cover it, or not with the least output. */
function firstRound(
  plan: ChatPlan,
  sale: Sale,
  prepared: PreparedAdditions,
  leastOutput: number,
): Round | undefined {
  const round = planRound(firstInputs(plan, sale, prepared));
  return round !== undefined && round.outputTokens >= leastOutput ? round : undefined;
}

function rejectRound(sale: Sale, inputs: RoundInputs): Promise<never> {
  return sale.rejectExpensive(
    nano(sale.hold.grantedNano - inputs.leftNano + leastCostOfRound(inputs)),
  );
}

function noteModel({ context, model, deprecation }: ChatPlan, sale?: Sale): void {
  context.notes.model = model.id;
  context.known = { model, deprecation, sale };
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
    if (round === undefined) return rejectRound(sale, inputs);
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
