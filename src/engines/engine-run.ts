/**
 * One call to the engines from start to outcome: chooses a replica, waits for a slot if all are
 * full, makes an attempt, and fails over or retries as long as the caller has not received a byte.
 *
 * Invariants: the sink receives one response (a non-streaming call buffers its own response, and
 * discards it at each new head); the outcome is reported exactly once; every resource (slot,
 * ticket, queue position, timer, listener) is released before or with the outcome.
 */
import { BodyPieces } from '../core/body-pieces.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { InFlight, Placed } from '../core/in-flight.ts';
import { backoffMs } from '../net/retry.ts';
import { MAX_STALE_RETRIES, type ReceivedHeaders, type StreamedBody } from '../net/exchange.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import type {
  EngineFailure,
  EngineHead,
  EngineOutcome,
  EngineSink,
  FailureReason,
  Replica,
  WholeCall,
} from './contract.ts';
import {
  type Chooser,
  type EngineState,
  hashText,
  type Router,
  Target,
  type Waiter,
} from './engine-state.ts';
import { errorWords } from './error-meanings.ts';
import { GARBAGE, outweighs, type Verdict, verdictOfFailure } from './verdict.ts';

/** Attempts per call, unless there are more replicas: then one for each. */
const MIN_ATTEMPTS = 3;
const MAX_ATTEMPTS = 5;
/** A longer `Retry-After` is passed to the caller instead of waiting here. */
const MAX_RETRY_AFTER_MS = 5_000;
const QUEUE_MS = 30_000;
/** Limit of amended bodies: an engine names one rejected parameter at a time. */
const MAX_AMENDMENTS = 4;

/** Joining a smaller response takes less than two milliseconds. */
const PLACED_FROM_BYTES = 1024 * 1024;

export interface RunContext {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly running: InFlight<EngineRun>;
  router: Router;
}

export class EngineRun implements AttemptOwner, Waiter, Chooser, Placed {
  place = -1;
  /** Rejects only with an error that the sink itself threw. */
  readonly outcome: Promise<EngineOutcome>;
  /** Empty for a call of the server itself. */
  readonly caller: string;
  readonly keyHash: number | null;
  tried: Set<Target> | null = null;
  readonly #context: RunContext;
  readonly #call: WholeCall;
  readonly #headers: readonly string[] | undefined;
  /** Null for a non-streaming call. */
  readonly #sink: EngineSink | null;
  readonly #startedMs: number;
  readonly #done = Promise.withResolvers<EngineOutcome>();
  #attempt: Attempt | null = null;
  #attempts = 0;
  #staleRetries = 0;
  #amendments = 0;
  #excluded: Set<Target> | null = null;
  #best: EngineFailure | null = null;
  #pauseMs = 0;
  #last: Replica | null = null;
  #cancelWait: (() => void) | null = null;
  #body: Buffer | StreamedBody | null = null;
  #bodyReplica: Replica | null = null;
  #head: EngineHead | null = null;
  /** The first chunk of a response that is read completely; most have only this one. */
  #first: Buffer | null = null;
  #pieces: BodyPieces | null = null;
  /** Instead of chunks, for a large response. */
  #place: Buffer | null = null;
  #bytes = 0;
  #wasSent = false;
  /** Whether an engine has the request, and has not failed. */
  #isWorking = false;
  #isEnded = false;
  /** A closure: Node would keep a listener object, and the finished run, alive (bench/README.md). */
  readonly #onAbort = (): void => this.abort();

  /** `headers` replace those of the call. */
  constructor(
    context: RunContext,
    call: WholeCall,
    sink: EngineSink | null,
    headers: readonly string[] | undefined = call.headers,
  ) {
    this.#context = context;
    this.#call = call;
    this.#headers = headers;
    this.#sink = sink;
    this.#startedMs = context.clock.monotonicMs();
    this.caller = call.caller ?? '';
    this.keyHash = call.affinityKey === undefined ? null : hashText(call.affinityKey);
    this.outcome = this.#done.promise;
  }

  /** Starts the call. The sink is never called before `start` has returned. */
  start(): void {
    const { signal } = this.#call;
    this.#context.running.add(this);
    signal?.addEventListener('abort', this.#onAbort);
    this.#next();
  }

  pause(): void {
    this.#attempt?.pause();
  }

  resume(): void {
    this.#attempt?.resume();
  }

  /** Releases the engine at once; the outcome is `aborted`. Does nothing after the end. */
  abort(): void {
    if (this.#isEnded) return;
    if (this.#attempt === null) this.#finish(this.#failure('aborted', 'The caller disconnected'));
    else this.#attempt.abort();
  }

  wake(): void {
    this.#stopWaiting();
    this.#next();
  }

  /** Called by the engine when the run is removed from a full queue. */
  evict(): void {
    this.#stopWaiting();
    this.#finish(this.#failure('overloaded', 'The queue of the engine is full', 1_000));
  }

  #next(): void {
    if (this.#isEnded) return;
    // The signal may have ended another call, whose slot is offered before this call is notified.
    if (this.#call.signal?.aborted === true) return this.abort();
    const { router } = this.#context;
    const targets = router.targetsOf(this.#call.replicas);
    const choice = router.choose(targets, this);
    if (choice instanceof Target) this.#launch(choice);
    else if (choice === null) this.#retryLater(targets);
    else this.#enqueue(choice);
  }

  /** All replicas were tried or are unavailable: retries after a pause if one of them allows it. */
  #retryLater(targets: readonly Target[]): void {
    const { clock, ids } = this.#context;
    const canRetry = (this.tried?.size ?? 0) > (this.#excluded?.size ?? 0);
    const backoff = backoffMs(this.#attempts, canRetry ? ids.fraction() : 0);
    const pauseMs = Math.max(this.#pauseMs, backoff);
    if (!canRetry || pauseMs > MAX_RETRY_AFTER_MS)
      return this.#finish(this.#best ?? this.#noReadyReplica(targets));
    this.tried = this.#excluded === null ? null : new Set(this.#excluded);
    this.#cancelWait = clock.after(pauseMs, () => this.wake());
  }

  #enqueue(engine: EngineState): void {
    if (!engine.enqueue(this)) return this.evict();
    const cancel = this.#context.clock.after(QUEUE_MS, () => {
      this.#stopWaiting();
      this.#finish(this.#failure('overloaded', `No free slot within ${QUEUE_MS} ms`, 1_000));
    });
    this.#cancelWait = () => {
      cancel();
      engine.dequeue(this);
    };
  }

  #stopWaiting(): void {
    this.#cancelWait?.();
    this.#cancelWait = null;
  }

  #launch(target: Target): void {
    const { work, method, maxResponseBytes, timeLimits } = this.#call;
    const { engine, replica } = target;
    let limits = timeLimits === undefined ? engine.limits : { ...engine.limits, ...timeLimits };
    if (this.#attempts > 0) {
      const leftMs = limits.totalMs - (this.#context.clock.monotonicMs() - this.#startedMs);
      if (leftMs <= 0) {
        return this.#finish(
          this.#best ?? this.#failure('timeout', 'No time is left for another attempt'),
        );
      }
      limits = { ...limits, totalMs: leftMs };
    }
    if (this.#bodyReplica !== replica && this.#call.buildBody !== undefined) {
      try {
        this.#body = this.#call.buildBody(replica) ?? null;
      } catch (error) {
        return this.#crash(error); // a bug in the endpoint ends the call
      }
      this.#bodyReplica = replica;
    }
    this.#attempts += 1;
    this.#isWorking = true;
    this.#last = replica;
    engine.inFlight += 1;
    const { contentType, translated } = this.#call;
    const path = work === 'chat' ? (translated?.path ?? engine.chatPath) : this.#call.path;
    const hasMore = this.#headers !== undefined || translated?.headers !== undefined;
    const isPlain = !hasMore && contentType === 'application/json';
    const headers = isPlain && !engine.takesTurns ? engine.jsonHeaders : this.#headersFor(engine);
    const request = { method, path, headers, body: this.#body, limits, maxResponseBytes };
    this.#attempt = new Attempt(this, target, request, this.#call);
    engine.pool.dispatch(this.#attempt);
  }

  #headersFor(engine: EngineState): readonly string[] {
    const { contentType, translated } = this.#call;
    const own = contentType === undefined ? [] : ['content-type', contentType];
    return [
      ...engine.headersFor(this.caller),
      ...own,
      ...(this.#headers ?? []),
      ...(translated?.headers ?? []),
    ];
  }

  // The methods below are called by the attempt.

  responded({ status, headers, target }: Attempt): void {
    target.state.responded();
    this.#bytes = 0;
    this.#first = null;
    this.#pieces = null;
    this.#place = this.#sink === null ? placeFor(headers) : null;
    const firstByteMs = this.#context.clock.monotonicMs() - this.#startedMs;
    const attempts = this.#attempts;
    this.#head = { status, headers, replica: target.replica, attempts, firstByteMs };
    try {
      this.#sink?.onHead(this.#head);
    } catch (error) {
      this.#crash(error); // a bug in the sink ends the call, not the process
    }
  }

  receive(attempt: Attempt, chunk: Buffer): void {
    if (this.#isEnded) return;
    this.#bytes += chunk.length;
    if (this.#sink === null) {
      if (this.#place !== null) chunk.copy(this.#place, this.#bytes - chunk.length);
      else if (this.#first === null) this.#first = chunk;
      else (this.#pieces ??= new BodyPieces(this.#first)).add(chunk);
      return;
    }
    try {
      if (!this.#sink.onChunk(chunk)) attempt.pause();
    } catch (error) {
      this.#crash(error); // a bug in the sink ends the call, not the process
    }
  }

  succeeded(attempt: Attempt): void {
    this.#attempt = null;
    if (this.#sink !== null) return this.#validated(attempt, true);
    const body = this.#collected();
    let usable: boolean | Promise<boolean>;
    try {
      usable = this.#call.isUsable?.(body) ?? true;
    } catch (error) {
      return this.#validationFailed(attempt, error);
    }
    if (typeof usable === 'boolean') return this.#validated(attempt, usable, body);
    usable.then(
      (verdict) => this.#validated(attempt, verdict, body),
      (error: unknown) => this.#validationFailed(attempt, error),
    );
  }

  #collected(): Buffer {
    if (this.#place !== null) return this.#place.subarray(0, this.#bytes);
    return this.#pieces === null ? (this.#first ?? Buffer.alloc(0)) : this.#pieces.joinedAtOnce();
  }

  /** `body`: the response of a non-streaming call. */
  #validated(attempt: Attempt, isUsable: boolean, body?: Buffer): void {
    if (!isUsable)
      return this.failed(attempt, GARBAGE, 'The response does not have the requested content');
    const head = this.#head;
    attempt.target.state.succeed(attempt.ticket, head?.firstByteMs ?? 0);
    if (this.#isEnded || head === null) return;
    const { replica, attempts, firstByteMs } = head;
    if (attempts > 1) this.#recordTry(attempt, 'ok', '');
    this.#finish({ ok: true, head, bytes: this.#bytes, body, attempts, replica, firstByteMs });
  }

  #validationFailed(attempt: Attempt, bug: unknown): void {
    attempt.target.state.cancel(attempt.ticket);
    this.#crash(bug);
  }

  failed(attempt: Attempt, verdict: Verdict, message: string, wasSent = true): void {
    this.#attempt = null;
    this.#wasSent ||= wasSent;
    this.#isWorking = verdict.reason === 'aborted' && wasSent;
    const { target } = attempt;
    const pauseMs = attempt.retryAfterMs(this.#context.clock);
    target.state.fail(attempt.ticket, this.caller, verdict, pauseMs);
    if (this.#isEnded) return;
    // A caller that disconnects, or a stop by this server, is no failure of the engine.
    if (verdict.reason !== 'aborted') this.#recordTry(attempt, verdict.reason, message);
    const failure = this.#failure(verdict.reason, message, pauseMs, attempt);
    const isAmendable =
      verdict.reason === 'refused' ||
      // Another protocol may serve the model of a chat.
      (verdict.reason === 'unsupported' && this.#call.work === 'chat');
    if (isAmendable && this.#amend(failure, target.replica)) {
      return this.#next();
    }
    if (verdict.retry === 'never' || failure.sawFirstByte) return this.#finish(failure);
    if (this.#best === null || outweighs(verdict.reason, this.#best.reason)) this.#best = failure;
    const { maxAttempts, replicas } = this.#call;
    const mostAttempts = Math.min(MAX_ATTEMPTS, Math.max(MIN_ATTEMPTS, replicas.length));
    if (this.#attempts >= (maxAttempts ?? mostAttempts)) return this.#finish(this.#best);
    (this.tried ??= new Set()).add(target);
    if (verdict.retry === 'elsewhere') (this.#excluded ??= new Set()).add(target);
    this.#pauseMs = pauseMs ?? 0;
    this.#next();
  }

  #recordTry(attempt: Attempt, result: string, detail: string): void {
    const { tries } = this.#call;
    if (tries === undefined) return;
    const { status, durationMs, target } = attempt;
    tries.addTry({
      engine: target.replica.engine,
      target: target.replica.model,
      startedMs: Math.round(this.#context.clock.nowMs() - durationMs),
      tookMs: Math.round(durationMs),
      status: status === 0 ? undefined : status,
      result,
      detail,
      words: errorWords(attempt.refusal()).message,
    });
  }

  #amend(refusal: EngineFailure, replica: Replica): boolean {
    if (this.#call.canAmend !== true || this.#amendments >= MAX_AMENDMENTS) return false;
    this.#amendments += 1;
    let body: Buffer | StreamedBody | undefined;
    try {
      body = this.#call.buildBody?.(replica, refusal);
    } catch (error) {
      this.#crash(error);
    }
    if (body === undefined) return false;
    this.#body = body;
    this.#bodyReplica = replica;
    return true;
  }

  /** The idle connection was already closed: not counted as an attempt, up to a limit. */
  wentStale(attempt: Attempt): void {
    this.#staleRetries += 1;
    if (this.#staleRetries > MAX_STALE_RETRIES || this.#call.maxAttempts === 1) {
      const verdict = verdictOfFailure('reset');
      return this.failed(
        attempt,
        verdict,
        'The engine closed an idle connection when the request was sent',
      );
    }
    this.#attempt = null;
    this.#isWorking = false;
    attempt.target.state.cancel(attempt.ticket);
    this.#attempts -= 1;
    this.#next();
  }

  #noReadyReplica(targets: readonly Target[]): EngineFailure {
    const readyInMs = Math.min(...targets.map((target) => target.state.readyInMs));
    const retryAfter = Number.isFinite(readyInMs) ? readyInMs : null;
    return this.#failure('unreachable', 'No replica is ready', retryAfter);
  }

  #failure(
    reason: FailureReason,
    message: string,
    pauseMs: number | null = null,
    attempt: Attempt | null = null,
  ): EngineFailure {
    const sawFirstByte = this.#head !== null && this.#sink !== null;
    return {
      ok: false,
      reason,
      sawFirstByte,
      bytes: sawFirstByte ? this.#bytes : 0,
      status: attempt === null || attempt.status === 0 ? null : attempt.status,
      body: attempt?.refusal() ?? null,
      isOwn: attempt?.target.engine.settings.isOwn === true,
      retryAfterSeconds: pauseMs === null ? null : Math.ceil(pauseMs / 1_000),
      attempts: this.#attempts,
      wasSent: this.#wasSent,
      wasWorking: this.#isWorking,
      replica: this.#last,
      message,
    };
  }

  #crash(bug: unknown): void {
    const attempt = this.#attempt;
    this.#attempt = null;
    this.#finish(Promise.reject(bug));
    attempt?.abort();
  }

  #finish(outcome: EngineOutcome | Promise<never>): void {
    this.#isEnded = true;
    if (this.#cancelWait !== null) this.#stopWaiting();
    this.#call.signal?.removeEventListener('abort', this.#onAbort);
    this.#body = null;
    this.#context.running.delete(this);
    this.#done.resolve(outcome);
  }
}

/**
 * Memory for a large response of known length, which is copied to its place as it arrives. Joining
 * 20 MB at the end would block the event loop for 30 ms, most of it for new memory: here the system
 * allocates each page when it is written.
 */
function placeFor(headers: ReceivedHeaders): Buffer | null {
  // The pool has rejected a length above the limit of the call.
  const lengthBytes = Number(headers['content-length'] ?? 0);
  return lengthBytes >= PLACED_FROM_BYTES ? Buffer.allocUnsafeSlow(lengthBytes) : null;
}
