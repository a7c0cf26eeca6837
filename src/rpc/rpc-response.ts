/** The result of a run, its bytes, and the error messages that Farebox itself returns. */
import { Readable } from 'node:stream';
import { BodyPieces } from '../core/body-pieces.ts';
import { MAX_STORED_BYTES } from '../billing/idempotency/idempotency.ts';
import { Fault } from '../core/faults.ts';
import type { ReplySpan } from '../json/json-spans.ts';
import { type Call, callerId, type ParsedRequest } from './parse-request.ts';
import type { AttemptFault, StreamResponse } from './node-attempt.ts';
import {
  copyWithId,
  MAX_COPY_BYTES,
  sliced,
  slicedBatch,
  type Slices,
  spliceBatch,
} from './splice.ts';
import { withIdAtEnd } from './stream-id.ts';
import type { UpstreamFault } from './node-errors.ts';
import type { ByteBudget } from './node-client.ts';

export interface RpcResponse {
  /** `abandoned`: the caller disconnected before there was a response; nothing is charged. */
  readonly kind: 'answered' | 'abandoned';
  /** The whole body, or its first bytes if `rest` is set. */
  readonly body: Buffer;
  /** The bytes after `body`; fails if the node breaks off. Destroy it on a disconnect. */
  readonly rest: Readable | undefined;
  readonly credits: number;
  readonly retries: number;
}

/** Longer than the two seconds after which a failed or paused node is used again. */
const RETRY_AFTER_SECONDS = 5;
const INTERNAL_ERROR_CODE = -32603;
const INVALID_REQUEST_CODE = -32600;

const NO_BYTES = Buffer.alloc(0);

/** Messages for the caller without names or messages of nodes. */
const REASONS: Readonly<Record<UpstreamFault, string>> = {
  transport: 'The connection to the node failed',
  timeout: 'No node responded in time; request less at once',
  unread:
    'The node closed the connection before it had read the request; send smaller parameters or batches',
  quota: 'The request quota of the nodes is used up; try again later',
  auth: 'The nodes reject the requests of this service; contact its operator',
  broken: 'The node sent an invalid response',
  stray: 'The node sent the response to another request',
  refused: 'The node rejected this request',
  'too-large': 'The response is larger than the limit of this service; request less at once',
  'request-too-large': 'No node accepts a request of this size; send smaller parameters',
};

function errorOf(fault: UpstreamFault = 'broken'): readonly [code: number, text: string] {
  const reason = REASONS[fault];
  if (fault === 'refused') return [INVALID_REQUEST_CODE, reason];
  const code = fault === 'request-too-large' ? INVALID_REQUEST_CODE : INTERNAL_ERROR_CODE;
  return [code, `${reason}; it was not billed`];
}

/** The response to a batch: one item per call, in order, with the caller's ids. */
export function batchReply(
  body: Buffer,
  calls: readonly Call[],
): Pick<RpcResponse, 'body' | 'rest'> {
  const spans: ReplySpan[] = [];
  let idsBytes = 0;
  const bytes = calls[0]?.response?.bytes;
  for (const { response, result, span } of calls) {
    if (response === undefined || result !== undefined || response.bytes !== bytes) break;
    spans.push(response.span);
    idsBytes += span.idEnd - span.idStart;
  }
  if (bytes !== undefined && spans.length === calls.length) {
    const spliced = spliceBatch(bytes, spans, idsBytes, (target, at, index) => {
      const { idStart = 0, idEnd = 0 } = calls[index]?.span ?? {};
      for (let from = idStart, to = at; from < idEnd; from += 1, to += 1)
        target[to] = body[from] ?? 0;
      return at + idEnd - idStart;
    });
    if (spliced !== undefined) return { body: spliced, rest: undefined };
  }
  const slices = slicedBatch(calls, (into, call) => writeItem(into, body, call));
  if (slices.sizeBytes <= MAX_COPY_BYTES) return { body: slices.join(), rest: undefined };
  return { body: NO_BYTES, rest: Readable.from(slices.pieces(), { objectMode: false }) };
}

function writeItem(slices: Slices, body: Buffer, { response, fault, result, span }: Call): void {
  const id = callerId(body, span);
  if (result !== undefined) slices.addResult(id, result);
  else if (response !== undefined) slices.addWithId(response.bytes, response.span, id);
  else slices.addError(id, ...errorOf(fault?.fault));
}

/** The response to a single request: the node's bytes with the caller's id. */
export function oneReply(body: Buffer, call: Call): Buffer {
  const { response, result } = call;
  if (response !== undefined && result === undefined && response.span.idStart >= 0) {
    const { bytes, span } = response;
    return copyWithId(bytes, 0, bytes.length, span, callerId(body, call.span));
  }
  return sliced((slices) => {
    if (response === undefined || result !== undefined) return writeItem(slices, body, call);
    const { bytes, span } = response;
    slices.add(bytes, 0, span.start);
    writeItem(slices, body, call);
    slices.add(bytes, span.end);
  }).join();
}

/** A streamed response with the caller's id in its first or last bytes. */
export function streamReply(
  id: Buffer,
  stream: StreamResponse,
): Pick<RpcResponse, 'body' | 'rest'> {
  const { head, idStart, idEnd, ownId, rest } = stream;
  if (idStart < 0) return withIdAtEnd(head, rest, ownId, id);
  const body = sliced((slices) => {
    slices.add(head, 0, idStart);
    slices.add(id);
    slices.add(head, idEnd);
  }).join();
  return { body, rest };
}

/** For a request that exceeds the limit of every node; `limitBytes` is the largest known limit. */
export function requestTooLarge(parsed: ParsedRequest, limitBytes: number | undefined): Fault {
  const size = `The request of ${parsed.body.length} bytes is larger than the nodes of ${parsed.network.slug} accept`;
  const advice =
    limitBytes === undefined || limitBytes >= parsed.body.length
      ? 'send smaller parameters or batches'
      : `send at most ${limitBytes} bytes`;
  return new Fault('PAYLOAD_TOO_LARGE', { message: `${size}: ${advice}` });
}

/** The fault of a run without any node reply: 503 with `Retry-After`. It names no node. */
export function unansweredFault(last: AttemptFault | undefined, isAnyOpen: boolean): Fault {
  const later = { retryAfterSeconds: RETRY_AFTER_SECONDS };
  if (last === undefined) return new Fault('RPC_NETWORK_UNAVAILABLE', later);
  const { fault } = last;
  if (fault === 'timeout') return new Fault('RPC_TIMEOUT', later);
  // A retry would return a response of the same size.
  if (fault === 'too-large') {
    return new Fault('RPC_UPSTREAM_FAILED', { message: REASONS[fault], canRetry: false });
  }
  if (!isAnyOpen) return new Fault('RPC_NETWORK_UNAVAILABLE', later);
  return new Fault('RPC_UPSTREAM_FAILED', { message: REASONS[fault], ...later });
}

/**
 * A long response stored for retries with the same key: all of it, or nothing if it exceeds the
 * limit of a response or the caller's share of the memory budget. Call `drop` at the end.
 */
export class KeptResponse {
  readonly #budget: ByteBudget;
  readonly #caller: string;
  #body: BodyPieces | undefined = new BodyPieces();

  constructor(budget: ByteBudget, caller: string) {
    this.#budget = budget;
    this.#caller = caller;
  }

  get isWhole(): boolean {
    return this.#body !== undefined;
  }

  add(chunk: Buffer): void {
    if (this.#body === undefined) return;
    const isKept =
      this.#body.sizeBytes + chunk.length <= MAX_STORED_BYTES &&
      this.#budget.take(this.#caller, chunk.length);
    if (isKept) this.#body.add(chunk);
    else this.drop();
  }

  body(): Buffer | undefined {
    return this.#body?.joinedAtOnce();
  }

  drop(): void {
    this.#budget.give(this.#caller, this.#body?.sizeBytes ?? 0);
    this.#body = undefined;
  }
}

/**
 * Returns the same bytes as `rest`, but the last ones are sent only after `beforeEnd` has resolved,
 * so that a response is settled before it is complete. `seen` receives every chunk. The result
 * fails if `rest` or `beforeEnd` does. A caller that abandons the result must destroy `rest` or
 * read its remainder.
 */
export function delayLastBytes(
  rest: Readable,
  beforeEnd: () => Promise<void>,
  seen: (chunk: Buffer) => void = () => undefined,
): Readable {
  async function* delayed(): AsyncGenerator<Buffer> {
    let last: Buffer | undefined;
    const chunks: AsyncIterable<Buffer> = rest.iterator({ destroyOnReturn: false });
    for await (const chunk of chunks) {
      seen(chunk);
      if (last !== undefined) yield last;
      last = chunk;
    }
    await beforeEnd();
    if (last !== undefined) yield last;
  }
  return Readable.from(delayed(), { objectMode: false });
}
