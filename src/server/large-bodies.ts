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
import { type ParsedObject } from '../json/json-scan.ts';
import { Worker } from 'node:worker_threads';
import type { ChatRequest, ChatRequestOptions } from '../chat/wire/chat-request.ts';
import { Fault } from '../core/faults.ts';
import { siblingUrl } from '../core/sibling.ts';
import { nextTurn } from '../core/event-loop.ts';
import type { EmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import type { ScannedBody } from '../json/json-spans.ts';
import type { LargeBody, LargeBodyRead, Readers } from './large-bodies-worker.ts';

const ENDED = 'The thread of large bodies ended';

export class LargeBodies {
  #worker: Worker | undefined;
  readonly #waiting = new Map<number, PromiseWithResolvers<LargeBodyRead>>();
  #bodies = 0;
  #bodiesAtRest = 0;

  /** As `parseChatRequest`. */
  async chat(bytes: Buffer, options: ChatRequestOptions): Promise<ChatRequest> {
    return withBytes(await this.#read('chat', bytes, options));
  }

  /** As `parseEmbeddingsRequest`. */
  async embeddings(bytes: Buffer): Promise<EmbeddingsRequest> {
    return withBytes(await this.#read('embeddings', bytes, undefined));
  }

  /** As `scanRequest`. */
  async rpc(bytes: Buffer, maxItems: number): Promise<ScannedBody> {
    const { body, value: scanned } = await this.#read('rpc', bytes, maxItems);
    return { body, scanned };
  }

  /** As `parseJsonBody`. */
  async json(bytes: Buffer): Promise<unknown> {
    return (await this.#read('json', bytes, undefined)).value;
  }

  /** Called once a minute: ends a thread that had nothing to do since the last call. */
  async rest(): Promise<void> {
    const isIdle = this.#bodies === this.#bodiesAtRest && this.#waiting.size === 0;
    this.#bodiesAtRest = this.#bodies;
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

  async #read<Kind extends keyof Readers>(
    kind: Kind,
    given: Buffer,
    options: Parameters<Readers[Kind]>[1],
  ): Promise<{ readonly body: Buffer; readonly value: ReturnType<Readers[Kind]> }> {
    const worker = (this.#worker ??= this.#start());
    const id = (this.#bodies += 1);
    const waiting = Promise.withResolvers<LargeBodyRead>();
    this.#waiting.set(id, waiting);
    const bytes = movable(given);
    worker.postMessage({ id, kind, bytes, options } satisfies LargeBody, [bytes]);
    const read = await waiting.promise;
    // Taking the answer over was a piece of work, and what the request asks for is another.
    await nextTurn();
    if ('refusal' in read) throw new Fault(read.refusal.code, read.refusal.options);
    const value = read.value as ReturnType<Readers[Kind]>; // by the same reader, on the thread
    return { body: Buffer.from(read.bytes), value };
  }

  #start(): Worker {
    const worker = new Worker(siblingUrl(import.meta.url, 'large-bodies-worker'));
    worker.unref();
    worker.on('message', (read: LargeBodyRead) => {
      this.#waiting.get(read.id)?.resolve(read);
      this.#waiting.delete(read.id);
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

type WithoutBytes = { readonly source: Omit<ParsedObject, 'bytes'> };

function withBytes<T extends WithoutBytes>({ body, value }: { body: Buffer; value: T }) {
  return { ...value, source: { ...value.source, bytes: body } };
}

/** The memory of a buffer when nothing else is in it, or a copy. */
function movable(bytes: Buffer): ArrayBuffer {
  const { buffer } = bytes;
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length;
  return isAlone ? buffer : new Uint8Array(bytes).buffer;
}
