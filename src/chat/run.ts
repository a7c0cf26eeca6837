/**
 * One chat from its hold to its settled charge. `ChatRun` owns the loop over engine calls (one, or
 * several where the model searches by itself), what they used, and the charge. Its response is JSON;
 * `stream-run.ts` overrides how the engine is read and the response is written.
 *
 * A chat always ends its hold: a response settles it, a caller who leaves pays for what was produced,
 * a failed engine costs nothing but the text that was already sent.
 */
import { type Settlement, expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Outcome, Sale, SoldResponse } from '../billing/sale.ts';
import { assert } from '../core/assert.ts';
import type { Cancellation } from '../core/cancellation.ts';
import { formatUsd, nano, toUsdNumber } from '../core/money.ts';
import type {
  EngineFailure,
  EngineHead,
  EngineOutcome,
  Replica,
  WholeCall,
} from '../engines/engines.ts';
import { engineFault, saysContextOverflow } from '../engines/engine-refusal.ts';
import { JSON_TYPE } from '../http/route.ts';
import type { TimeLimits } from '../net/exchange.ts';
import { ResponseBlocks } from './agents/response-blocks.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import type { PreparedAdditions } from './additions.ts';
import type { RequestedSearch } from './auto-search.ts';
import {
  type ChatBill,
  type RoundEnd,
  type RoundUse,
  billChat,
  receiptLines,
  roundUse,
} from './chat-bill.ts';
import { type Round, contextOverflow, lastResort, planRound } from './chat-bounds.ts';
import { type ChatPlan, roundInputs } from './chat-plan.ts';
import { userText } from './message-content.ts';
import { type SearchResult, cleanResults } from './web/web.ts';
import { noOutput } from './wire/chat-choice.ts';
import {
  type ChatResponse,
  type ResponseEnd,
  type ResponseFrame,
  type ResponseOptions,
  readChatResponse,
  writeChatResponse,
} from './wire/chat-response.ts';
import { NOTHING_CITED } from './wire/engine-citations.ts';
import { engineRequest } from './wire/engine-request.ts';
import { type HeldRound, heldRoundOf, joinedResponse } from './wire/held-calls.ts';
import { promptTokensAbout } from './wire/prompt-facts.ts';

/** The replica of an engine call, and how often it was tried. */
export type Attempted = Pick<EngineOutcome, 'attempts' | 'replica'>;

const NO_USES: readonly RoundUse[] = [];

/** A longer response is an error, whatever was requested. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Of a response with a small grant: names, settings and figures that an engine adds. */
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** One token as a chunk for each of its characters, or with its twenty likeliest others. */
const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;
/** A non-streaming response has its first byte when all of it is there. */
const JSON_LIMITS = { firstByteMs: 600_000 };
const STREAM_TYPES = ['text/event-stream'];
const JSON_TYPES = ['application/json'];

/** The engine call of each of its rounds is the run itself. */
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
  /** Of a protocol that shows the response in blocks. */
  protected readonly blocks: ResponseBlocks | undefined;
  protected options: ResponseOptions & ResponseFrame;
  protected head: EngineHead | undefined;
  /** What the engine's own search found. */
  protected cited = NOTHING_CITED;
  /** All engine calls have ended, and what they made is being charged. */
  protected isCharging = false;
  #uses = NO_USES;
  #attempts = 0;
  #read: ChatResponse | undefined;
  #earlier: HeldRound[] | undefined;
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
    this.caller = context.caller.accountId;
    const key = request.promptCacheKey;
    this.affinityKey = key === undefined ? undefined : parts.cacheScope.keyOf(this.caller, key);
    this.signal = context.cancellation;
    this.accept = request.stream ? STREAM_TYPES : JSON_TYPES;
    this.timeLimits = request.stream ? undefined : JSON_LIMITS;
    if (plan.protocol !== undefined) {
      this.blocks = this.#newBlocks(plan.protocol);
      // A stream shows it after its begin.
      if (!plan.request.stream) this.showPrepared(this.blocks);
    }
  }

  /** Runs the chat and sends its response. */
  async respond(): Promise<void> {
    const { signal: cancellation } = this;
    for (;;) {
      this.maxResponseBytes = this.#mostBytes();
      const outcome = await this.callEngine();
      if (outcome.ok) this.head = outcome.head;
      else this.#read = undefined;
      const error = cancellation.aborted ? undefined : this.problemOf(outcome);
      this.endRound(outcome);
      if (error !== undefined) return this.fail(error, outcome);
      if (!cancellation.aborted && this.round.searches > 0) {
        const held = this.heldRound();
        if (held !== undefined && (await this.#search(held))) continue;
      }
      if (!cancellation.aborted) return this.#complete(outcome);
      await this.settle(outcome, 'aborted');
      return;
    }
  }

  protected callEngine(): Promise<EngineOutcome> {
    return this.plan.parts.engines.collect(this);
  }

  #mostBytes(): number {
    const { request, wire } = this.plan;
    if (wire !== undefined) {
      return Math.min(MAX_RESPONSE_BYTES, wire.responseBytes(this.round.outputTokens));
    }
    // Log probabilities of the prompt are as long as the prompt.
    if (Object.hasOwn(request.fields, 'prompt_logprobs')) return MAX_RESPONSE_BYTES;
    const tokens = this.round.outputTokens * request.choiceCount;
    return Math.min(MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES + tokens * RESPONSE_BYTES_PER_TOKEN);
  }

  buildBody(replica: Replica, refusal?: EngineFailure): Buffer | undefined {
    const { request, model, parts, additions, systemPrompt, wire } = this.plan;
    const { messages, searches, outputTokens } = this.round;
    if (wire !== undefined) return wire.buildBody(replica, refusal, outputTokens);
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
      maxOutputTokens: outputTokens,
      systemPrompt,
      messages,
      extraTool: searches === 0 ? undefined : additions.autoSearch?.tool,
      extraMembers: additions.socialSearch?.membersFor(replica.engine),
    });
  }

  /** A truncated response or one of another kind is the engine's failure: another may do better. */
  isUsable(body: Buffer): boolean | Promise<boolean> {
    const { wire } = this.plan;
    if (wire !== undefined) {
      return wire.read(body, this.round.outputTokens).then((read) => {
        this.#read = read;
        return read !== undefined;
      });
    }
    try {
      this.#read = readChatResponse(body, this.options);
      return true;
    } catch {
      // The engines report it as `garbage` when no replica gives a usable response.
      return false;
    }
  }

  protected problemOf(outcome: EngineOutcome): Error | undefined {
    if (outcome.ok) return undefined;
    const { model } = this.plan;
    const param = this.plan.wire === undefined ? 'messages' : 'prompt';
    if (saysContextOverflow(outcome)) return contextOverflow(model, undefined, param);
    return engineFault(outcome, model.id);
  }

  protected endRound(outcome: Attempted): void {
    const read = this.#read;
    if (read !== undefined) {
      this.cited = read.cited;
      return this.noteUse({ reported: read.reported, tally: read.tally, extent: 'whole' }, outcome);
    }
    // The engine has read the prompt, unless the call still waited for one.
    const extent = outcome.attempts > 0 ? 'unseen' : 'partial';
    this.noteUse({ reported: undefined, tally: noOutput(), extent }, outcome);
  }

  /** Responds with an error, before anything is settled. */
  protected fail(error: Error, _outcome: Attempted): Promise<void> {
    return Promise.reject(error);
  }

  /** The output of a round that has only calls of our own tool. */
  protected heldRound(): HeldRound | undefined {
    const tool = this.plan.additions.autoSearch?.toolName;
    if (tool === undefined || this.#read === undefined) return undefined;
    return heldRoundOf(this.#read, tool);
  }

  /** Runs the searches of a round and plans the next one; `false` when the caller left. */
  async #search(held: HeldRound): Promise<boolean> {
    const { additions, context, systemPrompt, request } = this.plan;
    const { autoSearch: auto } = additions;
    assert(auto !== undefined, 'calls are held only where searches are offered');
    const shown = auto.searches.length;
    this.showSearching(held);
    try {
      await auto.search(held, this.round.searches, context.cancellation.signal);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
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
    this.round = planRound(inputs) ?? lastResort(inputs);
    this.options = this.#responseOptions();
    this.nextRound(held, auto.searches.slice(shown));
    return true;
  }

  protected showSearching(_held: HeldRound): void {}

  protected nextRound(held: HeldRound, searches: readonly RequestedSearch[]): void {
    const { blocks } = this;
    if (blocks === undefined) {
      (this.#earlier ??= []).push(held);
      return;
    }
    blocks.choice({ delta: { content: held.content, reasoning_content: held.reasoning } });
    for (const { query, results } of searches) blocks.searched(query, results);
    blocks.nextRound();
  }

  async #complete(outcome: Attempted): Promise<void> {
    const bill = this.bill();
    this.isCharging = true;
    await this.sale.answer(
      this.#outcomeOf(bill, outcome, 'completed'),
      (settled) => this.bodyOf(this.endOf(bill, settled), settled),
      this.blocks?.writer.together,
    );
    this.#noteBill(bill, outcome);
    const sending = this.send();
    if (sending !== undefined) await sending;
  }

  /** Makes the response body; called again when the settle is retried. */
  protected bodyOf(end: ResponseEnd, settled: Settlement): SoldResponse {
    this.setHeaders(settled);
    assert(this.#read !== undefined, 'a usable response was read');
    const { additions, wire } = this.plan;
    const { autoSearch } = additions;
    const read =
      autoSearch === undefined
        ? this.#read
        : joinedResponse(this.#read, autoSearch.toolName, this.#earlier ?? []);
    const { blocks } = this;
    if (wire !== undefined) this.#body = wire.write(read, end);
    else if (blocks === undefined) this.#body = writeChatResponse(read, this.options, end);
    else {
      if (this.#body === undefined) showChoice(read, blocks);
      this.#body = blocks.whole(end);
    }
    return { type: JSON_TYPE, body: this.#body };
  }

  protected send(): void | Promise<void> {
    return this.plan.context.bytes(200, JSON_TYPE, this.#body ?? '');
  }

  protected async settle(outcome: Attempted, status: 'aborted' | 'failed'): Promise<ResponseEnd> {
    const bill = this.bill();
    const settled = await this.sale.settle(this.#outcomeOf(bill, outcome, status));
    this.#noteBill(bill, outcome);
    return this.endOf(bill, settled);
  }

  /** Adds the usage of an engine call to the bill, and logs usage that exceeds the hold. */
  protected noteUse(end: RoundEnd, outcome: Attempted): void {
    const { request, model, parts, context } = this.plan;
    const use = roundUse(end, this.round, request);
    this.#uses = this.#uses === NO_USES ? [use] : [...this.#uses, use];
    this.#attempts += outcome.attempts;
    const { promptTokens, completionTokens } = end.reported?.usage ?? {};
    if (promptTokens !== undefined && request.isPlain && end.extent === 'whole') {
      parts.templates.note(model, { promptBytes: this.round.promptBytes, promptTokens });
    }
    if (!use.isImpossible) return;
    const reported = { replica: outcome.replica?.engine, promptTokens, completionTokens };
    parts.log.warn(
      { requestId: context.requestId, ...reported },
      'An engine reported more tokens than the hold of the request covers; only those are billed. The settings templateTokens of a model and socialSearch.maxPromptTokens raise the hold',
    );
  }

  protected bill(): ChatBill {
    const { additions, price } = this.plan;
    const { autoSearch: auto, socialSearch: social } = additions;
    const uses = this.#uses;
    if (auto === undefined && social === undefined) {
      return billChat(uses, price, this.prepared.uses);
    }
    const extraUses = [...this.prepared.uses];
    if (auto !== undefined) extraUses.push(auto.use);
    if (social !== undefined && uses.length > 0) {
      // An engine that reports no number of sources has made one search.
      const sources = uses.reduce((sum, use) => sum + (use.searchSources ?? 1), 0);
      extraUses.push({ ...social.bound, count: Math.min(sources, social.bound.count) });
    }
    return billChat(uses, price, extraUses);
  }

  #outcomeOf(
    { costNano, tokens, countedBy, extraUses }: ChatBill,
    { replica }: Attempted,
    status: Outcome['status'],
  ): Outcome {
    const extras: Record<string, unknown> = {};
    if (extraUses.length > 0) Object.assign(extras, receiptLines(extraUses));
    if (this.#uses.length > 1) extras['engine_calls'] = this.#uses.length;
    return {
      costNano,
      status,
      tokens,
      countedBy,
      attempts: this.#attempts,
      extras,
      ...(replica === null ? {} : { replica: replica.engine }),
      ...(this.head === undefined ? {} : { firstTokenMs: this.head.firstByteMs }),
    };
  }

  #noteBill({ costNano, tokens }: ChatBill, { replica }: Attempted): void {
    const { notes } = this.plan.context;
    notes.costUsd = formatUsd(costNano);
    notes.promptTokens = tokens.prompt;
    notes.completionTokens = tokens.completion;
    if (replica !== null) notes.replica = replica.engine;
  }

  protected endOf({ usage }: ChatBill, { usdNano, diemNano }: Settlement): ResponseEnd {
    const cost = { usd: toUsdNumber(usdNano), diem: toUsdNumber(diemNano) };
    const { parameters } = this.plan.request;
    return { usage, cost, parameters, citations: this.citations() };
  }

  protected citations(): readonly SearchResult[] {
    const { citations } = this.prepared;
    const found = this.plan.additions.autoSearch?.results;
    if (this.cited.length === 0) {
      return found === undefined ? citations : [...citations, ...found];
    }
    const raw = [...citations, ...(found ?? []), ...this.cited];
    return cleanResults(
      raw.map(({ date, ...one }) => ({ ...one, date })),
      raw.length,
    );
  }

  /** Sets the response headers. A stream begins before its charge: it reports the least balance. */
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
      // `GET /usage/{id}` takes it in the place of the request id.
      id: `chatcmpl-${context.requestId}`,
      model: model.id,
      createdS: Math.floor(this.sale.startedMs / 1_000),
      serviceName: parts.serviceName,
      documents: this.prepared.documents ?? additions.autoSearch?.documents,
    };
  }

  #newBlocks(protocol: ResponseProtocol): ResponseBlocks {
    const { request, context } = this.plan;
    const { id: _chats, ...frame } = this.options;
    const promptTokens = promptTokensAbout(request);
    const hasMarks = request.parameters.enable_web_citations;
    return new ResponseBlocks({
      writer: protocol.writer({ ...frame, requestId: context.requestId, promptTokens }),
      sources: hasMarks ? () => this.citations() : undefined,
      takenCallIds: protocol.takenCallIds,
      newCallId: protocol.newCallId,
    });
  }

  /** The block of the search that was made before the engine call, if there was one. */
  protected showPrepared(blocks: ResponseBlocks): string {
    const { uses, citations } = this.prepared;
    if (!uses.some(({ name }) => name === 'web_search')) return '';
    return blocks.searched(userText(this.plan.request.messages).trim(), citations);
  }
}

function showChoice({ choices: [choice] }: ChatResponse, blocks: ResponseBlocks): void {
  if (choice === undefined) return;
  const { message, ...rest } = choice;
  blocks.choice({ ...rest, delta: message });
}
