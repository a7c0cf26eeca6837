/**
 * Reads large JSON bodies on a thread of its own: the passes over tens of megabytes take tenths of
 * a second, in which the event loop would serve nobody else. What comes back is what the reader of
 * small bodies gives, its refusals included.
 *
 * The bytes go over and come back without a copy: the buffer that is given is empty afterwards, and
 * the request has its own.
 *
 * The thread starts with the first large body and ends after a minute without one.
 */
import { Worker } from 'node:worker_threads';
import { Fault } from '../core/faults.ts';
import type { ScannedBody } from '../json/json-spans.ts';
import { siblingUrl } from '../core/sibling.ts';
import { nextTurn } from '../core/event-loop.ts';
import type { ChatRequest, ChatRequestOptions } from '../chat/wire/chat-request.ts';
import type { EmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import type { LargeBody, ReadBody, WithoutBytes } from './large-bodies-worker.ts';

const ENDED = 'The thread of large bodies ended';

interface Waiting {
  readonly resolve: (read: ReadBody) => void;
  readonly reject: (error: Error) => void;
}

export class LargeBodies {
  #worker: Worker | undefined;
  /** By the number of their turn, in the order in which the thread answers. */
  readonly #waiting = new Map<number, Waiting>();
  #turns = 0;
  #turnsAtRest = 0;

  /** As `parseChatRequest`. */
  async chat(bytes: Buffer, options: ChatRequestOptions): Promise<ChatRequest> {
    const read = await this.#read({ kind: 'chat', bytes: movable(bytes), options });
    if (read.kind !== 'chat') throw new Error('The thread answered another question');
    return withBytes(read.request, read.bytes);
  }

  /** As `parseEmbeddingsRequest`. */
  async embeddings(bytes: Buffer): Promise<EmbeddingsRequest> {
    const read = await this.#read({ kind: 'embeddings', bytes: movable(bytes) });
    if (read.kind !== 'embeddings') throw new Error('The thread answered another question');
    return withBytes(read.request, read.bytes);
  }

  /** As `scanRequest`. */
  async rpc(bytes: Buffer, maxItems: number): Promise<ScannedBody> {
    const read = await this.#read({ kind: 'rpc', bytes: movable(bytes), maxItems });
    if (read.kind !== 'rpc') throw new Error('The thread answered another question');
    return { body: Buffer.from(read.bytes), scanned: read.scan };
  }

  /** As `parseJsonBody`. */
  async json(bytes: Buffer): Promise<unknown> {
    const read = await this.#read({ kind: 'json', bytes: movable(bytes) });
    if (read.kind !== 'json') throw new Error('The thread answered another question');
    return read.value;
  }

  /** Called once a minute: ends a thread that had nothing to do since the last call. */
  async rest(): Promise<void> {
    const isIdle = this.#turns === this.#turnsAtRest && this.#waiting.size === 0;
    this.#turnsAtRest = this.#turns;
    if (isIdle) await this.close();
  }

  /** Fails what still waits. */
  async close(): Promise<void> {
    const worker = this.#worker;
    if (worker === undefined) return;
    // From here on a body starts another thread: this one would not answer any more.
    this.#ended(worker, new Error(ENDED));
    await worker.terminate();
  }

  async #read(body: LargeBody): Promise<ReadBody> {
    const worker = (this.#worker ??= this.#start());
    const turn = (this.#turns += 1);
    const read = await new Promise<ReadBody>((resolve, reject) => {
      this.#waiting.set(turn, { resolve, reject });
      worker.postMessage({ turn, body }, [body.bytes]);
    });
    // Taking the answer over was a piece of work, and what the request asks for is another.
    await nextTurn();
    if (read.kind === 'refused') throw new Fault(read.code, read.options);
    return read;
  }

  #start(): Worker {
    const worker = new Worker(siblingUrl(import.meta.url, 'large-bodies-worker'));
    worker.unref();
    worker.on('message', ({ turn, read }: { turn: number; read: ReadBody }) => {
      this.#waiting.get(turn)?.resolve(read);
      this.#waiting.delete(turn);
    });
    worker.on('error', (error: Error) => this.#ended(worker, error));
    worker.on('exit', () => this.#ended(worker, new Error(ENDED)));
    return worker;
  }

  #ended(worker: Worker, reason: Error): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}

type Read = WithoutBytes<ChatRequest> | WithoutBytes<EmbeddingsRequest>;

function withBytes<T extends Read>(read: T, bytes: ArrayBuffer) {
  return { ...read, source: { ...read.source, bytes: Buffer.from(bytes) } };
}

/** The memory of a buffer when nothing else is in it, or a copy. */
function movable(bytes: Buffer): ArrayBuffer {
  const { buffer } = bytes;
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length;
  return isAlone ? buffer : new Uint8Array(bytes).buffer;
}
