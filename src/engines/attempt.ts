/**
 * One try of a call on one replica: reads the head, keeps a refusal's body (bounded), passes a
 * success on, and ends with exactly one report to its run. It holds one slot of its engine until the
 * connection is free again.
 */
import type { Clock } from '../core/clock.ts';
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
import { type Verdict, verdictOfFailure, verdictOfStatus } from './verdict.ts';

/** Of a refusal's body: enough for any error object, too little to hurt. */
const MAX_ERROR_BODY_BYTES = 64 * 1024;

/** Who hears of a try. */
export interface AttemptOwner {
  /** The first byte of a success is here, or its end if it has no bytes. */
  answered(attempt: Attempt): void;
  take(attempt: Attempt, chunk: Buffer): void;
  succeeded(attempt: Attempt): void;
  failed(attempt: Attempt, verdict: Verdict, message: string, wasSent?: boolean): void;
  /** The connection had been closed as idle: that was no try. */
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
  #hasAnswered = false;
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
      const message = `The engine answered in the encoding "${String(encoding)}", which was not asked for`;
      return this.fail('garbage', message);
    }
    const type = headers['content-type'];
    const { accept } = this.#call;
    if (accept === undefined || type === undefined) return;
    const given = type.toString().toLowerCase();
    for (const start of accept) if (given.startsWith(start)) return;
    this.fail('garbage', `The engine answered with the content type "${given}"`);
  }

  protected override onChunk(chunk: Buffer): void {
    if (!this.#isSuccess) return this.#keepError(chunk);
    if (!this.#hasAnswered) {
      this.#hasAnswered = true;
      this.#run.answered(this);
    }
    this.#run.take(this, chunk);
  }

  protected override onEnd(): void {
    if (this.#isSuccess) {
      if (!this.#hasAnswered) this.#run.answered(this);
      this.#run.succeeded(this);
    } else this.#run.failed(this, this.#verdict, `HTTP ${this.status}`);
    this.target.engine.freeSlot();
  }

  protected override onFailure(kind: UpstreamFailureKind, message: string): void {
    if (kind === 'stale') this.#run.wentStale(this);
    else {
      if (kind === 'doubtful') this.#forget();
      const isAnswer = this.status >= 300 && kind !== 'aborted';
      const verdict = isAnswer ? this.#verdict : verdictOfFailure(kind);
      this.#run.failed(this, verdict, message, kind !== 'connect');
    }
    this.target.engine.freeSlot();
  }

  /** Of a head that is no success. */
  get #verdict(): Verdict {
    return verdictOfStatus(this.status, this.#call.mayLackPath);
  }

  /** The body of an answer that is no success, as far as it was kept. */
  refusal(): Buffer | null {
    if (this.status < 300) return null;
    const size = Math.min(this.#errorBytes, MAX_ERROR_BODY_BYTES);
    return Buffer.concat(this.#errorChunks ?? [], size);
  }

  /** The pause that an answer that is no success asks for. */
  retryAfterMs(clock: Clock): number | null {
    if (this.status < 300) return null;
    return retryAfterMs(headerText(this.headers, 'retry-after'), clock.nowMs());
  }

  /** A refusal that may be of another request says nothing of this one. */
  #forget(): void {
    this.status = 0;
    this.headers = NO_HEADERS;
    this.#errorChunks = null;
  }

  #keepError(chunk: Buffer): void {
    (this.#errorChunks ??= []).push(chunk);
    this.#errorBytes += chunk.length;
    if (this.#errorBytes > MAX_ERROR_BODY_BYTES) this.fail('cut', `HTTP ${this.status}`);
  }
}
