/**
 * Keeps the answer of one request for its retries: the status, the body, and the headers that are
 * still true of a replay. It decides nothing; `idempotent.ts` says when.
 */
import {
  type Idempotency,
  type IdempotencyToken,
  MAX_STORED_BYTES,
} from '../billing/idempotency/idempotency.ts';
import type { Queryable } from '../db/db.ts';

/** Headers of one answer that are not true of its replay. */
const VOLATILE = /^(?:x-ratelimit-.*|x-.*balance-.*|vary|content-encoding|content-length)$/;

/** Where an answer is kept for the retries of its request. */
export class AnswerKeeper {
  readonly #idempotency: Idempotency;
  readonly #token: IdempotencyToken;
  readonly #requestId: string;
  readonly #notOurs: ReadonlySet<string>;
  #kept = false;

  constructor(
    idempotency: Idempotency,
    token: IdempotencyToken,
    /** Headers that the answer had before the handler ran: those of this request alone. */
    options: { readonly requestId: string; readonly earlierHeaders: readonly string[] },
  ) {
    this.#idempotency = idempotency;
    this.#token = token;
    this.#requestId = options.requestId;
    this.#notOurs = new Set(options.earlierHeaders);
  }

  /** Answers above this are not kept, only that there was one; a stream stops being copied there. */
  readonly maxBytes = MAX_STORED_BYTES;

  /** Whether the key is spent: false before, and when another request has it by now. */
  get kept(): boolean {
    return this.#kept;
  }

  /**
   * Keeps a successful answer, in the transaction of its charge when one is given; without a body
   * that it was too large.
   */
  async keep(
    status: number,
    headers: Readonly<Record<string, string>>,
    body: Buffer | undefined,
    tx?: Queryable,
  ): Promise<void> {
    if (tx === undefined && this.#kept) return;
    const stored: Record<string, string> = { 'x-request-id': this.#requestId };
    for (const [name, value] of Object.entries(headers)) {
      if (this.#notOurs.has(name) || VOLATILE.test(name)) continue;
      stored[name] = value;
    }
    this.#kept = await this.#idempotency.complete(
      this.#token,
      { status, headers: stored, body },
      tx,
    );
  }

  /** Gives the key back: the next request with it runs. */
  abandon(): Promise<void> {
    return this.#idempotency.abandon(this.#token);
  }
}
