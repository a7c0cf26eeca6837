/**
 * One chat from its admission to its settled charge: the object that carries it, its engine calls
 * (one, or several where the model searches by itself), and what they used.
 */
import type { Outcome, Sale, Sales, RateRule } from '../billing/sale.ts';
import type { Catalog, CatalogModel, DeprecationNotice, Price } from '../catalog/catalog.ts';
import { assert } from '../core/assert.ts';
import type { Cancellation, Cancelling } from '../core/cancellation.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { formatUsd, nano, toUsdNumber } from '../core/money.ts';
import type {
  EngineFailure,
  EngineHead,
  EngineOutcome,
  Engines,
  Replica,
  WholeCall,
} from '../engines/engines.ts';
import { engineFault, saysContextOverflow } from '../engines/engine-refusal.ts';
import type { ResponseFacts, ResponseHeaders } from '../http/response-headers.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Caller } from '../identity/identity.ts';
import type { TimeLimits } from '../net/exchange.ts';
import { ResponseBlocks } from './agents/response-blocks.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import { promptTokensAbout } from './agents/prompt-count.ts';
import type { Sealer } from './agents/sealed-text.ts';
import type { AdditionInputs, AdditionsPlan, PreparedAdditions } from './additions.ts';
import {
  type ChatBill,
  type ExtraUse,
  type RoundEnd,
  type RoundUse,
  billChat,
  receiptLines,
  roundUse,
  surchargesOf,
} from './chat-bill.ts';
import {
  type ChatBounds,
  type PromptExtras,
  type Round,
  type RoundInputs,
  chatBounds,
  contextOverflow,
  lastResort,
  leastOfRound,
  planRound,
} from './chat-bounds.ts';
import type { CacheScope } from './cache-scope.ts';
import type { LearnedDialects } from './learned-dialects.ts';
import type { LearnedTemplates } from './learned-templates.ts';
import { userText } from './message-content.ts';
import { type RawResult, type SearchResult, cleanResults } from './web/web.ts';
import { noOutput } from './wire/chat-choice.ts';
import type { ChunkLayouts } from './wire/chunk-template.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import {
  type ResponseEnd,
  type ResponseFrame,
  type ResponseOptions,
  type ChatResponse,
  readChatResponse,
} from './wire/chat-response.ts';
import { NOTHING_CITED } from './wire/engine-citations.ts';
import { engineRequest } from './wire/engine-request.ts';
import type { HeldRound } from './wire/held-calls.ts';

/** An answer of more than this is not one, whatever was asked for. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Of an answer whose grant is small: names, settings and figures that an engine adds. */
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** One token as a chunk for each of its characters, or with its twenty likeliest others. */
const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;
/** An answer in one piece has its first byte when all of it is there. */
const WHOLE_LIMITS = { firstByteMs: 600_000 };
const STREAM_TYPES = ['text/event-stream'];
const WHOLE_TYPES = ['application/json'];

export interface ChatParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly headers: ResponseHeaders;
  readonly serviceName: string;
  /** The service's own system prompt; empty for none. */
  readonly systemPrompt: () => string;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  readonly dialects: LearnedDialects;
  /** What streams have learned of how engines write. */
  readonly layouts: ChunkLayouts;
  /** Seals the reasoning that agents keep between turns. */
  readonly sealer: Sealer;
  /** How long the chat templates of models are. */
  readonly templates: LearnedTemplates;
  /** Prompt tokens that a search of an engine's own may add, at most. */
  readonly searchPromptTokens: () => number;
  /** Keeps the prompt caches of engines apart by account. */
  readonly cacheScope: CacheScope;
  /** Whether this server can search the web. */
  readonly canSearch: boolean;
  /** Persona, search, scraping, files: what is added to a request, and what it costs at most. */
  readonly planAdditions: (inputs: AdditionInputs) => AdditionsPlan;
}

/** A request that may run, before its money is set aside. */
export interface ChatPlan {
  readonly parts: ChatParts;
  readonly context: RequestContext;
  /** Comes when nobody will ask for the answer any more. */
  readonly cancellation: Cancellation;
  /** As the model takes it. */
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly price: Price;
  readonly additions: AdditionsPlan;
  /** The service's own, and what was added to it; empty for none. */
  readonly systemPrompt: string;
  readonly extras: PromptExtras;
  /** Of the request as it came, with the system prompt. */
  readonly bounds: ChatBounds;
  /** How the answer is said; `undefined` for chat completions. */
  readonly protocol: ResponseProtocol | undefined;
}

/** A request that runs. */
export interface ChatRun extends ChatPlan {
  readonly sale: Sale;
  readonly prepared: PreparedAdditions;
  /** The engine call that runs. */
  round: Round;
  /** Of the calls that have ended. */
  uses: readonly RoundUse[];
  /** Tries of all calls that have ended. */
  attempts: number;
  /** What the engine's own search found. */
  cited: readonly RawResult[];
}

const NO_USES: readonly RoundUse[] = [];

/**
 * Plans the first engine call, now that its prompt is known, and has the run answered; rejects with
 * 402 when it is too dear.
 */
export function startRun(
  plan: ChatPlan,
  sale: Sale,
  prepared: PreparedAdditions,
  answer: (run: ChatRun) => Promise<void>,
): Promise<void> {
  const { request, bounds, systemPrompt } = plan;
  let round: Round | Promise<never>;
  if (request.isPlain && sale.hold.grantedNano === sale.request.price?.maxNano) {
    // The hold is of everything that it can cost.
    const promptBytes = request.facts.textBytes + Buffer.byteLength(systemPrompt);
    const { promptTokens, outputTokens } = bounds;
    round = { messages: undefined, searches: 0, promptBytes, promptTokens, outputTokens };
  } else round = firstRound(plan, sale, prepared);
  if (round instanceof Promise) return round;
  const cited = NOTHING_CITED;
  return answer({ ...plan, sale, prepared, round, uses: NO_USES, attempts: 0, cited });
}

/** As much as the hold covers. */
function firstRound(
  plan: ChatPlan,
  sale: Sale,
  prepared: PreparedAdditions,
): Round | Promise<never> {
  const { request, model, price, bounds, additions, extras } = plan;
  const addedBytes = Buffer.byteLength(plan.systemPrompt) + prepared.textBytes;
  const social = additions.socialSearch;
  const surcharges = surchargesOf(social ? [...prepared.uses, social.bound] : prepared.uses);
  const inputs: RoundInputs = {
    request,
    model,
    price,
    messages: prepared.messages,
    bounds: prepared.textBytes === 0 ? bounds : chatBounds(request, model, addedBytes, extras),
    addedBytes,
    leftNano: nano(sale.hold.grantedNano - surcharges),
    usedOutputTokens: 0,
    auto: additions.autoSearch,
  };
  const round = planRound(inputs);
  return round ?? sale.refuseTooDear(nano(surcharges + leastOfRound(inputs)));
}

/** Answers the calls of the round that has ended, and plans the next; rejects on abort. */
export async function searchRound(run: ChatRun, held: HeldRound): Promise<void> {
  const { request, model, price, prepared, sale, systemPrompt, extras } = run;
  const auto = run.additions.autoSearch;
  assert(auto !== undefined, 'calls are held only where searches are offered');
  await auto.search(held, run.round.searches, run.cancellation.signal);
  const addedBytes = Buffer.byteLength(systemPrompt) + prepared.textBytes + auto.messageBytes;
  const { tokens, costNano } = billOf(run);
  const inputs: RoundInputs = {
    request,
    model,
    price,
    messages: [...(prepared.messages ?? request.messages), ...auto.messages],
    bounds: chatBounds(request, model, addedBytes, extras),
    addedBytes,
    // The other nano covers what rounding took off.
    leftNano: nano(sale.hold.grantedNano - costNano - 1n),
    usedOutputTokens: tokens.completion,
    auto,
  };
  run.round = planRound(inputs) ?? lastResort(inputs);
}

/** What was used beside tokens, where the model or the engine searched. */
function searchUses({ prepared, additions, uses }: ChatRun): readonly ExtraUse[] {
  const { autoSearch: auto, socialSearch: social } = additions;
  const all = [...prepared.uses];
  if (auto !== undefined) all.push(auto.use);
  if (social !== undefined && uses.length > 0) {
    // An engine that names no number has made one search.
    const sources = uses.reduce((sum, use) => sum + (use.searchSources ?? 1), 0);
    all.push({ ...social.bound, count: Math.min(sources, social.bound.count) });
  }
  return all;
}

/** The bill of all rounds that have ended. */
export function billOf(run: ChatRun): ChatBill {
  const { prepared, additions, uses, price } = run;
  const hasSearch = additions.autoSearch !== undefined || additions.socialSearch !== undefined;
  return billChat(uses, price, hasSearch ? searchUses(run) : prepared.uses);
}

export function citationsOf({ prepared, additions, cited }: ChatRun): readonly SearchResult[] {
  const found = additions.autoSearch?.results;
  if (cited.length > 0) {
    const raw = [...prepared.citations, ...(found ?? []), ...cited];
    return cleanResults(
      raw.map(({ date, ...one }) => ({ ...one, date })),
      raw.length,
    );
  }
  return found === undefined ? prepared.citations : [...prepared.citations, ...found];
}

/** What an answer shows of what the engine says, and under what names. */
export function answerOptions(run: ChatRun): ResponseOptions & ResponseFrame {
  const { parts, context, request, model, prepared, additions, round } = run;
  const { disable_thinking, strip_thinking_response } = request.parameters;
  return {
    stripThinkTags: strip_thinking_response || disable_thinking,
    dropReasoning: disable_thinking,
    readsCitations: additions.socialSearch !== undefined,
    choiceCount: request.choiceCount,
    maxOutputTokens: round.outputTokens,
    // The receipt is found by either id.
    id: `chatcmpl-${context.requestId}`,
    model: model.id,
    createdS: Math.floor(parts.clock.nowMs() / 1_000),
    serviceName: parts.serviceName,
    documents: prepared.documents ?? additions.autoSearch?.documents,
  };
}

/**
 * The engine call of the current round: the body for each replica, affinity, and how much is read;
 * where the answer is taken whole also what was read of it.
 */
export class ChatCall implements WholeCall {
  readonly work = 'chat';
  readonly method = 'POST';
  readonly path = '/chat/completions';
  readonly contentType = 'application/json';
  readonly canAmend = true;
  readonly replicas: readonly Replica[];
  readonly affinityKey: string | undefined;
  readonly caller: string;
  readonly signal: Cancelling;
  readonly maxResponseBytes: number;
  readonly timeLimits: Partial<TimeLimits> | undefined;
  readonly accept: readonly string[];
  /** The usable answer that came last, of a call whose answer is read whole. */
  read: ChatResponse | undefined = undefined;
  readonly #run: ChatRun;
  readonly #options: ResponseOptions | undefined;

  /** `options`: how an answer that is taken whole is read. */
  constructor(run: ChatRun, options?: ResponseOptions) {
    const { request, model, round } = run;
    this.#run = run;
    this.#options = options;
    this.replicas = model.replicas;
    this.caller = run.context.caller.accountId;
    const key = request.promptCacheKey;
    this.affinityKey = key === undefined ? undefined : run.parts.cacheScope.keyOf(this.caller, key);
    this.signal = run.cancellation;
    // Figures of the prompt's tokens are as long as the prompt.
    const isUnbounded = Object.hasOwn(request.fields, 'prompt_logprobs');
    const tokens = round.outputTokens * request.choiceCount;
    const grantedBytes = MIN_RESPONSE_BYTES + tokens * RESPONSE_BYTES_PER_TOKEN;
    this.maxResponseBytes = isUnbounded
      ? MAX_RESPONSE_BYTES
      : Math.min(MAX_RESPONSE_BYTES, grantedBytes);
    this.timeLimits = request.stream ? undefined : WHOLE_LIMITS;
    this.accept = request.stream ? STREAM_TYPES : WHOLE_TYPES;
  }

  buildBody(replica: Replica, refusal?: EngineFailure): Buffer | undefined {
    const { request, model, parts, additions, round, systemPrompt } = this.#run;
    const { dialects, cacheScope } = parts;
    if (refusal !== undefined && !dialects.learn(replica, request, refusal)) return undefined;
    const dialect = dialects.of(replica);
    const { cache_salt: salt } = request.fields;
    const isSalted = dialect.cacheSalt || salt !== undefined;
    return engineRequest(request, {
      model: replica.model,
      dialect,
      promptCacheKey: this.affinityKey,
      cacheSalt: isSalted ? cacheScope.saltOf(this.caller, salt) : undefined,
      abilities: model,
      maxOutputTokens: round.outputTokens,
      systemPrompt,
      messages: round.messages,
      extraTool: round.searches === 0 ? undefined : additions.autoSearch?.tool,
      extraMembers: additions.socialSearch?.membersFor(replica.engine),
    });
  }

  /** An answer that is cut or no chat completion is the engine's failure: another may do better. */
  isUsable(body: Buffer): boolean {
    if (this.#options === undefined) return true;
    try {
      this.read = readChatResponse(body, this.#options);
      return true;
    } catch {
      // The engines report it as `garbage` when no replica gives a usable answer.
      return false;
    }
  }
}

/** The blocks of the answer, for a protocol that shows it in blocks; what `on` found is in them. */
export function answerBlocks(run: ChatRun, protocol: ResponseProtocol): ResponseBlocks {
  const { id: _chats, ...frame } = answerOptions(run);
  const { requestId } = run.context;
  const promptTokens = promptTokensAbout(run.request);
  const sources = run.request.parameters.enable_web_citations ? () => citationsOf(run) : undefined;
  const { takenCallIds, newCallId } = protocol;
  const writer = protocol.writer({ ...frame, requestId, promptTokens });
  return new ResponseBlocks({ writer, sources, takenCallIds, newCallId });
}

/** Shows the search that was made before the answer, when one was. */
export function showPrepared({ prepared, request }: ChatRun, blocks: ResponseBlocks): string {
  if (!prepared.uses.some(({ name }) => name === 'web_search')) return '';
  return blocks.searched(userText(request.messages).trim(), prepared.citations);
}

/** Shows the searches of the model that are not shown yet. */
export function showSearches(run: ChatRun, blocks: ResponseBlocks, shown: number): string {
  const searches = run.additions.autoSearch?.searches.slice(shown) ?? [];
  return searches.map(({ query, results }) => blocks.searched(query, results)).join('');
}

/** What ends an answer once it is charged. */
export function answerEnd(
  run: ChatRun,
  { usage }: ChatBill,
  { usdNano, diemNano }: { readonly usdNano: bigint; readonly diemNano: bigint },
): ResponseEnd {
  const cost = { usd: toUsdNumber(usdNano), diem: toUsdNumber(diemNano) };
  return { usage, cost, parameters: run.request.parameters, citations: citationsOf(run) };
}

/** What is settled for the rounds that have ended. */
export function outcomeOf(
  run: ChatRun,
  { costNano, tokens, countedBy, extraUses }: ChatBill,
  status: Outcome['status'],
  from: Pick<Outcome, 'replica' | 'firstTokenMs'>,
): Outcome {
  const { uses, attempts } = run;
  const extras: Record<string, unknown> = {};
  if (extraUses.length > 0) Object.assign(extras, receiptLines(extraUses));
  if (uses.length > 1) extras['engine_calls'] = uses.length;
  return { costNano, status, tokens, countedBy, attempts, extras, ...from };
}

/** Notes for the log what was settled. */
export function noteBill({ context }: ChatRun, bill: ChatBill, replica: string | undefined): void {
  const { notes } = context;
  notes.costUsd = formatUsd(bill.costNano);
  notes.promptTokens = bill.tokens.prompt;
  notes.completionTokens = bill.tokens.completion;
  if (replica !== undefined) notes.replica = replica;
}

/** Who was asked, and how often. */
export type Attempted = Pick<EngineOutcome, 'attempts' | 'replica'>;

/** Notes what a round used, and in the log when its engine said what cannot be. */
export function endRound(run: ChatRun, end: RoundEnd, outcome: Attempted): void {
  const use = roundUse(end, run.round, run.request);
  run.uses = run.uses.length === 0 ? [use] : [...run.uses, use];
  run.attempts += outcome.attempts;
  const { promptTokens, completionTokens } = end.reported?.usage ?? {};
  if (promptTokens !== undefined && run.request.isPlain && end.extent === 'whole') {
    const { promptBytes } = run.round;
    run.parts.templates.note(run.model, { promptBytes, promptTokens });
  }
  if (!use.isImpossible) return;
  const said = { replica: outcome.replica?.engine, promptTokens, completionTokens };
  run.parts.log.warn(
    { requestId: run.context.requestId, ...said },
    'An engine reported more tokens than the hold of the request covers; only those are billed. The settings templateTokens of a model and socialSearch.maxPromptTokens raise the hold',
  );
}

/** The caller left before any text: what an engine had to read is billed. */
export function endUnseen(run: ChatRun, outcome: Attempted, reported?: RoundEnd['reported']): void {
  // A call that still waited for an engine has made no work.
  const extent = outcome.attempts > 0 ? 'unseen' : 'partial';
  endRound(run, { reported, tally: noOutput(), extent }, outcome);
}

/** The failure of an engine in words for the caller. */
export function chatFault(run: ChatRun, failure: EngineFailure): Error {
  if (saysContextOverflow(failure)) return contextOverflow(run.model, undefined);
  return engineFault(failure, run.model.id);
}

/** What the headers of the answer say. */
export function factsOf(
  { model, deprecation, sale, parts }: ChatRun,
  head: EngineHead | undefined,
  remainingNano: ResponseFacts['remainingNano'],
): ResponseFacts {
  const flags = head && parts.headers.flagsOf(head.headers);
  const replica = head?.replica.engine;
  const attempts = head?.attempts ?? 1;
  return { model, deprecation, sale, replica, attempts, flags, remainingNano };
}
