/** Worker thread of `large-bodies.ts`: reads one body after the other, or says why it is refused. */
import { parentPort } from 'node:worker_threads';
import { Fault, type FaultCode, type FaultOptions } from '../kernel/faults.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from '../wire/chat-request.ts';
import { type EmbeddingsRequest, parseEmbeddingsRequest } from '../wire/embeddings-request.ts';
import type { ParsedObject } from '../wire/json-splice.ts';

export type LargeBody =
  | { readonly kind: 'chat'; readonly bytes: Uint8Array; readonly options: ChatRequestOptions }
  | { readonly kind: 'embeddings'; readonly bytes: Uint8Array };

/** A request as it travels: who asked has the bytes. */
export type WithoutBytes<T extends { readonly source: ParsedObject }> = Omit<T, 'source'> & {
  readonly source: Omit<ParsedObject, 'json'>;
};

export type ReadBody =
  | { readonly kind: 'chat'; readonly request: WithoutBytes<ChatRequest> }
  | { readonly kind: 'embeddings'; readonly request: WithoutBytes<EmbeddingsRequest> }
  | { readonly kind: 'refused'; readonly code: FaultCode; readonly options: FaultOptions };

parentPort?.on('message', ({ turn, body }: { turn: number; body: LargeBody }) => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
  parentPort?.postMessage({ turn, read: read(body) });
});

function read(body: LargeBody): ReadBody {
  const bytes = Buffer.from(body.bytes.buffer, body.bytes.byteOffset, body.bytes.byteLength);
  try {
    return body.kind === 'chat'
      ? { kind: 'chat', request: withoutBytes(parseChatRequest(bytes, body.options)) }
      : { kind: 'embeddings', request: withoutBytes(parseEmbeddingsRequest(bytes)) };
  } catch (error) {
    // A refusal travels as its parts; anything else is a bug and ends the thread.
    if (!(error instanceof Fault)) throw error;
    return { kind: 'refused', code: error.code, options: error.options };
  }
}

function withoutBytes<T extends { readonly source: ParsedObject }>(request: T): WithoutBytes<T> {
  const { source, ...rest } = request;
  return { ...rest, source: { body: source.body, members: source.members } };
}
