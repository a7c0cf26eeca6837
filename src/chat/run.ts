/**
 * Runs one chat from its hold to its settlement: `ChatRun` owns the loop over engine calls (several
 * if the model searches), their usage, and the charge. It sends JSON; `stream-run.ts` overrides how
 * the engine is read and the response is written.
 *
 * Every run ends its hold: a response settles it, a caller who leaves pays for the output so far,
 * and a failed engine costs nothing but text already sent.
 */
import { type Settlement, expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Outcome, Sale, SoldResponse } from '../billing/sale.ts';
import { type Price, type SuppliedWork, supplierCost } from '../catalog/catalog.ts';
import { assert } from '../core/assert.ts';
import type { Cancellation } from '../core/cancellation.ts';
import { nano } from '../core/money.ts';
import type { TryLog } from '../core/request-tries.ts';
import type {
  EngineFailure,
  EngineHead,
  EngineOutcome,
  FailureReason,
  Replica,
  WholeCall,
} from '../engines/engines.ts';
import { engineFault, type KnownFailure, saysContextOverflow } from '../engines/engine-refusal.ts';
import { JSON_TYPE } from '../http/route.ts';
import { costOf, noteOutcome } from '../http/model-sale.ts';
import type { TimeLimits } from '../net/exchange.ts';
import type { ResponseBlocks } from './agents/response-blocks.ts';
import type { PreparedAdditions } from './additions.ts';
import type { RequestedSearch } from './auto-search.ts';
import {
  type Attempted,
  type ChatBill,
  type RoundEnd,
  type RoundUse,
  billChat,
  receiptLines,
  roundUse,
  searchUses,
} from './chat-bill.ts';
import {
  type Round,
  contextOverflow,
  MAX_RESPONSE_BYTES,
  minimalRound,
  mostResponseBytes,
  planRound,
  shorterRound,
} from './chat-bounds.ts';
import {
  type ChatPlan,
  engineTarget,
  roundInputs,
  tierPrice,
  withTotal,
  withSupplied,
} from './chat-plan.ts';
import { userText } from './message-content.ts';
import { newBlocks } from './run-blocks.ts';
import { type SearchResult, withCited } from './web/web.ts';
import { noOutput } from './wire/chat-choice.ts';
import { readUpstream, type UpstreamBody, upstreamBody } from './upstream/upstreams.ts';
import {
  type ChatResponse,
  NOTHING_CITED,
  readChatResponse,
  type ResponseEnd,
  type ResponseFrame,
  type ResponseOptions,
  writeChatResponse,
} from './wire/chat-response.ts';
import { engineRequest } from './wire/engine-request.ts';
import { type SearchRound, searchRoundOf, joinedResponse } from './wire/search-calls.ts';

const NO_USES: readonly RoundUse[] = [];

/** The first byte of a non-streaming response arrives when it is complete. */
const JSON_LIMITS = { firstByteMs: 600_000 };
const STREAM_TYPES = ['text/event-stream'];
const JSON_TYPES = ['application/json'];

/** The run itself is the engine call of each round. */
export class ChatRun implements WholeCall {
  readonly work: WholeCall['work'];
  readonly method = 'POST';
  readonly path: string;
  readonly isOptionalPath: boolean;
  readonly contentType = 'application/json';
  readonly canAmend = true;
  readonly replicas: readonly Replica[];
  readonly affinityKey: string | undefined;
  readonly caller: string;
  readonly signal: Cancellation;
  readonly accept: readonly string[];
  readonly timeLimits: Partial<TimeLimits> | undefined;
  maxResponseBytes = MAX_RESPONSE_BYTES;
  readonly plan: ChatPlan;
  readonly sale: Sale;
  protected round: Round;
  protected readonly prepared: PreparedAdditions;
  protected readonly blocks: ResponseBlocks | undefined;
  protected options: ResponseOptions & ResponseFrame;
  protected head: EngineHead | undefined;
  /** The body for the replica that was tried last, unless it speaks chat completions. */
  translated: UpstreamBody | undefined;
  /** Results of the engine's own search. */
  protected cited = NOTHING_CITED;
  protected isCharging = false;
  /** Why all engines of the model failed in the first call. */
  failure: FailureReason | undefined;
  #uses = NO_USES;
  #attempts = 0;
  /** Set if the engine decides on the price. */
  #price: Price | undefined;
  /** Set if a replica of the model has the prices of its supplier. */
  #supplied: readonly SuppliedWork[] | undefined;
  #read: ChatResponse | undefined;
  #earlier: SearchRound[] | undefined;
  #body: Buffer | string | undefined;

  constructor(plan: ChatPlan, sale: Sale, prepared: PreparedAdditions, round: Round) {
    this.plan = plan;
    this.sale = sale;
    this.prepared = prepared;
    this.round = round;
    this.options = this.#responseOptions();
    const { request, model, context, parts, wire } = plan;
    this.work = wire === undefined ? 'chat' : wire.work;
    this.path = wire === undefined ? '/chat/completions' : wire.path;
    this.isOptionalPath = wire !== undefined;
    this.replicas = model.replicas;
    this.caller = sale.request.caller.accountId;
    const key = request.promptCacheKey;
    this.affinityKey = key === undefined ? undefined : parts.cacheScope.keyOf(this.caller, key);
    this.signal = context.cancellation;
    this.accept = request.stream ? STREAM_TYPES : JSON_TYPES;
    this.timeLimits = request.stream ? undefined : JSON_LIMITS;
    if (plan.protocol !== undefined) {
      this.blocks = newBlocks(plan, plan.protocol, this.options, () => this.citations());
      // A stream shows it after its first events.
      if (!plan.request.stream) this.showPrepared(this.blocks);
    }
  }

  async respond(): Promise<void> {
    const { signal: cancellation } = this;
    for (;;) {
      this.maxResponseBytes = mostResponseBytes(this.plan, this.round);
      const outcome = await this.callEngine();
      if (outcome.ok) this.head = outcome.head;
      else this.#read = undefined;
      const error = cancellation.aborted ? undefined : this.problemOf(outcome);
      this.endRound(outcome);
      if (error !== undefined) {
        if (!outcome.ok && this.#uses.length === 1) this.failure = outcome.reason;
        return this.fail(error, outcome);
      }
      if (!cancellation.aborted && this.round.searches > 0) {
        const round = this.searchRound();
        if (round !== undefined && (await this.#search(round))) continue;
      }
      if (!cancellation.aborted) return await this.#complete(outcome);
      return void (await this.settle(outcome, 'aborted'));
    }
  }

  /** Whether the caller has received bytes. */
  get hasBegun(): boolean {
    return false;
  }

  get tries(): TryLog {
    return this.plan.context;
  }

  protected callEngine(): Promise<EngineOutcome> {
    return this.plan.parts.engines.run(this, null).outcome;
  }

  buildBody(replica: Replica, given?: EngineFailure): Buffer | undefined {
    const { plan, prepared } = this;
    const { request, wire, parts, protocol } = plan;
    const isOverflow = given !== undefined && saysContextOverflow(given);
    const shorter = isOverflow ? shorterRound(plan, this.round) : undefined;
    if (shorter !== undefined) this.round = shorter;
    const refusal = shorter === undefined ? given : undefined;
    if (wire !== undefined) return wire.buildBody(replica, refusal, this.round.outputTokens);
    const texts = refusal && [this.round.messages, protocol?.passThrough?.body];
    const isRefused =
      refusal !== undefined && !parts.dialects.learn(replica, request, refusal, texts);
    const target = engineTarget(plan, this.round, replica, this);
    const { dialect } = target;
    if (dialect.protocol === 'openai' && isRefused) return undefined;
    this.translated = undefined;
    if (dialect.protocol === 'openai') return engineRequest(request, target);
    const inputs = { plan, prepared, target, refusal: isRefused ? refusal : undefined };
    this.translated = upstreamBody(dialect.protocol, inputs);
    return this.translated.body;
  }

  /**
   * A response that cannot be parsed counts as a failure of the engine, so that another replica is
   * tried.
   */
  isUsable(body: Buffer): boolean | Promise<boolean> {
    const { wire } = this.plan;
    if (wire !== undefined) {
      return wire.read(body, this.round.outputTokens).then((read) => {
        this.#read = read;
        return read !== undefined;
      });
    }
    const { translated, options } = this;
    try {
      this.#read =
        translated === undefined
          ? readChatResponse(body, options)
          : readUpstream(translated, body, options);
    } catch {
      // Reported as `garbage` if no replica returns a usable response.
      this.#read = undefined;
    }
    return this.#read !== undefined;
  }

  protected problemOf(outcome: EngineOutcome): Error | undefined {
    return outcome.ok ? undefined : this.faultOf(outcome, engineFault);
  }

  protected faultOf(failure: KnownFailure, fault: typeof engineFault) {
    const { model, wire } = this.plan;
    if (!saysContextOverflow(failure)) return fault(failure, model.id);
    return contextOverflow(model, undefined, wire === undefined ? 'messages' : 'prompt');
  }

  protected endRound(outcome: Attempted): void {
    const read = this.#read;
    if (read !== undefined) {
      this.cited = read.cited ?? NOTHING_CITED;
      return this.noteUse({ reported: read.reported, tally: read.tally, extent: 'whole' }, outcome);
    }
    // The engine has read the prompt, unless the call waited for an engine.
    const extent = outcome.wasWorking === false ? 'partial' : 'unseen';
    this.noteUse({ reported: undefined, tally: noOutput(), extent }, outcome);
  }

  protected fail(error: Error, _outcome: Attempted): Promise<void> {
    return Promise.reject(error);
  }

  protected searchRound(): SearchRound | undefined {
    const tool = this.plan.additions.autoSearch?.toolName;
    return tool !== undefined && this.#read ? searchRoundOf(this.#read, tool) : undefined;
  }

  /** Runs the searches and plans the next round. Returns `false` if the caller left. */
  async #search(round: SearchRound): Promise<boolean> {
    const { additions, context, systemPrompt, request } = this.plan;
    const { autoSearch: auto } = additions;
    assert(auto !== undefined, 'search calls end a round only if searches are offered');
    const shown = auto.searches.length;
    this.showSearching(round);
    try {
      await auto.search(round, this.round.searches, context.cancellation.signal);
    } catch (error) {
      if (!context.cancellation.aborted) throw error;
      return false;
    }
    const { tokens, costNano } = this.bill();
    const inputs = roundInputs(this.plan, {
      messages: [...(this.prepared.messages ?? request.messages), ...auto.messages],
      addedBytes: Buffer.byteLength(systemPrompt) + this.prepared.textBytes + auto.messageBytes,
      // One nano less, because the cost is rounded.
      leftNano: nano(this.sale.hold.grantedNano - costNano - 1n),
      usedOutputTokens: tokens.completion,
    });
    this.round = planRound(inputs) ?? minimalRound(inputs);
    this.options = this.#responseOptions();
    this.nextRound(round, auto.searches.slice(shown));
    return true;
  }

  protected showSearching(_round: SearchRound): void {}

  protected nextRound(round: SearchRound, searches: readonly RequestedSearch[]): void {
    const { blocks } = this;
    if (blocks === undefined) return void (this.#earlier ??= []).push(round);
    const { content, reasoning: reasoning_content, details: reasoning_details } = round;
    blocks.choice({ delta: { content, reasoning_content, reasoning_details } });
    for (const { query, results } of searches) blocks.searched(query, results);
    blocks.nextRound();
  }

  async #complete(outcome: Attempted): Promise<void> {
    const bill = this.bill();
    const completed = this.#outcomeOf(bill, outcome, 'completed');
    this.isCharging = true;
    await this.sale.answer(
      completed,
      (settled) => this.bodyOf(this.endOf(bill, settled), settled),
      this.blocks?.writer.together,
    );
    noteOutcome(this.plan.context, completed);
    const sending = this.send();
    if (sending !== undefined) await sending;
  }

  /** Makes the response body; called again if the settlement is retried. */
  protected bodyOf(end: ResponseEnd, settled: Settlement): SoldResponse {
    this.setHeaders(settled);
    assert(this.#read !== undefined, 'a usable response was read');
    const { additions, wire } = this.plan;
    const { autoSearch } = additions;
    const read =
      autoSearch === undefined
        ? this.#read
        : joinedResponse(this.#read, autoSearch.toolName, this.#earlier ?? []);
    const { blocks, translated } = this;
    if (wire !== undefined) this.#body = wire.write(read, end);
    else if (translated?.pass !== undefined)
      this.#body = translated.pass.writeResponse(read, this.options, end);
    else if (blocks === undefined) this.#body = writeChatResponse(read, this.options, end);
    else {
      if (this.#body === undefined) blocks.message(read.choices[0]);
      this.#body = blocks.whole(end);
    }
    return { type: JSON_TYPE, body: this.#body };
  }

  protected send(): void | Promise<void> {
    return this.plan.context.bytes(200, JSON_TYPE, this.#body ?? '');
  }

  protected async settle(outcome: Attempted, status: 'aborted' | 'failed'): Promise<ResponseEnd> {
    const bill = this.bill();
    const ended = this.#outcomeOf(bill, outcome, status);
    const settled = await this.sale.settle(ended);
    noteOutcome(this.plan.context, ended);
    return this.endOf(bill, settled);
  }

  protected noteUse(given: RoundEnd, outcome: Attempted): void {
    const { request, model, price, parts, context, tier } = this.plan;
    const isPartial = given.reported?.usage.uncountedTokens !== undefined;
    const end = isPartial ? withTotal(given, parts.dialects, outcome) : given;
    const use = roundUse(end, this.round, request);
    if (use.detail !== undefined) parts.unpriced.note(use, model.id, price);
    if (tier !== undefined) this.#price = tierPrice(this.plan, end, this.#price);
    if (model.hasCosts) this.#supplied = withSupplied(this.plan, this.#supplied, end, use, outcome);
    this.#uses = this.#uses === NO_USES ? [use] : [...this.#uses, use];
    this.#attempts += outcome.attempts;
    const { promptTokens, completionTokens } = end.reported?.usage ?? {};
    if (promptTokens !== undefined && request.isPlain && end.extent === 'whole') {
      const { promptBytes } = this.round;
      const { messageCount } = request.facts;
      parts.templates.note(model, { promptBytes, messageCount, promptTokens });
    }
    if (!use.exceedsBound) return;
    const reported = { replica: outcome.replica?.engine, promptTokens, completionTokens };
    parts.log.warn(
      { requestId: context.requestId, ...reported },
      'An engine reported more tokens than the hold of the request covers; only those are billed. The settings templateTokens of a model, addedPromptTokens of an engine and socialSearch.maxPromptTokens raise the hold',
    );
  }

  protected bill(): ChatBill {
    const { additions, price: sold } = this.plan;
    const price = this.#price ?? sold;
    let extraUses = this.prepared.uses;
    if (additions.autoSearch !== undefined || additions.socialSearch !== undefined) {
      extraUses = [...extraUses, ...searchUses(additions, this.#uses)];
    }
    const bill = billChat(this.#uses, price, extraUses);
    // The hold covers the price of the requested tier, which can be lower than that of the served one.
    const { grantedNano } = this.sale.hold;
    return price === sold || bill.costNano <= grantedNano
      ? bill
      : { ...bill, costNano: grantedNano };
  }

  #outcomeOf(
    { costNano, tokens, countedBy, extraUses, lines }: ChatBill,
    { replica }: Attempted,
    status: Outcome['status'],
  ): Outcome {
    const extras: Record<string, unknown> = {};
    if (this.#price !== undefined) this.sale.servedAs(this.plan.model.id, this.#price.version);
    if (lines !== undefined) extras['lines'] = lines;
    if (extraUses.length > 0) Object.assign(extras, receiptLines(extraUses));
    if (this.#uses.length > 1) extras['engine_calls'] = this.#uses.length;
    return {
      costNano,
      status,
      tokens,
      countedBy,
      attempts: this.#attempts,
      supplier:
        this.#supplied && supplierCost(this.plan.model, this.#supplied, this.sale.startedMs),
      extras,
      replica: replica?.engine,
      firstTokenMs: this.head?.firstByteMs,
    };
  }

  protected endOf({ usage }: ChatBill, settled: Settlement): ResponseEnd {
    const { parameters } = this.plan.request;
    return { usage, cost: costOf(settled), parameters, citations: this.citations() };
  }

  protected citations(): readonly SearchResult[] {
    const { citations } = this.prepared;
    const given = citations.concat(this.plan.additions.autoSearch?.results ?? []);
    return this.cited.length === 0 ? given : withCited(given, this.cited);
  }

  /** A stream begins before its charge, so it reports the least possible balance. */
  setHeaders({ after } = expectedSettlement(this.sale.hold)): void {
    const { model, deprecation, parts, context } = this.plan;
    const { head, sale } = this;
    parts.headers.answered(
      {
        model,
        deprecation,
        sale,
        replica: head?.replica.engine,
        attempts: head?.attempts ?? 1,
        flags: head && parts.headers.flagsOf(head.headers),
        remainingNano: after.usdNano,
      },
      context.answerHeaders,
    );
  }

  #responseOptions(): ResponseOptions & ResponseFrame {
    const { parts, context, request, model, additions } = this.plan;
    const { disable_thinking, strip_thinking_response } = request.parameters;
    return {
      stripThinkTags: strip_thinking_response || disable_thinking,
      dropReasoning: disable_thinking,
      readsCitations: additions.socialSearch !== undefined,
      choiceCount: request.choiceCount,
      maxOutputTokens: this.round.outputTokens,
      id: `chatcmpl-${context.requestId}`,
      model: model.id,
      createdS: Math.floor(this.sale.startedMs / 1_000),
      serviceName: parts.serviceName,
      documents: this.prepared.documents ?? additions.autoSearch?.documents,
    };
  }

  protected showPrepared(blocks: ResponseBlocks): string {
    const { uses, citations } = this.prepared;
    if (!uses.some(({ name }) => name === 'web_search')) return '';
    return blocks.searched(userText(this.plan.request.messages).trim(), citations);
  }
}
