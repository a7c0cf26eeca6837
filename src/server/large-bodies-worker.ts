/** Worker thread of `large-bodies.ts`: parses one body after the other. */
import { type ParsedObject, parseJsonBody } from '../json/json-scan.ts';
import { parentPort } from 'node:worker_threads';
import { type ChatRequestOptions, parseChatRequest } from '../chat/wire/chat-request.ts';
import { Fault, type FaultCode, type FaultOptions } from '../core/faults.ts';
import { parseEmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import { scanRequest } from '../json/json-spans.ts';

/** Parsers by kind. Results are cloned without their bytes, which are transferred. */
const READERS = {
  chat: (body: Buffer, options: ChatRequestOptions) =>
    withoutBytes(parseChatRequest(body, options)),
  embeddings: (body: Buffer, _none: undefined) => withoutBytes(parseEmbeddingsRequest(body)),
  rpc: (body: Buffer, maxItems: number) => scanRequest(body, maxItems),
  json: (body: Buffer, _none: undefined) => parseJsonBody(body),
};

export type Readers = typeof READERS;

/** Message to the thread; `bytes` is transferred. */
export interface LargeBody {
  readonly kind: keyof Readers;
  readonly bytes: ArrayBuffer;
  readonly options: unknown;
}

/** Message from the thread; `bytes` is transferred back. */
export type LargeBodyRead =
  | { readonly value: unknown; readonly bytes: ArrayBuffer }
  | {
      readonly fault: { readonly code: FaultCode; readonly options: FaultOptions };
    };

parentPort?.on('message', ({ kind, bytes, options }: LargeBody) => {
  const read: (body: Buffer, options: never) => unknown = READERS[kind];
  let result: LargeBodyRead;
  try {
    result = { value: read(Buffer.from(bytes), options as never), bytes }; // `#read` passes matching options
  } catch (error) {
    // A Fault is sent as data; any other error is a bug and ends the thread.
    if (!(error instanceof Fault)) throw error;
    result = { fault: { code: error.code, options: error.options } };
  }
  parentPort?.postMessage(result, 'bytes' in result ? [result.bytes] : []);
});

function withoutBytes<T extends { readonly source: ParsedObject }>({ source, ...rest }: T) {
  return { ...rest, source: { body: source.body, members: source.members } };
}
