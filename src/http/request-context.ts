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
import type { RequestTry, TryLog } from '../core/request-tries.ts';
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

/** Smaller bodies are not compressed: compression costs more than it saves. */
const COMPRESS_FROM_BYTES = 1_024;
/** Bodies up to this size are copied into one write with the head. */
const ONE_WRITE_BYTES = 8 * 1_024;
const COMPRESSIBLE = /^(?:application\/json|text\/(?!event-stream))/;

/** Formats an error in the protocol of a route; fields replace those of the standard response. */
export type ErrorForm = (
  fault: Fault,
  context: RequestContext,
) => {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
};

/** Identifies a route in logs and metrics. */
export interface RouteName {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PATCH' | 'DELETE' | 'PUT';
  /** Below the base path, with `:name` for parameters: `/chat/completions`. */
  readonly path: string;
  /** Served while the server drains, without guard or caller, such as `/readyz` and `/docs`. */
  readonly operational?: true;
  /** The rate limit of the route, if it is not that of a model. */
  readonly limitOf?: (caller: Caller) => LimitOf;
  /** The error format of a route with its own protocol. */
  readonly errors?: ErrorForm;
}

/** Receives a response in the transaction that settles it; a rejection rolls the settle back. */
export type DeliverResponse = (
  tx: Queryable,
  answer: FinishedResponse,
  sold: SoldFor,
) => Promise<void>;

/** Response headers, in the order in which they are sent. */
export type HeaderRecord = Record<string, string>;

type HeadFields = 'requestId' | 'request' | 'route' | 'parameters' | 'address' | 'startedMs';

export interface RequestContextParts extends Pick<RequestContext, HeadFields> {
  readonly response: ServerResponse;
  /** The headers of every response; others are added. */
  readonly answerHeaders: HeaderRecord;
  /** `undefined` if no header names the country. */
  readonly countryOf: ((request: IncomingMessage) => string) | undefined;
  /** Called once, when the response was sent or the caller disconnected, and the handler has ended. */
  readonly ended: (context: RequestContext) => void;
}

/** Fields of the log line of a request. */
export interface RequestNotes {
  model?: string;
  replica?: string;
  costUsd?: string;
  code?: string;
  promptTokens?: number;
  completionTokens?: number;
  firstTokenMs?: number;
}

/** Further tries of one request are counted by its receipt only. */
const MAX_TRIES = 20;

export class RequestContext implements TryLog {
  readonly requestId: string;
  readonly request: IncomingMessage;
  /** Request headers; Node joins repeated ones. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** `undefined` for an unknown path. */
  readonly route: RouteName | undefined;
  readonly parameters: Readonly<Record<string, string>>;
  /** Address of the caller, after the trusted proxies. */
  readonly address: string;
  readonly startedMs: number;
  readonly notes: RequestNotes = {};
  /** Tries of a request that has failed or was retried. */
  tries: RequestTry[] | undefined;
  /** The error of the response, also of a stream that has begun. */
  fault: Fault | undefined;
  /** The beginning of a rejected credential. */
  failedCredential: string | undefined;
  body: Buffer = EMPTY;
  /** Bytes that `BodyMemory` has reserved for the body. */
  bodyBytes = 0;
  callerIfKnown: Caller | undefined;
  /** The caller disconnected before the response was complete. */
  isGone = false;
  /** Aborts when the caller disconnects before the response is complete. */
  readonly leaving = new Cancellation();
  /** As `leaving`, but never aborts for a response that is stored for retries. */
  cancellation: Cancellation = this.leaving;
  /** The response head was written, with the status `statusCode`. */
  answered = false;
  statusCode = 200;
  /** The model and the sale, as far as they are known, for the headers of an error response. */
  known: KnownFacts | undefined;
  /** Set if the response is stored for retries of this request. */
  keeper: ResponseKeeper | undefined;
  /** Tags from the request header of a sold request; never empty. */
  tags: Readonly<Record<string, string>> | undefined;
  /** Releases the concurrency slot; called after the response and the handler have ended. */
  leave: (() => void) | undefined;
  readonly answerHeaders: HeaderRecord;
  readonly #response: ServerResponse;
  readonly #ended: (context: RequestContext) => void;
  readonly #countryOf: ((request: IncomingMessage) => string) | undefined;
  #query: URLSearchParams | undefined;
  /** Number of ends to wait for: of the response and of the handler. */
  #unfinished = 2;

  constructor(parts: RequestContextParts) {
    this.requestId = parts.requestId;
    this.request = parts.request;
    // Only `set-cookie`, a response header, would be a list.
    this.headers = parts.request.headers as typeof this.headers;
    this.route = parts.route;
    this.parameters = parts.parameters;
    this.address = parts.address;
    this.startedMs = parts.startedMs;
    this.#response = parts.response;
    this.answerHeaders = parts.answerHeaders;
    this.#ended = parts.ended;
    this.#countryOf = parts.countryOf;
    // A caller can disconnect before the first stage; then `close` was already emitted.
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

  /** The key of limits by address. */
  get countedAddress(): string {
    return countedAddress(this.address);
  }

  /** `leaving` as a signal. */
  get signal(): AbortSignal {
    return this.leaving.signal;
  }

  /** `cancellation` as a signal. */
  get workSignal(): AbortSignal {
    return this.cancellation.signal;
  }

  addTry(tried: RequestTry): void {
    this.tries ??= [];
    if (this.tries.length < MAX_TRIES) this.tries.push(tried);
  }

  /** Records the error of the response. */
  failed(fault: Fault): void {
    this.fault = fault;
    this.notes.code = fault.code;
  }

  /** All of the response was passed to the system. */
  get isSent(): boolean {
    return this.#response.writableFinished;
  }

  /** Called once when the handler has ended. */
  finish(): void {
    this.#unfinished -= 1;
    if (this.#unfinished > 0) return;
    this.leave?.();
    this.#ended(this);
  }

  /** The identified caller. Throws an assertion error on a route without one. */
  get caller(): Caller {
    assert(this.callerIfKnown !== undefined, 'this route has no caller');
    return this.callerIfKnown;
  }

  /** The path without the query. */
  get path(): string {
    return targetPath(this.request.url);
  }

  get query(): URLSearchParams {
    this.#query ??= new URLSearchParams(targetQuery(this.request.url));
    return this.#query;
  }

  /** Two letters; empty if no trusted proxy names it, `undefined` without the setting. */
  get country(): string | undefined {
    return this.#countryOf?.(this.request);
  }

  header(name: string): string | undefined {
    return this.headers[name];
  }

  /** Sets a response header; it keeps the place of an earlier value. */
  set(name: string, value: string | number): void {
    this.answerHeaders[name] = String(value);
  }

  setAll(headers: Readonly<Record<string, string>>): void {
    Object.assign(this.answerHeaders, headers);
  }

  /** Adds the headers that the response does not have yet. */
  setMissing(headers: Readonly<Record<string, string>>): void {
    for (const name in headers) this.answerHeaders[name] ??= headers[name] ?? '';
  }

  drop(name: string): void {
    Reflect.deleteProperty(this.answerHeaders, name);
  }

  /** Adds request headers that the response depends on to `Vary`. */
  addVary(names: string): void {
    const { vary } = this.answerHeaders;
    this.answerHeaders['vary'] = vary === undefined ? names : `${vary}, ${names}`;
  }

  /** Stores the response under an idempotency key, with the headers that are valid for a replay. */
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
        assert(sold !== undefined, 'a delivered response was sold');
        await deliver(tx, finished(answer), sold);
      },
      kept: () => undefined,
    };
  }

  /** Returns a function that makes the stored response, with the headers added from now on. */
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

  /** Responds with JSON, compressed if the caller accepts it. */
  json(status: number, value: unknown): void | Promise<void> {
    const body = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
    return this.bytes(status, 'application/json; charset=utf-8', body);
  }

  /** Responds at once, unless another thread compresses the body. A string is latin1. */
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

  /** Responds with `head` and all of `rest`, compressed if the caller accepts it. */
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

  /** Begins a response that the caller of this method writes and ends. */
  pipe(status: number, contentType: string): Writable {
    this.answerHeaders['content-type'] = contentType;
    return this.#writeHead(status);
  }

  /** Closes the connection of a response that cannot be completed. */
  destroy(): void {
    this.#response.destroy();
  }

  #end(status: number, body: Buffer | string): void {
    if (this.isGone) return;
    if (status !== 204) this.answerHeaders['content-length'] = String(body.length);
    const response = this.#writeHead(status);
    if (this.request.method === 'HEAD') response.end();
    // Node sends the head and a string in one write.
    else if (typeof body === 'string') response.end(body, 'latin1');
    else if (body.length <= ONE_WRITE_BYTES) response.end(body.toString('latin1'), 'latin1');
    else response.end(body);
  }

  #writeHead(status: number): ServerResponse {
    assert(!this.answered, 'a request has one response');
    this.answered = true;
    this.statusCode = status;
    return this.#response.writeHead(
      status,
      REASON_PHRASES[status] ?? 'Unknown',
      this.answerHeaders,
    );
  }
}

/** Response headers that are not valid for a replay. */
const VOLATILE =
  /^(?:x-ratelimit-|x-(?:[a-z\d]{1,64}-)?balance-|(?:vary|content-encoding|content-length)$)/;
const EMPTY = Buffer.alloc(0);

/** Never empty, because some clients show only the reason phrase. */
export const REASON_PHRASES: Readonly<Record<number, string | undefined>> = {
  ...STATUS_CODES,
  402: 'Payment Required',
  413: 'Payload Too Large',
  422: 'Unprocessable Content',
};
