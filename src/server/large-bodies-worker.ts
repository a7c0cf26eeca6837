/** Worker thread of `large-bodies.ts`: reads one body after the other, or says why it is refused. */
import { type ParsedObject, parseJsonBody } from '../json/json-scan.ts';
import { parentPort } from 'node:worker_threads';
import { type ChatRequestOptions, parseChatRequest } from '../chat/wire/chat-request.ts';
import { Fault, type FaultCode, type FaultOptions } from '../core/faults.ts';
import { parseEmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import { scanRequest } from '../json/json-spans.ts';

/** The readers of bodies; what they give is cloned, and the bytes travel beside it. */
const READERS = {
  chat: (body: Buffer, options: ChatRequestOptions) =>
    withoutBytes(parseChatRequest(body, options)),
  embeddings: (body: Buffer, _none: undefined) => withoutBytes(parseEmbeddingsRequest(body)),
  rpc: (body: Buffer, maxItems: number) => scanRequest(body, maxItems),
  json: (body: Buffer, _none: undefined) => parseJsonBody(body),
};

export type Readers = typeof READERS;

/** One body; its bytes move to the thread. */
export interface LargeBody {
  readonly kind: keyof Readers;
  readonly bytes: ArrayBuffer;
  readonly options: unknown;
}

/** What was read; the bytes move back. */
export type LargeBodyRead =
  | { readonly value: unknown; readonly bytes: ArrayBuffer }
  | {
      readonly refusal: { readonly code: FaultCode; readonly options: FaultOptions };
    };

parentPort?.on('message', ({ kind, bytes, options }: LargeBody) => {
  const read: (body: Buffer, options: never) => unknown = READERS[kind];
  let answer: LargeBodyRead;
  try {
    answer = { value: read(Buffer.from(bytes), options as never), bytes }; // as `#read` pairs them
  } catch (error) {
    // A refusal travels as its parts; anything else is a bug and ends the thread.
    if (!(error instanceof Fault)) throw error;
    answer = { refusal: { code: error.code, options: error.options } };
  }
  parentPort?.postMessage(answer, 'bytes' in answer ? [answer.bytes] : []);
});

function withoutBytes<T extends { readonly source: ParsedObject }>({ source, ...rest }: T) {
  return { ...rest, source: { body: source.body, members: source.members } };
}
