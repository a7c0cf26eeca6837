/**
 * Parses large JSON bodies in a worker thread, because tens of megabytes would block the event loop for
 * tenths of a second. Bodies are parsed one at a time, in turns of callers. Results and errors equal those of
 * small bodies.
 *
 * Bytes are transferred to the thread and back without a copy. The thread starts with the first large body
 * and ends after a minute without one.
 */
import type { ParsedObject } from '../json/json-scan.ts';
import { Worker } from 'node:worker_threads';
import type { ChatRequest, ChatRequestOptions } from '../chat/wire/chat-request.ts';
import { FairQueue } from '../core/fair-queue.ts';
import { Fault } from '../core/faults.ts';
import { siblingUrl } from '../core/sibling.ts';
import { nextTurn } from '../core/event-loop.ts';
import type { EmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import type { ScannedBody } from '../json/json-spans.ts';
import type { LargeBody, LargeBodyRead, Readers } from './large-bodies-worker.ts';

const ENDED = 'The thread of large bodies ended';

interface Reading extends PromiseWithResolvers<LargeBodyRead> {
  readonly kind: keyof Readers;
  readonly given: Buffer;
  readonly options: unknown;
}

/** `caller` is the account whose turn the body uses. */
export class LargeBodies {
  #worker: Worker | undefined;
  #reading: Reading | undefined;
  /** Bounded by the number of running requests and the memory of their bodies. */
  readonly #waiting = new FairQueue<Reading>();
  #bodies = 0;
  #bodiesAtRest = 0;

  /** As `parseChatRequest`. */
  async chat(bytes: Buffer, caller: string, options: ChatRequestOptions): Promise<ChatRequest> {
    return withBytes(await this.#read('chat', bytes, caller, options));
  }

  /** As `parseEmbeddingsRequest`. */
  async embeddings(bytes: Buffer, caller: string): Promise<EmbeddingsRequest> {
    return withBytes(await this.#read('embeddings', bytes, caller, undefined));
  }

  /** As `scanRequest`. */
  async rpc(bytes: Buffer, caller: string, maxItems: number): Promise<ScannedBody> {
    const { body, value: scanned } = await this.#read('rpc', bytes, caller, maxItems);
    return { body, scanned };
  }

  /** As `parseJsonBody`. */
  async json(bytes: Buffer, caller: string): Promise<unknown> {
    return (await this.#read('json', bytes, caller, undefined)).value;
  }

  /** Called once a minute: ends a thread that had no work since the last call. */
  async rest(): Promise<void> {
    const isIdle = this.#bodies === this.#bodiesAtRest && this.#reading === undefined;
    this.#bodiesAtRest = this.#bodies;
    if (isIdle) await this.close();
  }

  /** Rejects waiting bodies. */
  async close(): Promise<void> {
    const worker = this.#worker;
    if (worker === undefined) return;
    // A body that arrives from now on starts another thread.
    this.#worker = undefined;
    const reason = new Error(ENDED);
    this.#reading?.reject(reason);
    this.#reading = undefined;
    for (let one = this.#waiting.next(); one !== undefined; one = this.#waiting.next()) {
      one.reject(reason);
    }
    await worker.terminate();
  }

  async #read<Kind extends keyof Readers>(
    kind: Kind,
    given: Buffer,
    caller: string,
    options: Parameters<Readers[Kind]>[1],
  ): Promise<{ readonly body: Buffer; readonly value: ReturnType<Readers[Kind]> }> {
    this.#bodies += 1;
    const reading = { kind, given, options, ...Promise.withResolvers<LargeBodyRead>() };
    if (this.#reading === undefined) this.#begin(reading);
    else this.#waiting.add(caller, reading);
    const read = await reading.promise;
    // Deserializing the result was one piece of work; the request continues in the next turn.
    await nextTurn();
    if ('fault' in read) throw new Fault(read.fault.code, read.fault.options);
    const value = read.value as ReturnType<Readers[Kind]>; // parsed by this reader in the thread
    return { body: Buffer.from(read.bytes), value };
  }

  #begin(reading: Reading): void {
    this.#reading = reading;
    try {
      const worker = (this.#worker ??= this.#start());
      const { kind, given, options } = reading;
      const bytes = movable(given);
      worker.postMessage({ kind, bytes, options } satisfies LargeBody, [bytes]);
    } catch (error) {
      // No thread could be created, for example because the process has too many. The next may succeed.
      this.#done((one) => one.reject(error));
    }
  }

  #start(): Worker {
    const worker = new Worker(siblingUrl(import.meta.url, 'large-bodies-worker'));
    worker.unref();
    worker.on('message', (read: LargeBodyRead) => {
      if (this.#worker === worker) this.#done((reading) => reading.resolve(read));
    });
    worker.on('error', (error: Error) => this.#ended(worker, error));
    worker.on('exit', () => this.#ended(worker, new Error(ENDED)));
    return worker;
  }

  #ended(worker: Worker, reason: Error): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    // Another thread parses the waiting bodies, which did not cause the error.
    this.#done((reading) => reading.reject(reason));
  }

  #done(end: (reading: Reading) => void): void {
    const reading = this.#reading;
    this.#reading = undefined;
    const next = this.#waiting.next();
    if (next !== undefined) this.#begin(next);
    if (reading !== undefined) end(reading);
  }
}

type WithoutBytes = { readonly source: Omit<ParsedObject, 'bytes'> };

function withBytes<T extends WithoutBytes>({ body, value }: { body: Buffer; value: T }) {
  return { ...value, source: { ...value.source, bytes: body } };
}

/** Returns the memory of a buffer, or a copy if the memory contains other data. */
function movable(bytes: Buffer): ArrayBuffer {
  const { buffer } = bytes;
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length;
  return isAlone ? buffer : new Uint8Array(bytes).buffer;
}
