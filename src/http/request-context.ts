/**
 * One request and its response, as stages and handlers see it: id, route, caller, body, response
 * headers, and three ways to respond (JSON, bytes, stream), of which one is used once.
 *
 * Headers and first bytes leave together, and bytes are never encoded twice. Signal, query and
 * listeners are made when first used.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { assert } from '../core/assert.ts';
import { Cancellation, NEVER_CANCELLED } from '../core/cancellation.ts';
import type { Fault } from '../core/faults.ts';
import type { Caller } from '../identity/identity.ts';
import { targetPath, targetQuery } from '../core/request-target.ts';
import { STATUS_CODES } from '../core/node-http.ts';
import type {
  FinishedResponse,
  Idempotency,
  IdempotencyToken,
} from '../billing/idempotency/idempotency.ts';
import {
  type ResponseKeeper,
  type LimitOf,
  type SoldResponse,
  type SoldFor,
  paidFor,
} from '../billing/sale.ts';
import type { Queryable } from '../db/db.ts';
import type { KnownFacts } from './response-headers.ts';
import { codingFor, encoded, encoder } from './body-bytes.ts';
import { countedAddress } from './caller-address.ts';
import { StreamWriter } from './stream-writer.ts';

/** Below this size compression costs more than it saves. */
const COMPRESS_FROM_BYTES = 1_024;
/** A body of up to this is copied so that it leaves with its head. */
const ONE_WRITE_BYTES = 8 * 1_024;
const COMPRESSIBLE = /^(?:application\/json|text\/(?!event-stream))/;

/** A refusal in the words of a route's own protocol: what differs from the standard answer. */
export type ErrorForm = (
  fault: Fault,
  context: RequestContext,
) => {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
};

/** What a route is known by, in logs and metrics too. */
export interface RouteName {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PATCH' | 'DELETE' | 'PUT';
  /** Below the base path, with `:name` for parameters: `/chat/completions`. */
  readonly path: string;
  /** As `/readyz` and `/docs`: served while draining, without guard or caller. */
  readonly operational?: true;
  /** The limit of a caller that it counts against, where that is not the one of a model. */
  readonly limitOf?: (caller: Caller) => LimitOf;
  /** How its refusals look, where its protocol has a form of its own. */
  readonly errors?: ErrorForm;
}

/** Takes an answer over in the transaction that settles it; what it throws undoes the settle. */
export type DeliverResponse = (
  tx: Queryable,
  answer: FinishedResponse,
  sold: SoldFor,
) => Promise<void>;

/** Headers of an answer in the order in which they leave. */
export type HeaderRecord = Record<string, string>;

type HeadFields = 'requestId' | 'request' | 'route' | 'parameters' | 'address' | 'startedMs';

export interface RequestContextParts extends Pick<RequestContext, HeadFields> {
  readonly response: ServerResponse;
  /** Headers that every answer has; the others join them. */
  readonly answerHeaders: HeaderRecord;
  /** Missing where no header says the country. */
  readonly countryOf: ((request: IncomingMessage) => string) | undefined;
  /** Called once: the answer or the caller has left, and the handler has ended. */
  readonly ended: (context: RequestContext) => void;
}

/** What the log line of a request says beyond status and time. */
export interface RequestNotes {
  model?: string;
  replica?: string;
  costUsd?: string;
  code?: string;
  promptTokens?: number;
  completionTokens?: number;
  firstTokenMs?: number;
}

export class RequestContext {
  readonly requestId: string;
  readonly request: IncomingMessage;
  /** Of the request; several of one name are joined by Node's rules. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Missing for a path that no route has. */
  readonly route: RouteName | undefined;
  readonly parameters: Readonly<Record<string, string>>;
  /** Address of the caller, by the proxy rules of the configuration. */
  readonly address: string;
  readonly startedMs: number;
  readonly notes: RequestNotes = {};
  /** The beginning of a credential that stands for nobody, once that is known. */
  failedCredential: string | undefined;
  body: Buffer = EMPTY;
  /** What `BodyMemory` counts of the body. */
  bodyBytes = 0;
  callerIfKnown: Caller | undefined;
  /** The caller left before its answer was complete; `leaving` comes then. */
  isGone = false;
  readonly leaving = new Cancellation();
  /** Aborts when nobody needs the response; one that is kept for retries goes on. */
  cancellation: Cancellation = this.leaving;
  /** The head of the answer is written, with this status. */
  answered = false;
  statusCode = 200;
  /** What is known of the model and of the sale by now, for the headers of a refusal. */
  known: KnownFacts | undefined;
  /** Set when the answer is kept for the retries of this request. */
  keeper: ResponseKeeper | undefined;
  /** Of the header, where the request sells something; never empty. */
  tags: Readonly<Record<string, string>> | undefined;
  /** Gives back what the caller has in flight, once the answer and the handler have ended. */
  leave: (() => void) | undefined;
  /** Of the answer, as far as they have gathered. */
  readonly answerHeaders: HeaderRecord;
  readonly #response: ServerResponse;
  readonly #ended: (context: RequestContext) => void;
  readonly #countryOf: ((request: IncomingMessage) => string) | undefined;
  #query: URLSearchParams | undefined;
  /** The answer and the handler. */
  #unfinished = 2;

  constructor(parts: RequestContextParts) {
    this.requestId = parts.requestId;
    this.request = parts.request;
    // The one that Node gives as a list, `set-cookie`, is none of a request.
    this.headers = parts.request.headers as typeof this.headers;
    this.route = parts.route;
    this.parameters = parts.parameters;
    this.address = parts.address;
    this.startedMs = parts.startedMs;
    this.#response = parts.response;
    this.answerHeaders = parts.answerHeaders;
    this.#ended = parts.ended;
    this.#countryOf = parts.countryOf;
    // A caller can be gone before its request meets a stage; `close` does not come twice.
    const close = (): void => {
      if (!this.#response.writableFinished) {
        this.isGone = true;
        this.leaving.abort();
      }
      this.finish();
    };
    if (parts.response.destroyed) queueMicrotask(close);
    else parts.response.on('close', close);
  }

  /** `address` as bounds by address count it. */
  get countedAddress(): string {
    return countedAddress(this.address);
  }

  /** Aborts when the caller leaves before the answer is complete. */
  get signal(): AbortSignal {
    return this.leaving.signal;
  }

  /** The same as a signal, for those who take nothing else. */
  get workSignal(): AbortSignal {
    return this.cancellation.signal;
  }

  /** The handler has ended; called once by whoever ran it. */
  finish(): void {
    this.#unfinished -= 1;
    if (this.#unfinished > 0) return;
    this.leave?.();
    this.#ended(this);
  }

  /** The identified caller; asking for it on a public route is a bug. */
  get caller(): Caller {
    assert(this.callerIfKnown !== undefined, 'this route has no caller');
    return this.callerIfKnown;
  }

  /** The path of the request, without its query. */
  get path(): string {
    return targetPath(this.request.url);
  }

  get query(): URLSearchParams {
    this.#query ??= new URLSearchParams(targetQuery(this.request.url));
    return this.#query;
  }

  /** Two letters, or empty where no trusted proxy names it; `undefined` without the setting. */
  get country(): string | undefined {
    return this.#countryOf?.(this.request);
  }

  /** A header of the request. */
  header(name: string): string | undefined {
    return this.headers[name];
  }

  /** Adds a header to the answer; a later value replaces an earlier one in its place. */
  set(name: string, value: string | number): void {
    this.answerHeaders[name] = String(value);
  }

  setAll(headers: Readonly<Record<string, string>>): void {
    Object.assign(this.answerHeaders, headers);
  }

  /** Adds those headers that the answer does not have. */
  setMissing(headers: Readonly<Record<string, string>>): void {
    for (const name in headers) this.answerHeaders[name] ??= headers[name] ?? '';
  }

  /** Takes a header back. */
  drop(name: string): void {
    Reflect.deleteProperty(this.answerHeaders, name);
  }

  /** Adds names of request headers that the answer depends on. */
  addVary(names: string): void {
    const { vary } = this.answerHeaders;
    this.answerHeaders['vary'] = vary === undefined ? names : `${vary}, ${names}`;
  }

  has(name: string): boolean {
    return this.answerHeaders[name] !== undefined;
  }

  /** The answer is kept under a key, with those headers that are still true of a replay. */
  keepFor(token: IdempotencyToken, idempotency: Idempotency): void {
    const finished = this.#finisher();
    this.cancellation = NEVER_CANCELLED;
    this.keeper = {
      keep: (tx, answer, sold) =>
        idempotency.complete(token, finished(answer), tx, sold && paidFor(sold)),
      kept: () => {
        token.isSpent = true;
      },
      charged: { fence: token, spend: (tx, paidNano) => idempotency.spend(token, tx, paidNano) },
    };
  }

  /** Passes the response to `deliver` in its settle transaction; without it nothing is charged. */
  deliverTo(deliver: DeliverResponse): void {
    const finished = this.#finisher();
    this.cancellation = NEVER_CANCELLED;
    this.keeper = {
      keep: async (tx, answer, sold) => {
        assert(sold !== undefined, 'what is delivered was sold');
        await deliver(tx, finished(answer), sold);
      },
      kept: () => undefined,
    };
  }

  /** Makes what is kept of an answer: with the headers that are added from now on. */
  #finisher(): (answer: SoldResponse) => FinishedResponse {
    const earlier = new Set(Object.keys(this.answerHeaders));
    return ({ type, body: given }) => {
      const body = typeof given === 'string' ? Buffer.from(given, 'latin1') : given;
      const headers: HeaderRecord = { 'x-request-id': this.requestId };
      for (const [name, value] of Object.entries(this.answerHeaders)) {
        if (!earlier.has(name) && !VOLATILE.test(name)) headers[name] = value;
      }
      return { status: 200, headers: { ...headers, 'content-type': type }, body };
    };
  }

  /** Answers with JSON, compressed when the caller asked for it. */
  json(status: number, value: unknown): void | Promise<void> {
    const body = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
    return this.bytes(status, 'application/json; charset=utf-8', body);
  }

  /** Responds at once, unless the body is compressed on another thread. A text is latin1. */
  bytes(status: number, contentType: string, body: Buffer | string): void | Promise<void> {
    const headers = this.answerHeaders;
    headers['content-type'] = contentType;
    if (!COMPRESSIBLE.test(contentType)) return this.#end(status, body);
    this.addVary('Accept-Encoding');
    if (body.length < COMPRESS_FROM_BYTES) return this.#end(status, body);
    const coding = codingFor(this.headers['accept-encoding']);
    if (coding === undefined) return this.#end(status, body);
    headers['content-encoding'] = coding;
    const packed = encoded(coding, typeof body === 'string' ? Buffer.from(body, 'latin1') : body);
    if (packed instanceof Promise) return packed.then((bytes) => this.#end(status, bytes));
    this.#end(status, packed);
  }

  empty(status: number): void {
    this.#end(status, EMPTY);
  }

  /** Begins a stream; headers leave with the first write. */
  stream(status: number, contentType: string): StreamWriter {
    this.answerHeaders['content-type'] = contentType;
    return new StreamWriter(this.#writeHead(status));
  }

  /** Answers with `head` and all that `rest` reads, compressed when the caller asked for it. */
  sendAll(status: number, contentType: string, head: Buffer, rest: Readable): Promise<void> {
    this.addVary('Accept-Encoding');
    const coding = codingFor(this.headers['accept-encoding']);
    if (coding !== undefined) this.answerHeaders['content-encoding'] = coding;
    const writable = this.pipe(status, contentType);
    if (coding === undefined) {
      writable.write(head);
      return pipeline(rest, writable);
    }
    const encoding = encoder(coding);
    encoding.write(head);
    return pipeline(rest, encoding, writable);
  }

  /** Begins an answer that a pipeline writes and ends. */
  pipe(status: number, contentType: string): Writable {
    this.answerHeaders['content-type'] = contentType;
    return this.#writeHead(status);
  }

  /** Ends an answer that has begun and cannot be completed. */
  destroy(): void {
    this.#response.destroy();
  }

  #end(status: number, body: Buffer | string): void {
    if (this.isGone) return;
    if (status !== 204) this.answerHeaders['content-length'] = String(body.length);
    const response = this.#writeHead(status);
    if (this.request.method === 'HEAD') response.end();
    // Node joins a short text to the head: one buffer and one write for both.
    else if (typeof body === 'string') response.end(body, 'latin1');
    else if (body.length <= ONE_WRITE_BYTES) response.end(body.toString('latin1'), 'latin1');
    else response.end(body);
  }

  #writeHead(status: number): ServerResponse {
    assert(!this.answered, 'a request is answered once');
    this.answered = true;
    this.statusCode = status;
    return this.#response.writeHead(
      status,
      REASON_PHRASES[status] ?? 'Unknown',
      this.answerHeaders,
    );
  }
}

/** Headers of one answer that are not true of its replay. */
const VOLATILE =
  /^(?:x-ratelimit-|x-(?:[a-z\d]{1,64}-)?balance-|(?:vary|content-encoding|content-length)$)/;
const EMPTY = Buffer.alloc(0);

/** Some clients show nothing but the reason phrase, so it always says something. */
export const REASON_PHRASES: Readonly<Record<number, string | undefined>> = {
  ...STATUS_CODES,
  402: 'Payment Required',
  413: 'Payload Too Large',
  422: 'Unprocessable Content',
};
