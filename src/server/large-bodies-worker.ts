/** Worker thread of `large-bodies.ts`: reads one body after the other, or says why it is refused. */
import { parentPort } from 'node:worker_threads';
import { Fault, type FaultCode, type FaultOptions } from '../core/faults.ts';
import { type RequestScan, type ScanFailure, scanRequest } from '../json/json-spans.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from '../chat/wire/chat-request.ts';
import {
  type EmbeddingsRequest,
  parseEmbeddingsRequest,
} from '../embeddings/embeddings-request.ts';
import type { ParsedObject } from '../json/json-splice.ts';
import { parseJsonBody } from '../json/validation.ts';

export type LargeBody =
  | { readonly kind: 'chat'; readonly bytes: ArrayBuffer; readonly options: ChatRequestOptions }
  | { readonly kind: 'embeddings'; readonly bytes: ArrayBuffer }
  | { readonly kind: 'rpc'; readonly bytes: ArrayBuffer; readonly maxItems: number }
  | { readonly kind: 'json'; readonly bytes: ArrayBuffer };

/** A request as it travels: its bytes go beside it. */
export type WithoutBytes<T extends { readonly source: ParsedObject }> = Omit<T, 'source'> & {
  readonly source: Omit<ParsedObject, 'bytes'>;
};

export type ReadBody =
  | {
      readonly kind: 'chat';
      readonly request: WithoutBytes<ChatRequest>;
      readonly bytes: ArrayBuffer;
    }
  | {
      readonly kind: 'embeddings';
      readonly request: WithoutBytes<EmbeddingsRequest>;
      readonly bytes: ArrayBuffer;
    }
  | {
      readonly kind: 'rpc';
      readonly scan: RequestScan | ScanFailure;
      readonly bytes: ArrayBuffer;
    }
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'refused'; readonly code: FaultCode; readonly options: FaultOptions };

parentPort?.on('message', ({ turn, body }: { turn: number; body: LargeBody }) => {
  const read = readBody(body);
  parentPort?.postMessage({ turn, read }, 'bytes' in read ? [read.bytes] : []);
});

function readBody(body: LargeBody): ReadBody {
  const { kind, bytes } = body;
  const buffer = Buffer.from(bytes);
  try {
    switch (kind) {
      case 'chat':
        return { kind, bytes, request: withoutBytes(parseChatRequest(buffer, body.options)) };
      case 'embeddings':
        return { kind, bytes, request: withoutBytes(parseEmbeddingsRequest(buffer)) };
      case 'rpc':
        return { kind, bytes, scan: scanRequest(buffer, body.maxItems) };
      case 'json':
        return { kind, value: parseJsonBody(buffer) };
    }
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
