/**
 * A chat answer as a stream: the engine's pieces pass as they come, the charge is settled when the
 * engine is done, and only then do the usage chunk with the cost and `[DONE]` leave. Text that the
 * caller was given is paid for, however the stream ends.
 */
import { type Settlement, expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Outcome } from '../billing/sale.ts';
import { Fault } from '../core/faults.ts';
import { reasonOf } from '../core/log.ts';
import type { EngineHead, EngineOutcome, EngineRun, EngineSink } from '../engines/engines.ts';
import { KEEP_ALIVE, StreamCopy } from '../http/response-stream.ts';
import { asFault } from '../http/error-response.ts';
import type { StreamWriter } from '../http/stream-writer.ts';
import type { ChatBill } from './chat-bill.ts';
import {
  type Attempted,
  answerBlocks,
  answerEnd,
  answerOptions,
  billOf,
  ChatCall,
  type ChatRun,
  chatFault,
  citationsOf,
  endRound,
  endUnseen,
  factsOf,
  noteBill,
  outcomeOf,
  searchRound,
  showPrepared,
  showSearches,
} from './chat-run.ts';
import type { ResponseBlocks } from './agents/response-blocks.ts';
import { queryOf } from './auto-search.ts';
import { outputBytes } from './wire/chat-choice.ts';
import { ChatStream } from './wire/chat-stream.ts';
import { streamErrorEvents } from './wire/stream-events.ts';
import type { ResponseEnd } from './wire/chat-response.ts';
import type { HeldRound } from './wire/held-calls.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
/** Proxies that buffer (nginx) are told not to. */
const STREAM_HEADERS = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
/** Silence after which a comment keeps the connection open; the first one sends the headers. */
const KEEP_ALIVE_MS = 10_000;
/** Silence is counted in checks, so that a piece needs no look at the clock. */
const CHECK_MS = KEEP_ALIVE_MS / 2;

export function streamResponse(run: ChatRun): Promise<void> {
  return new StreamedResponse(run).run();
}

class StreamedResponse implements EngineSink {
  readonly #run: ChatRun;
  readonly #stream: ChatStream;
  /** What was sent, when it is kept for retries of the request. */
  readonly #copy: StreamCopy | undefined;
  /** Of another protocol than chat completions. */
  readonly #blocks: ResponseBlocks | undefined;
  readonly #stripsThinking: boolean;
  #engineRun: EngineRun | undefined;
  /** Once the stream has begun: its headers have left. */
  #writer: StreamWriter | undefined;
  /** The caller reads slower than the engine writes. */
  #isBlocked = false;
  /** Checks since something was written, and one for a silence that began with a check. */
  #quietChecks = 1;
  #head: EngineHead | undefined;
  /** The engine was asked, and what it used is not noted. */
  #isRoundOpen = false;
  /** The engine is done, and what it made is charged. */
  #isSettling = false;

  constructor(run: ChatRun) {
    const { parts, additions, context, model } = run;
    this.#run = run;
    this.#copy = context.keeper === undefined ? undefined : new StreamCopy();
    this.#blocks = run.protocol && answerBlocks(run, run.protocol);
    const options = answerOptions(run);
    this.#stripsThinking = options.stripThinkTags;
    this.#stream = new ChatStream({
      ...options,
      mayOpenThinking: options.stripThinkTags && parts.dialects.mayOpenThinking(model.replicas),
      newCallId: () => `call_${parts.ids.hex(12)}`,
      layouts: parts.layouts,
      heldTool: additions.autoSearch?.toolName,
      events: this.#blocks,
      roundBreak: this.#blocks && '',
    });
  }

  async run(): Promise<void> {
    const { clock } = this.#run.parts;
    const stopKeepAlive = clock.every(CHECK_MS, () => this.#keepAlive());
    try {
      while (await this.#round());
    } catch (error) {
      const settling = this.#settleShown();
      if (!this.#isSettling || this.#writer === undefined) {
        await settling;
        throw error;
      }
      await this.#endUnsettled(this.#writer, settling, error);
    } finally {
      stopKeepAlive();
    }
  }

  /** The charge of all the text failed: the stream is not complete, and its end says so. */
  async #endUnsettled(
    writer: StreamWriter,
    settling: Promise<void>,
    error: unknown,
  ): Promise<void> {
    const { parts, context } = this.#run;
    const { requestId } = context;
    try {
      await settling;
      parts.log.warn({ requestId, reason: reasonOf(error) }, 'A stream ended without its charge');
    } catch (failure) {
      // Another request has its key and is charged, or the charge cannot be written at all.
      const fields = { requestId, reason: reasonOf(failure) };
      parts.log.warn(fields, 'A stream ended and is not charged');
    }
    const fault = asFault(error);
    const failed = this.#blocks?.failed(fault, undefined);
    writer.end(failed === undefined ? streamErrorEvents(fault) : Buffer.from(failed));
  }

  /** Before an error goes on that no failure of an engine explains. */
  async #settleShown(): Promise<void> {
    if (!this.#stream.hasShownText) return;
    const outcome = { attempts: this.#head?.attempts ?? 0, replica: this.#head?.replica ?? null };
    if (this.#isRoundOpen) this.#endRound(outcome);
    await this.#settle(outcome, 'failed');
  }

  /** One engine call; `true` when its answer asks for another. */
  async #round(): Promise<boolean> {
    const { parts, cancellation } = this.#run;
    this.#isRoundOpen = true;
    this.#engineRun = parts.engines.run(new ChatCall(this.#run), this);
    const outcome = await this.#engineRun.outcome;
    const fault = cancellation.aborted ? undefined : this.#problemOf(outcome);
    this.#endRound(outcome);
    if (fault !== undefined) {
      await this.#fail(fault, outcome);
      return false;
    }
    if (!cancellation.aborted && this.#run.round.searches > 0) {
      const held = this.#stream.heldRound;
      if (held !== undefined && (await this.#search(held))) return true;
    }
    if (cancellation.aborted) await this.#settle(outcome, 'aborted');
    else await this.#complete(outcome);
    return false;
  }

  #endRound(outcome: Attempted): void {
    this.#isRoundOpen = false;
    const { parts, context, cancellation, round } = this.#run;
    const { tally, reported, isComplete, isCutOff } = this.#stream;
    const isUnseen = !isComplete && outputBytes(tally) === 0;
    if (isUnseen && cancellation.aborted) return endUnseen(this.#run, outcome, reported);
    this.#run.cited = this.#stream.cited;
    if (isComplete && this.#stripsThinking) this.#noteThinking(outcome);
    // An engine that was stopped said nothing of the whole.
    const extent = isComplete && !isCutOff ? 'whole' : 'partial';
    endRound(this.#run, { reported, tally, extent }, outcome);
    if (!isCutOff) return;
    const grant = { replica: outcome.replica?.engine, grantedTokens: round.outputTokens };
    parts.log.warn(
      { requestId: context.requestId, ...grant },
      'An engine went beyond the output that was granted and was stopped',
    );
  }

  /** Where thinking is taken out: whether the template of the model has opened it in the prompt. */
  #noteThinking({ replica }: Attempted): void {
    const { request, parts, model } = this.#run;
    const opens = this.#stream.opensThinking;
    if (replica === null || opens === undefined) return;
    const isThinking = !request.isThinkingOff && model.capabilities.has('reasoning');
    parts.dialects.noteThinking(replica, opens, isThinking);
  }

  /** Runs the searches of a round and shows what was found; `false` when the caller left. */
  async #search(held: HeldRound): Promise<boolean> {
    const run = this.#run;
    const blocks = this.#blocks;
    const shown = run.additions.autoSearch?.searches.length ?? 0;
    if (blocks !== undefined) this.#tell(blocks.searching(queryOf(held.calls[0])));
    try {
      await searchRound(run, held);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!run.cancellation.aborted) throw error;
      return false;
    }
    this.#stream.nextRound(run.round.outputTokens);
    if (blocks !== undefined) this.#tell(showSearches(run, blocks, shown));
    else if (this.#writer !== undefined) this.#showCitations(this.#writer);
    return true;
  }

  // Called by the engine run from here on.

  onHead(head: EngineHead): void {
    this.#head = head;
    this.#begin();
  }

  onChunk(chunk: Buffer): boolean {
    const stream = this.#stream;
    const writer = this.#writer ?? this.#begin();
    const { frame } = writer;
    const from = frame.end;
    stream.push(chunk, frame);
    if (frame.end > from) {
      this.#quietChecks = 0;
      this.#copy?.add(frame.since(from));
      if (!writer.written()) this.#block(writer);
    }
    // After an error inside the stream or the end of the grant nothing more is shown.
    if (stream.failure !== undefined || stream.isCutOff) this.#engineRun?.abort();
    return !this.#isBlocked;
  }

  #block(writer: StreamWriter): void {
    if (this.#isBlocked) return;
    this.#isBlocked = true;
    writer.onDrain(() => {
      this.#isBlocked = false;
      this.#engineRun?.resume();
    });
  }

  /** Sends the headers, once; they leave with the first piece. */
  #begin(): StreamWriter {
    if (this.#writer !== undefined) return this.#writer;
    const { context, parts } = this.#run;
    // Of the balance they can say what is left at least.
    const { after } = expectedSettlement(this.#run.sale.hold);
    const facts = factsOf(this.#run, this.#head, after.usdNano);
    parts.headers.answered(facts, context.answerHeaders);
    context.setAll(STREAM_HEADERS);
    this.#writer = context.stream(200, EVENT_STREAM);
    const blocks = this.#blocks;
    if (blocks !== undefined) this.#tell(blocks.begin() + showPrepared(this.#run, blocks));
    else if (this.#run.request.parameters.include_search_results_in_stream) {
      this.#showCitations(this.#writer);
    }
    return this.#writer;
  }

  /** Sends events of another protocol. */
  #tell(events: string): void {
    if (events !== '') this.#write(this.#begin(), Buffer.from(events));
  }

  #showCitations(writer: StreamWriter): void {
    if (!this.#run.request.parameters.include_search_results_in_stream) return;
    const citations = citationsOf(this.#run);
    if (citations.length > 0) this.#write(writer, this.#stream.citationsChunk(citations));
  }

  #write(writer: StreamWriter, bytes: Buffer): void {
    this.#copy?.add(bytes);
    writer.write(bytes);
  }

  /** While the engine thinks, a comment now and then keeps proxies from closing the connection. */
  #keepAlive(): void {
    // A caller that does not read needs no comment.
    if (this.#isBlocked) return;
    // An engine that has said all of it has a moment to end its answer.
    if (this.#isRoundOpen && this.#stream.isOver) this.#engineRun?.abort();
    this.#quietChecks += 1;
    if (this.#quietChecks * CHECK_MS <= KEEP_ALIVE_MS || this.#run.cancellation.aborted) return;
    this.#quietChecks = 1;
    const writer = this.#begin();
    const own = this.#blocks && Buffer.from(this.#blocks.keepAlive());
    this.#write(writer, own ?? KEEP_ALIVE);
  }

  /** Why an answer that has ended is none. */
  #problemOf(outcome: EngineOutcome): Error | undefined {
    const { failure, isCutOff } = this.#stream;
    if (isCutOff) return undefined;
    if (failure !== undefined) return new Fault('INFERENCE_FAILED', { cause: failure.message });
    if (!this.#stream.isOver) {
      if (!outcome.ok) return chatFault(this.#run, outcome);
      const rest = this.#stream.flush();
      if (rest.length > 0) this.#write(this.#begin(), rest);
    }
    // What becomes of the connection behind `[DONE]` takes nothing from the answer.
    if (this.#stream.isComplete) return undefined;
    return new Fault('INFERENCE_FAILED', { cause: 'the stream ended early' });
  }

  async #complete(outcome: EngineOutcome): Promise<void> {
    const run = this.#run;
    const { additions, sale } = run;
    const bill = billOf(run);
    // What is kept is a stream that has begun.
    if (this.#copy !== undefined) this.#begin();
    this.#isSettling = true;
    let last: Buffer | undefined;
    const make = (settled: Settlement) => {
      // Finishing the stream changes it, so its end is made once, whoever asks first. Documents of
      // several searches are one tool call, so they wait for the last one.
      const found = additions.autoSearch?.documents;
      last ??= this.#stream.closing(answerEnd(run, bill, settled), found);
      return { type: EVENT_STREAM, body: this.#copy?.with(last), last };
    };
    const sold = await sale.answer(
      this.#outcome(bill, outcome, 'completed'),
      make,
      this.#blocks?.together,
    );
    this.#begin().end(sold.last);
    noteBill(run, bill, outcome.replica?.engine);
  }

  async #settle(outcome: Attempted, status: 'aborted' | 'failed'): Promise<Settlement> {
    const bill = billOf(this.#run);
    const settlement = await this.#run.sale.settle(this.#outcome(bill, outcome, status));
    noteBill(this.#run, bill, outcome.replica?.engine);
    return settlement;
  }

  #outcome(bill: ChatBill, { replica }: Attempted, status: Outcome['status']): Outcome {
    return outcomeOf(this.#run, bill, status, {
      ...(replica === null ? {} : { replica: replica.engine }),
      ...(this.#head === undefined ? {} : { firstTokenMs: this.#head.firstByteMs }),
    });
  }

  /**
   * Before the headers an error is a status; after them it is an event. Text that the caller was
   * given is paid for, and said to be; without any the failure is free.
   */
  async #fail(error: Error, outcome: Attempted): Promise<void> {
    const run = this.#run;
    if (this.#writer === undefined) throw error;
    const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
    const blocks = this.#blocks;
    let end: ResponseEnd | undefined;
    if (this.#stream.hasShownText) {
      const settlement = await this.#settle(outcome, 'failed');
      end = answerEnd(run, billOf(run), settlement);
    } else {
      await run.sale.release({ status: 'failed', attempts: outcome.attempts });
    }
    const events: Buffer[] = [];
    if (blocks !== undefined) events.push(Buffer.from(blocks.failed(fault, end)));
    else {
      if (end !== undefined) events.push(this.#stream.usageChunk(end));
      events.push(streamErrorEvents(fault));
    }
    const reason = reasonOf(fault.options.cause ?? fault);
    const fields = { requestId: run.context.requestId, reason };
    run.parts.log.warn(fields, 'A stream failed after its first byte');
    this.#writer.end(Buffer.concat(events));
  }
}
