/**
 * One call to the engines from start to outcome: choose a replica, wait for a slot when all are
 * full, try, and fail over or retry for as long as the caller has not seen a byte.
 *
 * Invariants: the sink hears one answer (a whole call: only its collector does, and it starts
 * again with each head); the outcome comes exactly once; whatever was taken (slot, ticket, queue
 * place, timer, listener) is given back before or with the outcome.
 */
import type { Clock } from '../core/clock.ts';
import type { Placed } from '../core/in-flight.ts';
import type { Ids } from '../core/ids.ts';
import { MAX_STALE_RETRIES } from '../net/connector.ts';
import type { StreamedBody } from '../net/exchange.ts';
import { backoffMs } from '../net/retry.ts';
import { Attempt } from './attempt.ts';
import type { AttemptOwner, AttemptReport } from './attempt.ts';
import type {
  EngineCall,
  EngineFailure,
  EngineOutcome,
  EngineRun,
  EngineSink,
  EngineSuccess,
  FailureReason,
  Replica,
} from './contract.ts';
import type { EngineState, Waiter } from './engine-state.ts';
import { withLimits } from './engine-state.ts';
import { choose, hashText } from './routing.ts';
import type { Chooser, Target } from './routing.ts';
import { GARBAGE, outweighs, verdictOfFailure } from './verdict.ts';

/** Tries on one replica; with more replicas each gets one, up to the larger bound. */
const MIN_ATTEMPTS = 3;
const MAX_ATTEMPTS = 5;
const BACKOFF = { baseMs: 100, capMs: 2_000 };
/** A longer `Retry-After` is the caller's to wait out, not ours. */
const MAX_RETRY_AFTER_MS = 5_000;
/** In the queue for a slot. */
const QUEUE_MS = 30_000;

/** What a run needs from the door. */
export interface RunContext {
  readonly clock: Clock;
  readonly ids: Ids;
  targetsOf(replicas: readonly Replica[]): readonly Target[];
  /** A rising number, for the order of choices. */
  nextChoice(): number;
  ended(run: CallRun): void;
}

export interface RunOptions {
  /** The sink can start anew, so an answer that breaks half-way may be had elsewhere. */
  readonly isReplaceable: boolean;
  /** Looks at the complete answer; `false` makes it garbage. */
  readonly isUsable: (() => boolean | Promise<boolean>) | null;
}

export class CallRun implements EngineRun, Waiter, AttemptOwner, Chooser, Placed {
  place = -1;
  readonly outcome: Promise<EngineOutcome>;
  /** Empty for a call of our own. */
  readonly caller: string;
  readonly keyHash: number | null;
  readonly #context: RunContext;
  readonly #call: EngineCall;
  readonly #sink: EngineSink;
  readonly #options: RunOptions;
  readonly #startedMs: number;
  readonly #resolve: (outcome: EngineOutcome) => void;
  readonly #reject: (error: unknown) => void;
  #attempt: Attempt | null = null;
  #attempts = 0;
  #staleRetries = 0;
  #tried: Set<Target> | null = null;
  #barred: Set<Target> | null = null;
  #best: EngineFailure | null = null;
  #pauseMs = 0;
  #last: Replica | null = null;
  #leaveWait: (() => void) | null = null;
  #body: Buffer | StreamedBody | null = null;
  #bodyReplica: Replica | null = null;
  #bytes = 0;
  #firstByteMs = 0;
  #hasAnswered = false;
  #wasSent = false;
  #isEnded = false;

  constructor(context: RunContext, call: EngineCall, sink: EngineSink, options: RunOptions) {
    this.#context = context;
    this.#call = call;
    this.#sink = sink;
    this.#options = options;
    this.#startedMs = context.clock.monotonicMs();
    this.caller = call.caller ?? '';
    this.keyHash = call.affinityKey === undefined ? null : hashText(call.affinityKey);
    const { promise, resolve, reject } = Promise.withResolvers<EngineOutcome>();
    this.outcome = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get accept(): readonly string[] | undefined {
    return this.#call.accept;
  }

  nowMs(): number {
    return this.#context.clock.nowMs();
  }

  /** Begins. The sink is never called before this has returned. */
  start(): void {
    const { signal } = this.#call;
    if (signal?.aborted === true) return this.abort();
    signal?.addEventListener('abort', this.#onSignal);
    this.#next();
  }

  pause(): void {
    this.#attempt?.pause();
  }

  resume(): void {
    this.#attempt?.resume();
  }

  abort(): void {
    if (this.#isEnded) return;
    if (this.#attempt === null) {
      this.#finish(this.#failure('aborted', 'The caller left'));
    } else this.#attempt.abort();
  }

  /** Called by the engine in whose queue the run stands. */
  wake(): void {
    this.#stopWaiting();
    this.#next();
  }

  readonly #onSignal = (): void => this.abort();

  #next(): void {
    if (this.#isEnded) return;
    const targets = this.#context.targetsOf(this.#call.replicas);
    const choice = choose(targets, this.#tried, this);
    if (choice.kind === 'target') this.#launch(choice.target);
    else if (choice.kind === 'full') this.#enqueue(choice.engine);
    else this.#goRound(targets);
  }

  /** Every replica was tried or is out: try again after a pause, if one of them allows it. */
  #goRound(targets: readonly Target[]): void {
    const canRetry = (this.#tried?.size ?? 0) > (this.#barred?.size ?? 0);
    if (!canRetry) return this.#finish(this.#best ?? this.#nothingReady(targets));
    const backoff = backoffMs(this.#attempts, BACKOFF, this.#context.ids.fraction());
    const pauseMs = Math.max(this.#pauseMs, backoff);
    if (pauseMs > MAX_RETRY_AFTER_MS)
      return this.#finish(this.#best ?? this.#nothingReady(targets));
    this.#tried = this.#barred === null ? null : new Set(this.#barred);
    this.#leaveWait = this.#context.clock.after(pauseMs, () => this.wake());
  }

  #enqueue(engine: EngineState): void {
    if (!engine.enqueue(this)) return this.crowdOut();
    const cancel = this.#context.clock.after(QUEUE_MS, () => {
      this.#stopWaiting();
      this.#finish(this.#failure('overloaded', `No free slot within ${QUEUE_MS} ms`, 1_000));
    });
    this.#leaveWait = () => {
      cancel();
      engine.dequeue(this);
    };
  }

  /** Called by the engine when its queue is full. */
  crowdOut(): void {
    this.#stopWaiting();
    this.#finish(this.#failure('overloaded', 'The queue of the engine is full', 1_000));
  }

  #stopWaiting(): void {
    this.#leaveWait?.();
    this.#leaveWait = null;
  }

  #launch(target: Target): void {
    let limits = withLimits(target.engine.limits, this.#call.timeLimits);
    if (this.#attempts > 0) {
      const leftMs = limits.totalMs - (this.#context.clock.monotonicMs() - this.#startedMs);
      if (leftMs <= 0) {
        return this.#finish(this.#best ?? this.#failure('timeout', 'No time for another try'));
      }
      limits = { ...limits, totalMs: leftMs };
    }
    const body = this.#bodyFor(target.replica);
    this.#attempts += 1;
    this.#last = target.replica;
    target.lastChoice = this.#context.nextChoice();
    target.engine.takeSlot();
    const attempt = new Attempt(this, target, target.state.begin());
    this.#attempt = attempt;
    const { method, path, maxResponseBytes } = this.#call;
    const headers = this.#headersFor(target.engine);
    attempt.attach(
      target.engine.pool.send({ method, path, headers, body, limits, maxResponseBytes }, attempt),
    );
  }

  #bodyFor(replica: Replica): Buffer | StreamedBody | null {
    if (this.#call.buildBody === undefined) return null;
    if (this.#bodyReplica !== replica) {
      this.#body = this.#call.buildBody(replica);
      this.#bodyReplica = replica;
    }
    return this.#body;
  }

  #headersFor(engine: EngineState): readonly string[] {
    const { contentType, headers } = this.#call;
    if (contentType === undefined && headers === undefined) return engine.headers;
    const all = [...engine.headers];
    if (contentType !== undefined) all.push('content-type', contentType);
    if (headers !== undefined) all.push(...headers);
    return all;
  }

  // Called by the attempt from here on.

  attemptAnswered(attempt: Attempt): void {
    this.#hasAnswered = true;
    this.#bytes = 0;
    this.#firstByteMs = this.#context.clock.monotonicMs() - this.#startedMs;
    const head = {
      status: attempt.status,
      headers: attempt.headers,
      replica: attempt.target.replica,
      attempts: this.#attempts,
      firstByteMs: this.#firstByteMs,
    };
    try {
      this.#sink.onHead(head);
    } catch (error) {
      this.#crash(error); // a bug in the sink ends the call, not the process
    }
  }

  attemptData(attempt: Attempt, chunk: Buffer): void {
    if (this.#isEnded) return;
    this.#bytes += chunk.length;
    try {
      if (!this.#sink.onChunk(chunk)) attempt.pause();
    } catch (error) {
      this.#crash(error); // a bug in the sink ends the call, not the process
    }
  }

  attemptEnded(attempt: Attempt): void {
    this.#attempt = null;
    const totalMs = this.#context.clock.monotonicMs() - this.#startedMs;
    const isUsable = this.#options.isUsable?.() ?? true;
    if (typeof isUsable === 'boolean') return this.#judged(attempt, isUsable, totalMs);
    isUsable.then(
      (verdict) => this.#judged(attempt, verdict, totalMs),
      (error: unknown) => {
        attempt.target.state.cancel(attempt.ticket);
        this.#crash(error);
      },
    );
  }

  #judged(attempt: Attempt, isUsable: boolean, totalMs: number): void {
    const { target, ticket, status } = attempt;
    if (!isUsable) {
      const message = 'The answer is not what was asked for';
      return this.#failed(target, attempt, { ...GARBAGE_REPORT, message, status });
    }
    target.state.succeed(ticket, this.#firstByteMs, totalMs);
    if (this.#isEnded) return;
    const success: EngineSuccess = {
      ok: true,
      bytes: this.#bytes,
      attempts: this.#attempts,
      replica: target.replica,
      firstByteMs: this.#firstByteMs,
      totalMs,
    };
    this.#finish(success);
  }

  attemptFailed(attempt: Attempt, report: AttemptReport): void {
    this.#attempt = null;
    this.#failed(attempt.target, attempt, report);
  }

  attemptStale(attempt: Attempt): void {
    this.#attempt = null;
    this.#staleRetries += 1;
    if (this.#staleRetries > MAX_STALE_RETRIES || this.#call.maxAttempts === 1) {
      return this.#failed(attempt.target, attempt, STALE_REPORT);
    }
    attempt.target.state.cancel(attempt.ticket);
    this.#attempts -= 1;
    this.#next();
  }

  #failed(target: Target, attempt: Attempt, report: AttemptReport): void {
    const { verdict, message } = report;
    this.#wasSent ||= report.wasSent;
    target.state.fail(attempt.ticket, this.caller, verdict, message, report.retryAfterMs);
    if (this.#isEnded) return;
    const { reason } = verdict;
    const isOwn = target.engine.settings.isOwn === true;
    const failure = this.#failure(reason, message, report.retryAfterMs, { ...report, isOwn });
    const isFinal = verdict.retry === 'never' || failure.sawFirstByte;
    if (isFinal) return this.#finish(failure);
    if (this.#best === null || outweighs(reason, this.#best.reason)) this.#best = failure;
    if (this.#attempts >= this.#maxAttempts) return this.#finish(this.#best);
    (this.#tried ??= new Set()).add(target);
    if (verdict.retry === 'elsewhere') (this.#barred ??= new Set()).add(target);
    this.#pauseMs = report.retryAfterMs ?? 0;
    this.#next();
  }

  get #maxAttempts(): number {
    const { maxAttempts, replicas } = this.#call;
    return maxAttempts ?? Math.min(MAX_ATTEMPTS, Math.max(MIN_ATTEMPTS, replicas.length));
  }

  #nothingReady(targets: readonly Target[]): EngineFailure {
    let readyInMs = Infinity;
    for (const target of targets) readyInMs = Math.min(readyInMs, target.state.readyInMs);
    const retryAfter = Number.isFinite(readyInMs) ? readyInMs : null;
    return this.#failure('unreachable', 'No replica is ready', retryAfter);
  }

  #failure(
    reason: FailureReason,
    message: string,
    retryAfterMs: number | null = null,
    answer: { status: number | null; body: Buffer | null; isOwn: boolean } | null = null,
  ): EngineFailure {
    const sawFirstByte = this.#hasAnswered && !this.#options.isReplaceable;
    return {
      ok: false,
      reason,
      sawFirstByte,
      bytes: sawFirstByte ? this.#bytes : 0,
      status: answer?.status ?? null,
      body: answer?.body ?? null,
      isOwn: answer?.isOwn ?? false,
      retryAfterSeconds: retryAfterMs === null ? null : Math.ceil(retryAfterMs / 1_000),
      attempts: this.#attempts,
      wasSent: this.#wasSent,
      replica: this.#last,
      message,
    };
  }

  #crash(error: unknown): void {
    const attempt = this.#attempt;
    this.#attempt = null;
    this.#end();
    this.#reject(error);
    attempt?.abort();
  }

  #finish(outcome: EngineOutcome): void {
    this.#end();
    this.#resolve(outcome);
  }

  #end(): void {
    this.#isEnded = true;
    this.#stopWaiting();
    this.#call.signal?.removeEventListener('abort', this.#onSignal);
    this.#body = null;
    this.#context.ended(this);
  }
}

const GARBAGE_REPORT: AttemptReport = {
  verdict: GARBAGE,
  message: '',
  status: null,
  body: null,
  retryAfterMs: null,
  wasSent: true,
};

const STALE_REPORT: AttemptReport = {
  verdict: verdictOfFailure('reset'),
  message: 'Idle connections closed again and again',
  status: null,
  body: null,
  retryAfterMs: null,
  wasSent: true,
};
