/**
 * A chat answer as a stream: the engine's pieces pass as they come, the charge is settled when the
 * engine is done, and only then do the usage chunk with the cost and `[DONE]` leave. Text that the
 * caller was given is paid for, however the stream ends.
 */
import type {
  EngineFailure,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSink,
} from '../engines/engines.ts';
import { Fault } from '../core/faults.ts';
import { reasonOf } from '../core/log.ts';
import { toUsdNumber } from '../core/money.ts';
import type { Settlement } from '../billing/ledger/ledger.ts';
import { type AnswerEnd, chatCompletionId } from './wire/chat-response.ts';
import { ChatStream, KEEP_ALIVE, streamErrorEvents } from './wire/chat-stream.ts';
import type { HeldRound } from './wire/held-calls.ts';
import { outputBytes } from './wire/chat-choice.ts';
import type { Outcome } from '../billing/sale.ts';
import type { AnswerFacts } from '../http/answer-facts.ts';
import { type ChatReceiver, type ChatRun, remainingDuring } from './chat-run.ts';
import { engineCall, flagsOf } from './engine-call.ts';
import { type Attempted, chatFault, endRound, endUnseen, note } from './whole-answer.ts';

/** Silence after which a comment keeps the connection open; the first one sends the headers. */
const KEEP_ALIVE_MS = 10_000;
/** Silence is counted in checks, so that a piece needs no look at the clock. */
const CHECK_MS = KEEP_ALIVE_MS / 2;

export async function streamAnswer(run: ChatRun): Promise<void> {
  await new StreamedAnswer(run).run();
}

class StreamedAnswer implements EngineSink {
  readonly #run: ChatRun;
  readonly #receiver: ChatReceiver;
  readonly #stream: ChatStream;
  #engineRun: EngineRun | undefined;
  #begun = false;
  /** The caller reads slower than the engine writes. */
  #isBlocked = false;
  /** Checks since something was written, and one for a silence that began with a check. */
  #quietChecks = 1;
  #head: EngineHead | undefined;
  /** The engine was asked, and what it used is not noted. */
  #isRoundOpen = false;

  constructor(run: ChatRun) {
    const { request, parts, model, additions, call, rounds } = run;
    const { documents } = rounds;
    this.#run = run;
    this.#receiver = call.receiver;
    this.#stream = new ChatStream({
      id: chatCompletionId(call.requestId),
      model: model.id,
      createdS: Math.floor(parts.clock.nowMs() / 1_000),
      serviceName: parts.serviceName,
      newCallId: () => `call_${parts.ids.hex(12)}`,
      stripThinkTags:
        request.parameters.strip_thinking_response || request.parameters.disable_thinking,
      dropReasoning: request.parameters.disable_thinking,
      choiceCount: request.choiceCount,
      maxOutputTokens: rounds.current.outputTokens,
      ...(documents === undefined ? {} : { documents }),
      ...(additions.autoSearch === undefined ? {} : { heldTool: additions.autoSearch.toolName }),
    });
  }

  async run(): Promise<void> {
    const { clock } = this.#run.parts;
    const stopKeepAlive = clock.every(CHECK_MS, () => this.#keepAlive());
    try {
      while (await this.#round());
    } catch (error) {
      await this.#settleShown();
      throw error;
    } finally {
      stopKeepAlive();
    }
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
    const { call, rounds } = this.#run;
    this.#isRoundOpen = true;
    const outcome = await this.#runEngine();
    const fault = call.signal.aborted ? undefined : this.#problemOf(outcome);
    this.#endRound(outcome);
    if (fault !== undefined) {
      await this.#fail(fault, outcome);
      return false;
    }
    const held = this.#stream.heldRound;
    if (!call.signal.aborted && held !== undefined && rounds.current.searches > 0) {
      if (await this.#search(held)) return true;
    }
    if (call.signal.aborted) await this.#settle(outcome, 'aborted');
    else await this.#complete(outcome);
    return false;
  }

  #endRound(outcome: Attempted): void {
    this.#isRoundOpen = false;
    const { tally, reported, isComplete, isCutOff } = this.#stream;
    const isUnseen = !isComplete && outputBytes(tally) === 0;
    if (isUnseen && this.#run.call.signal.aborted) return endUnseen(this.#run, outcome, reported);
    // An engine that was stopped said nothing of the whole.
    const extent = isComplete && !isCutOff ? 'whole' : 'partial';
    endRound(this.#run, { reported, tally, extent }, outcome);
    if (!isCutOff) return;
    const { parts, call, rounds } = this.#run;
    const grant = { replica: outcome.replica?.engine, grantedTokens: rounds.current.outputTokens };
    parts.log.warn(
      { requestId: call.requestId, ...grant },
      'An engine went beyond the output that was granted and was stopped',
    );
  }

  /** Runs the searches of a round and shows what was found; `false` when the caller left. */
  async #search(held: HeldRound): Promise<boolean> {
    const { call, rounds, request } = this.#run;
    try {
      await rounds.search(held, call.signal);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!call.signal.aborted) throw error;
      return false;
    }
    this.#stream.nextRound(rounds.current.outputTokens);
    if (rounds.citations.length === 0) return true;
    if (request.parameters.include_search_results_in_stream) {
      this.#receiver.write(this.#stream.citationsChunk(rounds.citations));
    }
    return true;
  }

  #runEngine(): Promise<EngineOutcome> {
    const engineRun = this.#run.parts.engines.run(engineCall(this.#run), this);
    this.#engineRun = engineRun;
    return engineRun.outcome;
  }

  // Called by the engine run from here on.

  onHead(head: EngineHead): void {
    this.#head = head;
    this.#begin();
  }

  onChunk(chunk: Buffer): boolean {
    const bytes = this.#stream.push(chunk);
    if (bytes.length > 0) {
      this.#quietChecks = 0;
      if (!this.#receiver.write(bytes)) this.#block();
    }
    // After an error inside the stream or the end of the grant nothing more is shown.
    if (this.#stream.failure !== undefined || this.#stream.isCutOff) this.#engineRun?.abort();
    return !this.#isBlocked;
  }

  #block(): void {
    if (this.#isBlocked) return;
    this.#isBlocked = true;
    this.#receiver.onDrain(() => {
      this.#isBlocked = false;
      this.#engineRun?.resume();
    });
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    const { rounds } = this.#run;
    this.#receiver.begin(this.#headNow());
    const { parameters } = this.#run.request;
    if (parameters.include_search_results_in_stream && rounds.citations.length > 0) {
      this.#receiver.write(this.#stream.citationsChunk(rounds.citations));
    }
  }

  #headNow(): AnswerFacts {
    const { model, deprecation, admission, rate, parts } = this.#run;
    return {
      model,
      deprecation,
      admission,
      rate,
      replica: this.#head?.replica.engine,
      attempts: this.#head?.attempts ?? 1,
      flags: this.#head === undefined ? {} : flagsOf(this.#head, parts.serviceName),
      remainingNano: remainingDuring(this.#run),
    };
  }

  /** While the engine thinks, a comment now and then keeps proxies from closing the connection. */
  #keepAlive(): void {
    // A caller that does not read needs no comment.
    if (this.#isBlocked) return;
    this.#quietChecks += 1;
    if (this.#quietChecks * CHECK_MS <= KEEP_ALIVE_MS || this.#run.call.signal.aborted) return;
    this.#quietChecks = 1;
    this.#begin();
    this.#receiver.write(KEEP_ALIVE);
  }

  /** Why an answer that has ended is none. */
  #problemOf(outcome: EngineOutcome): Error | undefined {
    const { failure, isCutOff } = this.#stream;
    if (isCutOff) return undefined;
    if (failure !== undefined) return new Fault('INFERENCE_FAILED', { cause: failure.message });
    if (!outcome.ok) return chatFault(this.#run, outcome);
    const rest = this.#stream.flush();
    if (rest.length > 0) this.#receiver.write(rest);
    if (this.#stream.isComplete) return undefined;
    return new Fault('INFERENCE_FAILED', { cause: 'the stream ended early' });
  }

  async #complete(outcome: EngineOutcome): Promise<void> {
    const { parts, call } = this.#run;
    const receiver = this.#receiver;
    // Finishing the stream changes it, so its end is made once, whoever asks first.
    let last: Buffer | undefined;
    const lastChunk = (settled: Settlement): Buffer => (last ??= this.#closing(settled));
    // What is kept is a stream that has begun.
    if (receiver.keeper !== undefined) this.#begin();
    const sold = await this.#run.admission.answer(
      this.#outcome(outcome, 'completed'),
      (settled) => ({ ...receiver.sent(lastChunk(settled)), last: lastChunk(settled) }),
    );
    this.#begin();
    receiver.end(sold.last);
    note(this.#run, this.#run.rounds.bill(), outcome.replica?.engine);
    parts.log.debug({ requestId: call.requestId }, 'Stream complete');
  }

  #closing(settlement: Settlement): Buffer {
    // They are one tool call, so they wait for the last search.
    const found = this.#run.additions.autoSearch?.documents;
    return this.#stream.closing(this.#closingOf(settlement), found);
  }

  #closingOf(settlement: Settlement): AnswerEnd {
    const { request, rounds } = this.#run;
    return {
      usage: rounds.bill().usage,
      cost: { usd: toUsdNumber(settlement.usdNano), diem: toUsdNumber(settlement.diemNano) },
      parameters: request.parameters,
      citations: rounds.citations,
    };
  }

  async #settle(outcome: Attempted, status: 'aborted' | 'failed'): Promise<Settlement> {
    const settlement = await this.#run.admission.settle(this.#outcome(outcome, status));
    note(this.#run, this.#run.rounds.bill(), outcome.replica?.engine);
    return settlement;
  }

  #outcome(outcome: Attempted, status: 'completed' | 'aborted' | 'failed'): Outcome {
    const { rounds } = this.#run;
    const bill = rounds.bill();
    return {
      costNano: bill.costNano,
      status,
      tokens: bill.tokens,
      countedBy: bill.countedBy,
      attempts: rounds.attempts,
      extras: rounds.extras(),
      ...(outcome.replica === null ? {} : { replica: outcome.replica.engine }),
      ...(this.#head === undefined ? {} : { firstTokenMs: this.#head.firstByteMs }),
    };
  }

  /**
   * Before the headers an error is a status; after them it is an event. Text that the caller was
   * given is paid for, and said to be; without any the failure is free.
   */
  async #fail(error: Error, outcome: Attempted): Promise<void> {
    if (!this.#begun) throw error;
    const { parts, call, admission } = this.#run;
    const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
    const events = [streamErrorEvents(fault)];
    if (this.#stream.hasShownText) {
      const settlement = await this.#settle(outcome, 'failed');
      events.unshift(this.#stream.usageChunk(this.#closingOf(settlement)));
    } else {
      await admission.release({ status: 'failed', attempts: outcome.attempts });
    }
    const reason = reasonOf(fault.options.cause ?? fault);
    parts.log.warn({ requestId: call.requestId, reason }, 'A stream failed after its first byte');
    this.#receiver.end(Buffer.concat(events));
  }
}

export type { EngineFailure };
