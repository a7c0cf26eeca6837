/**
 * One request and its answer, as the stages and handlers see it: id, caller, body, the headers that
 * have gathered, and three ways to answer (JSON, bytes, stream). It answers exactly once.
 *
 * Answers are written straight to the socket: headers and first bytes leave together, and bytes
 * are never encoded twice.
 */
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { assert } from '../core/assert.ts';
import type { Caller } from '../identity/identity.ts';
import { targetPath, targetQuery } from '../core/request-target.ts';
import type { IdempotencyToken } from '../billing/idempotency/idempotency.ts';
import type { AnswerKeeper } from '../billing/sale.ts';
import { HeaderList } from './header-list.ts';
import { StreamWriter } from './stream-writer.ts';

const gzipAsync = promisify(gzip);
const brotliAsync = promisify(brotliCompress);

/** Below this size compression costs more than it saves. */
const COMPRESS_FROM_BYTES = 1_024;
const GZIP_LEVEL = 5;
const BROTLI_QUALITY = 4;

export interface RequestContextParts {
  readonly requestId: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly parameters: Readonly<Record<string, string>>;
  /** Address of the caller, by the proxy rules of the configuration. */
  readonly address: string;
  readonly startedMs: number;
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
  readonly parameters: Readonly<Record<string, string>>;
  readonly address: string;
  readonly startedMs: number;
  readonly notes: RequestNotes = {};
  /** The beginning of a credential that stands for nobody, once that is known. */
  failedCredential: string | undefined;
  body: Buffer = EMPTY;
  #caller: Caller | undefined;
  #keeper: AnswerKeeper | undefined;
  #query: URLSearchParams | undefined;
  readonly #response: ServerResponse;
  readonly #headers = new HeaderList();
  readonly #abort = new AbortController();
  readonly #settled: (() => void)[] = [];
  readonly #ended: (() => void)[] = [];
  /** The answer, and the handler while it works. */
  #unfinished = 1;

  constructor(parts: RequestContextParts) {
    this.requestId = parts.requestId;
    this.request = parts.request;
    this.parameters = parts.parameters;
    this.address = parts.address;
    this.startedMs = parts.startedMs;
    this.#response = parts.response;
    // A caller can be gone before its request meets a stage; `close` does not come twice.
    if (parts.response.destroyed) queueMicrotask(() => this.#close());
    else parts.response.once('close', () => this.#close());
  }

  #close(): void {
    if (!this.#response.writableFinished) this.#abort.abort();
    for (const done of this.#settled) done();
    this.#finish();
  }

  /** Aborts when the caller leaves before the answer is complete. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Runs when the answer has left or the caller has. */
  onClose(done: () => void): void {
    this.#settled.push(done);
  }

  /** Runs when the answer has left or the caller has, and the handler has ended too. */
  onEnd(done: () => void): void {
    this.#ended.push(done);
  }

  /** The handler works until the returned function is called, once. */
  working(): () => void {
    this.#unfinished += 1;
    return () => this.#finish();
  }

  #finish(): void {
    this.#unfinished -= 1;
    if (this.#unfinished > 0) return;
    for (const done of this.#ended) done();
  }

  /** The identified caller; asking for it on a public route is a bug. */
  get caller(): Caller {
    assert(this.#caller !== undefined, 'this route has no caller');
    return this.#caller;
  }

  get callerIfKnown(): Caller | undefined {
    return this.#caller;
  }

  identify(caller: Caller): void {
    this.#caller = caller;
  }

  get answered(): boolean {
    return this.#response.headersSent || this.#response.writableEnded;
  }

  get statusCode(): number {
    return this.#response.statusCode;
  }

  /** The path of the request, without its query. */
  get path(): string {
    return targetPath(this.request.url);
  }

  get query(): URLSearchParams {
    this.#query ??= new URLSearchParams(targetQuery(this.request.url));
    return this.#query;
  }

  /** A request header; several of one name are joined by Node's rules. */
  header(name: string): string | undefined {
    const value = this.request.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  /** Adds a header to the answer; a later value replaces an earlier one, but `vary` gathers. */
  set(name: string, value: string | number): void {
    const before = name === 'vary' ? this.#headers.get(name) : undefined;
    const isNew = before !== undefined && !before.split(', ').includes(String(value));
    this.#headers.set(name, isNew ? `${before}, ${value}` : String(value));
  }

  has(name: string): boolean {
    return this.#headers.has(name);
  }

  /** Names of the headers that have gathered so far. */
  headerNames(): string[] {
    return this.#headers.names();
  }

  /** Set when the answer is kept for the retries of this request. */
  get keeper(): AnswerKeeper | undefined {
    return this.#keeper;
  }

  /** The answer is kept under a key, with those headers that are still true of a replay. */
  keepFor(token: IdempotencyToken): void {
    const earlier = new Set(this.#headers.names());
    this.#keeper = {
      token,
      finished: ({ type, body }) => {
        const headers: Record<string, string> = { 'x-request-id': this.requestId };
        for (const name of this.#headers.names()) {
          if (earlier.has(name) || VOLATILE.test(name)) continue;
          headers[name] = this.#headers.get(name) ?? '';
        }
        return { status: 200, headers: { ...headers, 'content-type': type }, body };
      },
    };
  }

  /**
   * Aborts when nobody will ask for the answer any more: not when the caller leaves a request whose
   * answer is kept.
   */
  get workSignal(): AbortSignal {
    return this.#keeper === undefined ? this.#abort.signal : NEVER;
  }

  setAll(headers: Readonly<Record<string, string | number>>): void {
    for (const name in headers) {
      const value = headers[name];
      if (value !== undefined) this.set(name, value);
    }
  }

  /** Answers with JSON, compressed when the caller asked for it. */
  json(status: number, value: unknown): Promise<void> {
    const body = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
    return this.bytes(status, 'application/json; charset=utf-8', body);
  }

  async bytes(status: number, contentType: string, body: Buffer): Promise<void> {
    this.set('content-type', contentType);
    const canShrink = compressible(contentType);
    const encoding = canShrink ? this.#acceptedEncoding(body.length) : undefined;
    if (canShrink) this.set('vary', 'Accept-Encoding');
    if (encoding === undefined) return this.#end(status, body);
    const packed = encoding === 'br' ? await brotli(body) : await gzipAsync(body, GZIP_OPTIONS);
    this.set('content-encoding', encoding);
    this.#end(status, packed);
  }

  empty(status: number): void {
    this.#end(status, EMPTY);
  }

  /** Begins a stream; headers leave with the first write. */
  stream(status: number, contentType: string): StreamWriter {
    this.set('content-type', contentType);
    this.#writeHead(status, undefined);
    return new StreamWriter(this.#response);
  }

  /** Begins an answer that a pipeline writes and ends. */
  pipe(status: number, contentType: string): Writable {
    this.set('content-type', contentType);
    this.#writeHead(status, undefined);
    return this.#response;
  }

  /** Ends an answer that has begun and cannot be completed. */
  destroy(): void {
    this.#response.destroy();
  }

  #end(status: number, body: Buffer): void {
    if (this.#abort.signal.aborted) return;
    this.#writeHead(status, body.length);
    this.#response.end(this.request.method === 'HEAD' ? undefined : body);
  }

  #writeHead(status: number, length: number | undefined): void {
    assert(!this.#response.headersSent, 'an context answers once');
    if (length !== undefined && status !== 204) this.set('content-length', length);
    this.#response.writeHead(status, reasonPhrase(status), this.#headers.flat);
  }

  #acceptedEncoding(sizeBytes: number): 'br' | 'gzip' | undefined {
    if (sizeBytes < COMPRESS_FROM_BYTES) return undefined;
    return encodingFor(this.header('accept-encoding'));
  }
}

/** Headers of one answer that are not true of its replay. */
const VOLATILE = /^(?:x-ratelimit-.*|x-.*balance-.*|vary|content-encoding|content-length)$/;
const EMPTY = Buffer.alloc(0);
const NEVER = new AbortController().signal;
const GZIP_OPTIONS = { level: GZIP_LEVEL };

function brotli(body: Buffer): Promise<Buffer> {
  return brotliAsync(body, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY,
      [constants.BROTLI_PARAM_SIZE_HINT]: body.length,
    },
  });
}

function compressible(contentType: string): boolean {
  return /^(?:application\/json|text\/(?!event-stream))/.test(contentType);
}

/** `br` before `gzip`; `q=0` refuses one. */
export function encodingFor(accept: string | undefined): 'br' | 'gzip' | undefined {
  if (accept === undefined) return undefined;
  const offered = accept
    .toLowerCase()
    .split(',')
    .map((part) => part.trim());
  const accepts = (name: string): boolean =>
    offered.some((part) => part.split(';')[0]?.trim() === name && !/;\s*q=0(?:\.0+)?$/.test(part));
  if (accepts('br')) return 'br';
  return accepts('gzip') ? 'gzip' : undefined;
}

const OWN_REASONS: Readonly<Record<number, string>> = {
  402: 'Payment Required',
  413: 'Payload Too Large',
  422: 'Unprocessable Content',
};

/** Some clients show nothing but the reason phrase, so it always says something. */
export function reasonPhrase(status: number): string {
  return OWN_REASONS[status] ?? STATUS_CODES[status] ?? 'Unknown';
}
