/**
 * Runs a streaming chat: chunks are passed on as they arrive, the charge is settled when the engine
 * has ended, and then the usage chunk and `[DONE]` are sent. Text that was sent is charged, however
 * the stream ends.
 */
import type { Sale, SoldResponse } from '../billing/sale.ts';
import { Fault } from '../core/faults.ts';
import { reasonOf } from '../core/log.ts';
import { eventFailure, eventFault } from '../engines/engine-refusal.ts';
import type { EngineHead, EngineOutcome, EngineRun, EngineSink } from '../engines/engines.ts';
import { asFault } from '../http/error-response.ts';
import {
  EVENT_STREAM,
  KEEP_ALIVE,
  ResponseStream,
  type StreamSource,
} from '../http/response-stream.ts';
import type { StreamWriter } from '../http/stream-writer.ts';
import type { PreparedAdditions } from './additions.ts';
import { type RequestedSearch, queryOf } from './auto-search.ts';
import type { Round } from './chat-bounds.ts';
import type { ChatPlan } from './chat-plan.ts';
import type { Attempted } from './chat-bill.ts';
import { ChatRun } from './run.ts';
import type { EngineStream, UpstreamReader } from './upstream/upstream.ts';
import { outputBytes } from './wire/chat-choice.ts';
import { NOTHING_CITED, type ResponseEnd } from './wire/chat-response.ts';
import { ChatStream } from './wire/chat-stream.ts';
import type { SearchRound } from './wire/search-calls.ts';
import { streamErrorEvents } from './wire/stream-events.ts';

const BLANK_LINE = Buffer.from('\n\n');

export class StreamRun extends ChatRun implements EngineSink, StreamSource {
  readonly context;
  readonly clock;
  readonly type = EVENT_STREAM;
  #stream: EngineStream;
  readonly #chat: ChatStream | undefined;
  readonly #response: ResponseStream;
  readonly #stripsThinking: boolean;
  #engineRun: EngineRun | undefined;
  #isRoundOpen = false;
  #reader: UpstreamReader | undefined;
  /** Whether the first events were written. */
  #isOpen = false;
  #last: Buffer | undefined;

  constructor(plan: ChatPlan, sale: Sale, prepared: PreparedAdditions, round: Round) {
    super(plan, sale, prepared, round);
    const { parts, context, model, additions } = plan;
    this.context = context;
    this.clock = parts.clock;
    const { options } = this;
    this.#stripsThinking = options.stripThinkTags;
    if (plan.wire !== undefined) this.#stream = plan.wire.newStream(round.outputTokens);
    else {
      this.#chat = new ChatStream({
        ...options,
        mayOpenThinking: options.stripThinkTags && parts.dialects.mayOpenThinking(model.replicas),
        newCallId: () => `call_${parts.ids.hex(12)}`,
        layouts: parts.layouts,
        searchTool: additions.autoSearch?.toolName,
        events: this.blocks,
        roundBreak: this.blocks && '',
      });
      this.#stream = this.#chat;
    }
    this.#response = new ResponseStream(this);
  }

  override async respond(): Promise<void> {
    try {
      await super.respond();
    } catch (error) {
      const settling = this.#settleShown();
      if (!this.isCharging || !this.#response.hasBegun) {
        await settling;
        throw error;
      }
      await this.#endUnsettled(settling, error);
    } finally {
      this.#response.close();
    }
  }

  /** Ends a stream whose charge failed after all of its text was sent. */
  async #endUnsettled(settling: Promise<void>, error: unknown): Promise<void> {
    const { parts, context } = this.plan;
    const { requestId } = context;
    try {
      await settling;
      parts.log.warn(
        { requestId, reason: reasonOf(error) },
        'The charge of a stream failed; its text is charged',
      );
    } catch (failure) {
      // Another request with the same key was charged, or the charge cannot be stored.
      const fields = { requestId, reason: reasonOf(failure) };
      parts.log.warn(fields, 'The charge of a stream failed; its text is not charged');
    }
    const fault = asFault(error);
    context.failed(fault);
    const failed = this.blocks?.writer.failed(fault, undefined);
    this.#response.end(failed === undefined ? streamErrorEvents(fault) : Buffer.from(failed));
  }

  async #settleShown(): Promise<void> {
    if (!this.#stream.hasShownText) return;
    const outcome = { attempts: this.head?.attempts ?? 0, replica: this.head?.replica ?? null };
    if (this.#isRoundOpen) this.endRound(outcome);
    await this.settle(outcome, 'failed');
  }

  override get hasBegun(): boolean {
    return this.#response.hasBegun;
  }

  protected override callEngine(): Promise<EngineOutcome> {
    this.#isRoundOpen = true;
    this.#engineRun = this.plan.parts.engines.run(this, this);
    return this.#engineRun.outcome;
  }

  protected override problemOf(outcome: EngineOutcome): Error | undefined {
    const { failure, isCutOff, isOver } = this.#stream;
    if (isCutOff) return undefined;
    if (failure !== undefined) {
      const { engine = '' } = outcome.replica ?? {};
      const message = this.plan.parts.engines.withoutSecrets(engine, failure.message);
      return this.faultOf(eventFailure({ ...failure, message }), eventFault);
    }
    if (!isOver) {
      if (!outcome.ok) return super.problemOf(outcome);
      // Ends the last event of an engine that omits the blank line after it.
      if (this.#reader !== undefined && !this.#stream.isComplete) this.onChunk(BLANK_LINE);
      const rest = this.#stream.flush();
      if (rest.length > 0) this.#write(rest);
    }
    if (this.#stream.isComplete) return undefined;
    return new Fault('INFERENCE_FAILED', { cause: 'the stream ended early' });
  }

  protected override endRound(outcome: Attempted): void {
    this.#isRoundOpen = false;
    const { parts, context } = this.plan;
    const { tally, reported, isComplete, isCutOff } = this.#stream;
    const isEmpty = !isComplete && outputBytes(tally) === 0;
    if (isEmpty && context.cancellation.aborted && outcome.wasWorking !== false) {
      return this.noteUse({ reported, tally, extent: 'unseen' }, outcome);
    }
    this.cited = this.#chat?.cited ?? NOTHING_CITED;
    if (isComplete && this.#stripsThinking) this.#noteThinking(outcome);
    // The usage of an engine that was stopped is not final.
    const extent = isComplete && !isCutOff ? 'whole' : 'partial';
    this.noteUse({ reported, tally, extent }, outcome);
    if (!isCutOff) return;
    const grant = { replica: outcome.replica?.engine, grantedTokens: this.round.outputTokens };
    parts.log.warn(
      { requestId: context.requestId, ...grant },
      'An engine exceeded the granted output and was stopped',
    );
  }

  #noteThinking({ replica }: Attempted): void {
    const { request, parts, model } = this.plan;
    const opens = this.#chat?.opensThinking;
    if (replica === null || opens === undefined) return;
    const isThinking = !request.isThinkingOff && model.capabilities.has('reasoning');
    parts.dialects.noteThinking(replica, opens, isThinking);
  }

  /**
   * Before the headers an error is a status; after them it is an event, and sent text is charged.
   */
  protected override async fail(error: Error, outcome: Attempted): Promise<void> {
    if (!this.#response.hasBegun) throw error;
    const { blocks, sale } = this;
    const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
    let end: ResponseEnd | undefined;
    if (this.#stream.hasShownText) end = await this.settle(outcome, 'failed');
    else await sale.release({ status: 'failed', attempts: outcome.attempts });
    const events: Buffer[] = [];
    if (blocks !== undefined) events.push(Buffer.from(blocks.writer.failed(fault, end)));
    else {
      if (end !== undefined) events.push(this.#stream.usageChunk(end));
      events.push(streamErrorEvents(fault));
    }
    const { parts, context } = this.plan;
    context.failed(fault);
    // The log line of the request has the message of the engine without the prompt.
    const fields = { requestId: context.requestId, code: fault.code };
    parts.log.warn(fields, 'A stream failed after its first byte');
    this.#response.end(Buffer.concat(events));
  }

  protected override searchRound(): SearchRound | undefined {
    return this.#chat?.searchRound;
  }

  protected override showSearching({ calls }: SearchRound): void {
    if (this.blocks !== undefined) this.#writeEvents(this.blocks.searching(queryOf(calls[0])));
  }

  protected override nextRound(_round: SearchRound, searches: readonly RequestedSearch[]): void {
    const { blocks } = this;
    this.#chat?.nextRound(this.round.outputTokens);
    if (blocks === undefined) {
      if (this.#response.hasBegun) this.#writeCitations();
      return;
    }
    const shown = searches.map(({ query, results }) => blocks.searched(query, results));
    this.#writeEvents(shown.join(''));
  }

  protected override bodyOf(end: ResponseEnd): SoldResponse {
    // A stored response includes its headers.
    if (this.context.keeper !== undefined) this.#begin();
    // Made once, because ending the stream changes it. Documents of several searches are one tool
    // call after the last search.
    const documents = this.plan.additions.autoSearch?.documents;
    this.#last ??= this.#stream.closing(end, documents);
    return { type: EVENT_STREAM, body: this.#response.kept(this.#last) };
  }

  protected override send(): void {
    this.#begin();
    if (this.#last !== undefined) this.#response.end(this.#last);
  }

  // Called by the engine run.

  onHead(head: EngineHead): void {
    this.head = head;
    const { upstream, pass } = this.translated ?? {};
    if (pass === undefined) this.#reader = upstream?.newReader();
    else this.#stream = pass.newStream(this.round.outputTokens, this.options);
    this.#begin();
  }

  onChunk(given: Buffer): boolean {
    const { frame } = this.#begin();
    const from = frame.end;
    const chunk = this.#reader === undefined ? given : this.#reader.push(given);
    this.#stream.push(chunk, frame);
    if (frame.end > from) this.#response.added(from);
    if (this.#stream.failure !== undefined || this.#stream.isCutOff) this.#engineRun?.abort();
    return !this.#response.isBlocked;
  }

  // Called by the response stream.

  resume(): void {
    this.#engineRun?.resume();
  }

  /** An engine that has sent everything gets a moment to end its response. */
  check(): void {
    if (this.#isRoundOpen && this.#stream.isOver) this.#engineRun?.abort();
  }

  keepAlive(): Buffer {
    // Until a replica responds, the first event may be its own.
    if (this.plan.protocol?.passThrough === undefined || this.head !== undefined) this.#begin();
    return this.blocks === undefined ? KEEP_ALIVE : Buffer.from(this.blocks.writer.keepAlive());
  }

  #begin(): StreamWriter {
    const writer = this.#response.begin();
    if (this.#isOpen) return writer;
    this.#isOpen = true;
    const { blocks } = this;
    if (this.translated?.pass !== undefined) return writer;
    if (blocks !== undefined) this.#writeEvents(blocks.writer.begin() + this.showPrepared(blocks));
    else this.#writeCitations();
    return writer;
  }

  #writeEvents(events: string): void {
    if (events !== '') this.#write(Buffer.from(events));
  }

  #writeCitations(): void {
    if (!this.plan.request.parameters.include_search_results_in_stream) return;
    const citations = this.citations();
    const chunk = citations.length === 0 ? undefined : this.#chat?.citationsChunk(citations);
    if (chunk !== undefined) this.#write(chunk);
  }

  #write(bytes: Buffer): void {
    this.#begin();
    this.#response.write(bytes);
  }
}
