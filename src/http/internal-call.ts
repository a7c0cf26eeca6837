/**
 * A route run in this process: what a feature asks of another one goes through the same stages, the
 * same handler and the same sale as a request from outside, so nothing is sold in two ways. It is for
 * routes with a protocol of their own (a tool of MCP) and for work that is done later (a batch).
 *
 * The request travels over a pair of streams in memory into an `http.Server` that listens nowhere:
 * Node's own parser and writer do the rest, an answer streams, a slow reader holds it up, and who
 * gives up is a caller that left: what was produced is paid, and the work ends. It takes about 0.1 ms.
 *
 * It owns the way there and back. What is different for such a request (who calls, whether its
 * failures count for the abuse guard) the server asks by `InternalCall`; `http.ts` has those lines.
 */
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { type Duplex, type Readable, duplexPair } from 'node:stream';
import type { Caller } from '../identity/identity.ts';
import { request as httpRequest } from '../core/node-http.ts';
import type { DeliverResponse } from './request-context.ts';
import type { Route } from './route.ts';

export interface InternalCall {
  /**
   * Who calls, when that is known: its stages of identification were elsewhere, and it takes no slot of
   * its own among the requests that the caller runs at once. Without one the headers are asked, as
   * ever: a payment pays, and without any credential the answer is the 402 that says how to get one.
   */
  readonly caller?: Caller | undefined;
  readonly method: Route['method'];
  /** Below the base path, with its query: `/chat/completions`. */
  readonly path: string;
  /** Beside those of the connection, in lower case: `content-type`, `idempotency-key`, … */
  readonly headers?: Readonly<Record<string, string>>;
  /** Bounded by the route, as from outside. */
  readonly body?: Buffer;
  /** The caller has left, or nobody wants the answer any more. */
  readonly signal?: AbortSignal | undefined;
  /** The address that the request stands for. */
  readonly address: string;
  /** The country that goes with it, where the settings name a header for it: `RequestContext.country`. */
  readonly country?: string | undefined;
  /**
   * Whether a refusal counts among the failures that the abuse guard blocks a caller for. Not for work
   * that nobody could have stopped meanwhile, such as the lines of a batch.
   */
  readonly countsFailures: boolean;
  /** Takes the answer over in the transaction that settles it: without it nothing is charged. */
  readonly deliver?: DeliverResponse;
}

export interface InternalResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Must be read to its end or destroyed, which is leaving. Fails when the answer breaks off. */
  readonly body: Readable;
}

/** Runs a route. Rejects when the signal aborts, or when the answer breaks off before its head. */
export type CallRoute = (call: InternalCall) => Promise<InternalResponse>;

export class InternalCalls {
  readonly #server: Server;
  readonly #basePath: string;
  /** By the far end of its connection, until that is closed. */
  readonly #calls = new Map<Duplex, InternalCall>();

  /** `server` listens nowhere; `receive` serves what arrives there. */
  constructor(
    server: Server,
    basePath: string,
    receive: (request: IncomingMessage, response: ServerResponse, call: InternalCall) => void,
  ) {
    this.#server = server;
    this.#basePath = basePath;
    server.on('request', (request, response) => {
      const call = this.#calls.get(request.socket);
      if (call === undefined) response.destroy();
      else receive(request, response, call);
    });
  }

  readonly run: CallRoute = (call) => {
    const { method, path, headers, body, signal } = call;
    const [near, far] = duplexPair();
    // Neither end hears of the other's by itself when it is cut.
    near.on('close', () => far.destroy());
    far.on('close', () => {
      this.#calls.delete(far);
      if (!far.writableFinished) near.destroy();
    });
    this.#calls.set(far, call);
    this.#server.emit('connection', far);
    return new Promise((resolve, reject) => {
      const request = httpRequest({
        createConnection: () => near,
        method,
        path: this.#basePath + path,
        headers: {
          ...headers,
          host: 'internal',
          ...(body === undefined ? {} : { 'content-length': body.length }),
        },
        ...(signal === undefined ? {} : { signal }),
      });
      request.on('error', reject);
      request.on('response', (response) => {
        const { statusCode: status = 0 } = response;
        resolve({ status, headers: response.headers, body: response });
      });
      request.end(body);
    });
  };

  /** Cuts what has not ended: a server that listens nowhere does not know its connections. */
  close(): void {
    for (const far of this.#calls.keys()) far.destroy();
  }
}

/**
 * The body of an answer. Rejects when it is larger than `maxBytes`, which cuts it off, and when it
 * breaks off.
 */
export async function readResponse({ body }: InternalResponse, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let sizeBytes = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    sizeBytes += piece.length;
    // Leaving the loop destroys the stream.
    if (sizeBytes > maxBytes) throw new ResponseTooLarge(maxBytes);
    pieces.push(piece);
  }
  return Buffer.concat(pieces, sizeBytes);
}

/** An answer with more bytes than its reader takes. */
export class ResponseTooLarge extends Error {
  override readonly name = 'ResponseTooLarge';

  constructor(maxBytes: number) {
    super(`The answer has more than ${maxBytes} bytes`);
  }
}
