/** The parts that the chat uses, and the plan of an admitted request. */
import type { RateRule, Sales } from '../billing/sale.ts';
import type {
  Catalog,
  CatalogModel,
  DeprecationNotice,
  Price,
  SuppliedWork,
} from '../catalog/catalog.ts';
import type { ServiceTier } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type {
  EngineCall,
  EngineFailure,
  EngineOutcome,
  Engines,
  Replica,
} from '../engines/engines.ts';
import { withReasoning } from '../engines/usage.ts';
import type { BodyMemory } from '../http/body-memory.ts';
import type { ResponseHeaders } from '../http/response-headers.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Caller } from '../identity/identity.ts';
import type { AdditionInputs, AdditionsPlan } from './additions.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import type { Sealer } from './agents/sealed-text.ts';
import type { CacheScope } from './cache-scope.ts';
import type { RoundEnd } from './chat-bill.ts';
import {
  type ChatBounds,
  chatBounds,
  type PromptExtras,
  type Round,
  type RoundInputs,
} from './chat-bounds.ts';
import type { LearnedDialects, LearnedTemplates, UnpricedTokens } from './learned.ts';
import type { EngineStream } from './upstream/upstream.ts';
import type { ChunkLayouts } from './wire/chunk-layout.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatResponse, ResponseEnd } from './wire/chat-response.ts';
import type { EngineTarget } from './wire/engine-request.ts';

export interface ChatParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly headers: ResponseHeaders;
  readonly serviceName: string;
  readonly systemPrompt: () => string;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  readonly dialects: LearnedDialects;
  readonly layouts: ChunkLayouts;
  readonly sealer: Sealer;
  readonly templates: LearnedTemplates;
  readonly unpriced: UnpricedTokens;
  /** Bound of the prompt tokens that an engine's own search adds. */
  readonly searchPromptTokens: () => number;
  readonly cacheScope: CacheScope;
  readonly canSearch: boolean;
  readonly planAdditions: (inputs: AdditionInputs) => AdditionsPlan;
  /** Memory for the bodies of requests, which fetched media count against. */
  readonly bodyMemory: Pick<BodyMemory, 'reserveMedia'>;
}

export interface ChatPlan {
  readonly parts: ChatParts;
  readonly context: RequestContext;
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly price: Price;
  /** Set if the request has a service tier that the model sells. */
  readonly tier?:
    | {
        readonly name: ServiceTier;
        /** The price if the engine serves the request without the tier. */
        readonly standard: Price;
      }
    | undefined;
  readonly additions: AdditionsPlan;
  readonly systemPrompt: string;
  readonly extras: PromptExtras;
  readonly bounds: ChatBounds;
  readonly protocol: ResponseProtocol | undefined;
  readonly wire?: EngineWire | undefined;
}

/** The standard price if the engine served every call so far without the tier; else its price. */
export function tierPrice(plan: ChatPlan, end: RoundEnd, before: Price | undefined) {
  const { tier, price } = plan;
  const isStandard = tier !== undefined && servedTier(plan, end) !== tier.name;
  return isStandard && before !== price ? tier.standard : price;
}

/**
 * The tier that the engine reports. If it reports none, a `flex` request was served as such, but a
 * `priority` request only if the engine did not count it.
 */
function servedTier({ tier }: ChatPlan, { reported }: RoundEnd): ServiceTier | undefined {
  const given = reported?.tier;
  if (given === 'flex' || given === 'priority') return given;
  const isServed = tier?.name === 'flex' ? typeof given !== 'string' : reported === undefined;
  return isServed ? tier?.name : undefined;
}

/** Adds the reasoning that only the total of a provider contains, if the provider is known for that. */
export function withTotal(
  end: RoundEnd,
  dialects: LearnedDialects,
  { replica }: Pick<EngineOutcome, 'replica'>,
): RoundEnd {
  const { reported } = end;
  if (reported === undefined || replica === null || dialects.of(replica).countsReasoning)
    return end;
  return { ...end, reported: { ...reported, usage: withReasoning(reported.usage) } };
}

/** The engine calls so far, with one more, for the cost of their supplier. */
export function withSupplied(
  plan: ChatPlan,
  before: readonly SuppliedWork[] | undefined,
  end: RoundEnd,
  usage: SuppliedWork['usage'],
  { attempts, replica }: Pick<EngineOutcome, 'attempts' | 'replica'>,
): readonly SuppliedWork[] | undefined {
  if (replica === null || attempts === 0) return before;
  const { engine, model: target } = replica;
  return [...(before ?? []), { engine, target, usage, tier: servedTier(plan, end) }];
}

/** A path of the engine other than `/chat/completions`. */
export interface EngineWire {
  readonly work: EngineCall['work'];
  readonly path: string;
  responseBytes(outputTokens: number): number;
  buildBody(
    replica: Replica,
    refusal: EngineFailure | undefined,
    outputTokens: number,
  ): Buffer | undefined;
  /** Returns `undefined` if the body is not the requested response. */
  read(body: Buffer, outputTokens: number): Promise<ChatResponse | undefined>;
  write(response: ChatResponse, end: ResponseEnd): Buffer;
  newStream(outputTokens: number): EngineStream;
}

/** The call of a round at a replica, for `engineRequest`. */
export function engineTarget(
  plan: ChatPlan,
  { messages, searches, outputTokens: maxOutputTokens }: Round,
  replica: Replica,
  { caller, affinityKey }: { readonly caller: string; readonly affinityKey: string | undefined },
): EngineTarget {
  const { parts, request, model, additions, systemPrompt, tier, protocol } = plan;
  const dialect = parts.dialects.of(replica);
  const { cache_salt: salt } = request.fields;
  const isSalted = dialect.cacheSalt || salt !== undefined;
  return {
    model: replica.model,
    dialect,
    promptCacheKey: affinityKey,
    cacheSalt: isSalted ? parts.cacheScope.saltOf(caller, salt) : undefined,
    abilities: model,
    maxOutputTokens,
    systemPrompt,
    messages,
    extraTool: searches === 0 ? undefined : additions.autoSearch?.tool,
    extraMembers: additions.socialSearch?.membersFor(replica.engine),
    serviceTier: tier?.name,
    mayPrefill: protocol?.name === 'messages',
  };
}

type RoundState = Pick<RoundInputs, 'messages' | 'addedBytes' | 'leftNano' | 'usedOutputTokens'>;

export function roundInputs(plan: ChatPlan, state: RoundState): RoundInputs {
  const { request, model, price, additions, extras } = plan;
  const bounds = chatBounds(request, model, state.addedBytes, extras);
  return { request, model, price, bounds, auto: additions.autoSearch, ...state };
}
