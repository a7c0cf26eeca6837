/**
 * Reads of very many rows, such as a year of usage by the tags of its requests, on a thread of their own:
 * they take seconds, in which the event loop would serve nobody else. What is read was committed.
 *
 * One read runs at a time, and callers take turns: whoever asks for many waits for each of them, and
 * another for one of each. What would wait behind too many is refused.
 *
 * The thread starts with the first read and ends after a minute without one. Where there is none, the
 * store itself reads.
 */
import { Worker } from 'node:worker_threads';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { FairQueue } from '../../core/fair-queue.ts';
import { siblingUrl } from '../../core/sibling.ts';
import type { Parameter, Queryable, Row } from '../contract.ts';
import { StoreUnavailable } from '../failures.ts';

export interface ReadQuestion {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
}

/** `undefined`: it failed. */
export type ReadAnswer = readonly Row[] | undefined;

/** Reads that wait for their turn, of one caller and in all. */
const MAX_WAITING_OF_CALLER = 16;
const MAX_WAITING = 256;

interface Reading {
  readonly question: ReadQuestion;
  readonly answer: (rows: ReadAnswer) => void;
}

export class ReadThread {
  readonly #path: string;
  readonly #store: Queryable;
  readonly #clock: Clock;
  readonly #waiting = new FairQueue<Reading>();
  #reading: Reading | undefined;
  #worker: Worker | undefined;
  #wasAsked = false;
  #isClosed = false;

  constructor(path: string, store: Queryable, clock: Clock) {
    this.#path = path;
    this.#store = store;
    this.#clock = clock;
  }

  /** Reads in the turns of a caller. Rejects with `StoreUnavailable` when too many wait. */
  of(caller: string): Queryable {
    return {
      query: async <R>(sql: string, parameters: readonly Parameter[] = []) => {
        const answer = this.#isClosed ? undefined : await this.#ask(caller, { sql, parameters });
        // It says what is wrong, in the store's words.
        if (answer === undefined) return this.#store.query<R>(sql, parameters);
        return answer.map(withBuffers) as unknown as R[]; // the caller names its row
      },
      run: (statements) => this.#store.run(statements),
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end();
  }

  /** `undefined` as well when the thread has ended before it answered. */
  #ask(caller: string, question: ReadQuestion): Promise<ReadAnswer> {
    const { promise, resolve: answer } = Promise.withResolvers<ReadAnswer>();
    const reading = { question, answer };
    if (this.#reading === undefined) this.#begin(reading);
    else if (
      this.#waiting.size >= MAX_WAITING ||
      this.#waiting.sizeOf(caller) >= MAX_WAITING_OF_CALLER
    ) {
      throw new StoreUnavailable('Too many overviews wait to be read');
    } else this.#waiting.add(caller, reading);
    return promise;
  }

  #begin(reading: Reading): void {
    this.#reading = reading;
    this.#wasAsked = true;
    const worker = (this.#worker ??= this.#start());
    worker.ref();
    worker.postMessage(reading.question);
  }

  #answered(rows: ReadAnswer): void {
    const reading = this.#reading;
    this.#reading = undefined;
    const next = this.#waiting.next();
    if (next === undefined) this.#worker?.unref();
    else this.#begin(next);
    reading?.answer(rows);
  }

  #start(): Worker {
    const url = siblingUrl(import.meta.url, './read-worker');
    const worker = new Worker(url, { workerData: this.#path });
    worker.on('message', (answer: ReadAnswer) => this.#answered(answer));
    // A file could not be opened, where a process has too many: the exit follows.
    worker.on('error', () => undefined);
    const stopLooking = this.#clock.every(MINUTE_MS, () => {
      if (!this.#wasAsked && this.#reading === undefined) void this.#end();
      this.#wasAsked = false;
    });
    worker.once('exit', () => {
      stopLooking();
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      // What waits is read by another thread: it was not to blame.
      this.#answered(undefined);
    });
    return worker;
  }

  async #end(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    this.#reading?.answer(undefined);
    this.#reading = undefined;
    for (let one = this.#waiting.next(); one !== undefined; one = this.#waiting.next()) {
      one.answer(undefined);
    }
    await worker?.terminate();
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
