/**
 * One attempt of a call on one replica. It reads the response head, keeps the body of an error
 * response (bounded), passes a success on, and reports its end to the run exactly once. It occupies
 * a slot of its engine until the connection is free again.
 */
import { type Clock, HOUR_MS } from '../core/clock.ts';
import type { Ticket } from '../net/circuit-breaker.ts';
import { retryAfterMs } from '../net/retry.ts';
import {
  Exchange,
  type ReceivedHeaders,
  type UpstreamFailureKind,
  type UpstreamRequest,
  headerText,
} from '../net/exchange.ts';
import type { WholeCall } from './contract.ts';
import type { Target } from './engine-state.ts';
import { type Verdict, verdictOfError, verdictOfFailure } from './verdict.ts';

/** Enough for any error object, small enough to keep in memory. */
const MAX_ERROR_BODY_BYTES = 64 * 1024;
/** For an engine with a wrong clock; it is called again after seconds anyway. */
const MAX_RETRY_AFTER_MS = HOUR_MS;

export interface AttemptOwner {
  /** The first byte of a success has arrived, or its end if the body is empty. */
  responded(attempt: Attempt): void;
  receive(attempt: Attempt, chunk: Buffer): void;
  succeeded(attempt: Attempt): void;
  failed(attempt: Attempt, verdict: Verdict, message: string, wasSent?: boolean): void;
  /** The server had already closed the idle connection: this does not count as an attempt. */
  wentStale(attempt: Attempt): void;
}

const NO_HEADERS: ReceivedHeaders = {};

export class Attempt extends Exchange {
  readonly target: Target;
  readonly ticket: Ticket;
  status = 0;
  headers = NO_HEADERS;
  readonly #run: AttemptOwner;
  readonly #call: WholeCall;
  #isSuccess = false;
  #hasResponded = false;
  #errorChunks: Buffer[] | null = null;
  #errorBytes = 0;

  constructor(run: AttemptOwner, target: Target, request: UpstreamRequest, call: WholeCall) {
    super(target.engine.pool, request);
    this.#run = run;
    this.#call = call;
    this.target = target;
    this.ticket = target.state.begin();
  }

  protected override onHead(status: number, headers: ReceivedHeaders): void {
    this.status = status;
    this.headers = headers;
    this.#isSuccess = status < 300;
    if (!this.#isSuccess) return;
    const encoding = headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity') {
      const message = `The response has the encoding "${String(encoding)}", which was not requested`;
      return this.fail('garbage', message);
    }
    const type = headers['content-type'];
    const { accept } = this.#call;
    if (accept === undefined || type === undefined) return;
    const given = type.toString().toLowerCase();
    for (const start of accept) if (given.startsWith(start)) return;
    this.fail('garbage', `The response has the content type "${given}"`);
  }

  protected override onChunk(chunk: Buffer): void {
    if (!this.#isSuccess) return this.#storeError(chunk);
    if (!this.#hasResponded) {
      this.#hasResponded = true;
      this.#run.responded(this);
    }
    this.#run.receive(this, chunk);
  }

  protected override onEnd(): void {
    if (this.#isSuccess) {
      if (!this.#hasResponded) this.#run.responded(this);
      this.#run.succeeded(this);
    } else this.#run.failed(this, this.#verdict, `HTTP ${this.status}`);
    this.target.engine.freeSlot();
  }

  protected override onFailure(kind: UpstreamFailureKind, message: string): void {
    if (kind === 'stale') this.#run.wentStale(this);
    else {
      if (kind === 'ambiguous') this.#discardResponse();
      const hasStatus = this.status >= 300 && kind !== 'aborted';
      const verdict = hasStatus ? this.#verdict : verdictOfFailure(kind);
      const wasSent = kind === 'aborted' ? this.isSent : kind !== 'connect';
      this.#run.failed(this, verdict, message, wasSent);
    }
    this.target.engine.freeSlot();
  }

  get #verdict(): Verdict {
    return verdictOfError(this.status, this.refusal(), this.#call.isOptionalPath);
  }

  /** The body of an error response, without the credentials of the engine. */
  refusal(): Buffer | null {
    if (this.status < 300) return null;
    const size = Math.min(this.#errorBytes, MAX_ERROR_BODY_BYTES);
    const body = Buffer.concat(this.#errorChunks ?? [], size).toString('latin1');
    return Buffer.from(this.target.engine.withoutSecrets(body), 'latin1');
  }

  /** Milliseconds since the start of the attempt. */
  get durationMs(): number {
    return this.tookMs;
  }

  /** The delay that an unsuccessful response requests, at most an hour. */
  retryAfterMs(clock: Clock): number | null {
    if (this.status < 300) return null;
    const requestedMs = retryAfterMs(headerText(this.headers, 'retry-after'), clock.nowMs());
    return requestedMs === null ? null : Math.min(requestedMs, MAX_RETRY_AFTER_MS);
  }

  /** Discards a response that may belong to another request. */
  #discardResponse(): void {
    this.status = 0;
    this.headers = NO_HEADERS;
    this.#errorChunks = null;
  }

  #storeError(chunk: Buffer): void {
    (this.#errorChunks ??= []).push(chunk);
    this.#errorBytes += chunk.length;
    if (this.#errorBytes > MAX_ERROR_BODY_BYTES) this.fail('cut', `HTTP ${this.status}`);
  }
}
