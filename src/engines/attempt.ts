/**
 * One try of a call on one replica: reads the head, keeps a refusal's body (bounded), passes a
 * success on, and ends with exactly one report to its call. It holds one slot of its engine until
 * the connection is free again.
 */
import type { IncomingHttpHeaders } from 'node:http';

import type { Ticket } from '../net/circuit-breaker.ts';
import type { RunningExchange, UpstreamFailure, UpstreamHandler } from '../net/exchange.ts';
import { retryAfterMs } from '../net/retry.ts';
import type { Target } from './routing.ts';
import { GARBAGE, verdictOfFailure, verdictOfStatus } from './verdict.ts';
import type { Verdict } from './verdict.ts';

/** Of a refusal's body: enough for any error object, too little to hurt. */
const MAX_ERROR_BODY_BYTES = 64 * 1024;

export interface AttemptReport {
  readonly verdict: Verdict;
  readonly message: string;
  readonly status: number | null;
  readonly body: Buffer | null;
  readonly retryAfterMs: number | null;
  /** Whether any of the request may have reached the engine. */
  readonly wasSent: boolean;
}

/** The call that an attempt serves. */
export interface AttemptOwner {
  readonly accept: readonly string[] | undefined;
  nowMs(): number;
  /** The first byte of a success is here, or its end if it has no bytes. */
  attemptAnswered(attempt: Attempt): void;
  attemptData(attempt: Attempt, chunk: Buffer): void;
  attemptEnded(attempt: Attempt): void;
  attemptFailed(attempt: Attempt, report: AttemptReport): void;
  attemptStale(attempt: Attempt): void;
}

export class Attempt implements UpstreamHandler {
  readonly target: Target;
  readonly ticket: Ticket;
  readonly #owner: AttemptOwner;
  #exchange: RunningExchange | null = null;
  #status = 0;
  #headers: IncomingHttpHeaders = {};
  #hasAnswered = false;
  #errorChunks: Buffer[] = [];
  #errorBytes = 0;
  /** Set when the answer itself, not the connection, ends the attempt. */
  #report: AttemptReport | null = null;

  constructor(owner: AttemptOwner, target: Target, ticket: Ticket) {
    this.#owner = owner;
    this.target = target;
    this.ticket = ticket;
  }

  get status(): number {
    return this.#status;
  }

  get headers(): IncomingHttpHeaders {
    return this.#headers;
  }

  attach(exchange: RunningExchange): void {
    this.#exchange = exchange;
  }

  pause(): void {
    this.#exchange?.pause();
  }

  resume(): void {
    this.#exchange?.resume();
  }

  abort(): void {
    this.#exchange?.abort();
  }

  onHead(status: number, headers: IncomingHttpHeaders): void {
    this.#status = status;
    this.#headers = headers;
    if (!this.#isSuccess) return;
    const complaint = complaintAbout(headers, this.#owner.accept);
    if (complaint !== null) this.#give(GARBAGE, complaint);
  }

  onData(chunk: Buffer): void {
    if (!this.#isSuccess) return this.#keepError(chunk);
    if (!this.#hasAnswered) {
      this.#hasAnswered = true;
      this.#owner.attemptAnswered(this);
    }
    this.#owner.attemptData(this, chunk);
  }

  onEnd(): void {
    if (!this.#isSuccess) {
      this.#owner.attemptFailed(this, this.#reportOf(verdictOfStatus(this.#status), ''));
      return;
    }
    if (!this.#hasAnswered) this.#owner.attemptAnswered(this);
    this.#owner.attemptEnded(this);
  }

  onFailure(failure: UpstreamFailure): void {
    if (this.#report !== null) return this.#owner.attemptFailed(this, this.#report);
    if (failure.kind === 'stale') return this.#owner.attemptStale(this);
    const isAnswer = this.#status >= 300 && failure.kind !== 'aborted';
    const verdict = isAnswer ? verdictOfStatus(this.#status) : verdictOfFailure(failure.kind);
    const wasSent = failure.kind !== 'connect';
    this.#owner.attemptFailed(this, this.#reportOf(verdict, failure.message, wasSent));
  }

  onReleased(): void {
    this.#exchange = null;
    this.target.engine.freeSlot();
  }

  get #isSuccess(): boolean {
    return this.#status >= 200 && this.#status < 300;
  }

  #keepError(chunk: Buffer): void {
    this.#errorChunks.push(chunk);
    this.#errorBytes += chunk.length;
    if (this.#errorBytes > MAX_ERROR_BODY_BYTES) this.#give(verdictOfStatus(this.#status), '');
  }

  /** Ends the attempt from our side, with a report of its own instead of "aborted". */
  #give(verdict: Verdict, message: string): void {
    this.#report = this.#reportOf(verdict, message);
    this.abort();
  }

  #reportOf(verdict: Verdict, message: string, wasSent = true): AttemptReport {
    const status = this.#status === 0 ? null : this.#status;
    const isRefusal = status !== null && !this.#isSuccess;
    const body = isRefusal ? Buffer.concat(this.#errorChunks, this.#boundedBytes) : null;
    const wait = isRefusal ? retryAfterMs(this.#headers['retry-after'], this.#owner.nowMs()) : null;
    const text = message === '' ? `HTTP ${this.#status}` : message;
    return { verdict, message: text, status, body, retryAfterMs: wait, wasSent };
  }

  get #boundedBytes(): number {
    return Math.min(this.#errorBytes, MAX_ERROR_BODY_BYTES);
  }
}

/** Why a 2xx head cannot be what was asked for, or null when it can. */
function complaintAbout(
  headers: IncomingHttpHeaders,
  accept: readonly string[] | undefined,
): string | null {
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    return `The engine answered in the encoding "${encoding}", which was not asked for`;
  }
  const type = headers['content-type'];
  if (accept === undefined || type === undefined) return null;
  if (accept.some((start) => type.startsWith(start))) return null;
  return `The engine answered with the content type "${type}"`;
}
