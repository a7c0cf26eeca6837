/**
 * Reads of very many rows, such as a year of usage by the tags of its requests, on a thread of their own:
 * they take seconds, in which the event loop would serve nobody else. What is read was committed.
 *
 * The thread starts with the first read and ends after a minute without one. Where there is none, the
 * store itself reads.
 */
import { Worker } from 'node:worker_threads';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { siblingUrl } from '../../core/sibling.ts';
import type { Parameter, Queryable, Row, Statement } from '../contract.ts';

export interface ReadQuestion {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
}

/** `undefined`: it failed. */
export type ReadAnswer = readonly Row[] | undefined;

/** A thread with the reads that it was sent, in the order in which it answers them. */
interface Thread {
  readonly worker: Worker;
  readonly asked: PromiseWithResolvers<ReadAnswer>[];
  wasAsked: boolean;
}

export class ReadThread implements Queryable {
  readonly #path: string;
  readonly #store: Queryable;
  readonly #clock: Clock;
  #thread: Thread | undefined;
  #isClosed = false;

  constructor(path: string, store: Queryable, clock: Clock) {
    this.#path = path;
    this.#store = store;
    this.#clock = clock;
  }

  async query<R>(sql: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    const answer = this.#isClosed ? undefined : await this.#ask({ sql, parameters });
    // It says what is wrong, in the store's words.
    if (answer === undefined) return this.#store.query<R>(sql, parameters);
    return answer.map(withBuffers) as unknown as R[]; // the caller names its row
  }

  run(statements: readonly Statement[]): Promise<void> {
    return this.#store.run(statements);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end();
  }

  /** `undefined` as well when the thread has ended before it answered. */
  #ask(question: ReadQuestion): Promise<ReadAnswer> {
    const thread = (this.#thread ??= this.#start());
    const asked = Promise.withResolvers<ReadAnswer>();
    thread.asked.push(asked);
    thread.wasAsked = true;
    thread.worker.ref();
    thread.worker.postMessage(question);
    return asked.promise;
  }

  #start(): Thread {
    const url = siblingUrl(import.meta.url, './read-worker');
    const thread: Thread = {
      worker: new Worker(url, { workerData: this.#path }),
      asked: [],
      wasAsked: true,
    };
    const { worker, asked } = thread;
    worker.on('message', (answer: ReadAnswer) => {
      asked.shift()?.resolve(answer);
      if (asked.length === 0) worker.unref();
    });
    // A file could not be opened, where a process has too many: the exit follows.
    worker.on('error', () => undefined);
    const stopLooking = this.#clock.every(MINUTE_MS, () => {
      if (!thread.wasAsked && asked.length === 0) void this.#end();
      thread.wasAsked = false;
    });
    worker.once('exit', () => {
      stopLooking();
      if (this.#thread === thread) this.#thread = undefined;
      for (const { resolve } of asked) resolve(undefined);
    });
    return thread;
  }

  async #end(): Promise<void> {
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.worker.terminate();
  }
}

/** Bytes come over as plain arrays. */
function withBuffers(row: Row): Row {
  for (const value of Object.values(row)) {
    if (value instanceof Uint8Array) return Object.fromEntries(Object.entries(row).map(asBuffer));
  }
  return row;
}

function asBuffer([name, value]: [string, Row[string]]): [string, Row[string]] {
  if (!(value instanceof Uint8Array)) return [name, value];
  return [name, Buffer.from(value.buffer, value.byteOffset, value.byteLength)];
}
