/**
 * Runs large reads, such as a year of usage by tags, in a child process: they take seconds and
 * would block the event loop. Results are committed data.
 *
 * One read runs at a time, in turns by caller. A read that exceeds its time limit is ended by
 * killing the process, since a running SQLite statement cannot be interrupted otherwise.
 *
 * The process starts with the first read and ends after a minute without one.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { compileCache } from '../../core/compile-cache.ts';
import { siblingUrl } from '../../core/sibling.ts';
import type { Parameter, Queryable, Row } from '../contract.ts';
import { ReadTooLong, StoreUnavailable } from '../failures.ts';
import { MAX_READ_MS, lineOf, readTurns } from '../read-turns.ts';

export interface ReadRequest {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
}

const CLOSED = 'The store is closed';

export type ReadResult = readonly Row[] | undefined;

export class OverviewReader {
  readonly #path: string;
  readonly #store: Queryable;
  readonly #clock: Clock;
  readonly #turns = readTurns(1);
  #reading: PromiseWithResolvers<ReadResult> | undefined;
  #child: ChildProcess | undefined;
  #wasUsed = false;
  #isClosed = false;

  constructor(path: string, store: Queryable, clock: Clock) {
    this.#path = path;
    this.#store = store;
    this.#clock = clock;
  }

  /** Returns a reader in turns by caller. Rejects with `ReadTooLong` or `StoreUnavailable`. */
  of(caller: string): Queryable {
    return {
      query: <R>(sql: string, parameters: readonly Parameter[] = []) => {
        const read = async (): Promise<readonly R[]> => {
          if (this.#isClosed) throw new StoreUnavailable(CLOSED);
          const rows = await this.#read({ sql, parameters });
          // The store reports the error.
          if (rows === undefined) return await this.#store.query<R>(sql, parameters);
          return rows as unknown as R[]; // the caller names its row
        };
        return this.#turns.run(read, undefined, lineOf(caller));
      },
      run: (statements) => this.#store.run(statements),
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#reading?.reject(new StoreUnavailable(CLOSED));
    await this.#end();
  }

  async #read(request: ReadRequest): Promise<ReadResult> {
    const reading = Promise.withResolvers<ReadResult>();
    const child = (this.#child ??= this.#start());
    this.#reading = reading;
    this.#wasUsed = true;
    const cancel = this.#clock.after(MAX_READ_MS, () => {
      reading.reject(new ReadTooLong(MAX_READ_MS));
      void this.#end();
    });
    child.ref();
    child.channel?.ref();
    // A process that has exited, or could not be started, has no channel; its event is handled separately.
    if (child.connected) child.send(request, () => undefined);
    try {
      return await reading.promise;
    } finally {
      cancel();
      this.#reading = undefined;
      child.unref();
      child.channel?.unref();
    }
  }

  #start(): ChildProcess {
    const child = fork(siblingUrl(import.meta.url, './overview-process'), [this.#path], {
      env: compileCache(),
      // The process ends when this pipe closes, also during a read.
      stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
      // Transfers 64-bit integers and bytes unchanged.
      serialization: 'advanced',
    });
    child.on('message', (rows) => {
      if (this.#child !== child) return;
      this.#reading?.resolve((rows ?? undefined) as ReadResult); // it sends no other message
    });
    const stopChecking = this.#clock.every(MINUTE_MS, () => {
      if (!this.#wasUsed && this.#reading === undefined) void this.#end();
      this.#wasUsed = false;
    });
    const ended = (): void => {
      stopChecking();
      if (this.#child !== child) return;
      this.#child = undefined;
      // The read is not repeated here, because it may have crashed the process.
      this.#reading?.reject(new StoreUnavailable('The child process for overview reads has ended'));
    };
    child.once('exit', ended);
    // A process that failed to start has no exit event.
    child.on('error', ended);
    return child;
  }

  async #end(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // Between two reads the child does not keep this process alive, which would end before the store.
    child.ref();
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }
}
