/**
 * Runs one batch from its current state to its end: validates the input file, runs each line once, and
 * creates the result files.
 *
 * The result of a line is stored in the transaction that charges it, so that a worker after a crash
 * runs exactly the lines without a result. Two processes that run the same batch may run a line twice,
 * but it is charged once.
 */
import type { BatchesSection } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { nextTurn } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { JobQueue } from '../core/job-queue.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Queryable, Store } from '../db/db.ts';
import type { DeliverResponse } from '../http/request-context.ts';
import type { Batch, BatchEnd } from './batch.ts';
import type { BatchTable, ResultFile } from './batch-table.ts';
import { type BatchUse, NO_USE, sumOfUses, useOf } from './batch-use.ts';
import { ERROR_PART, type FileTable, OUTPUT_PART, type Piece, addPieces } from './file-table.ts';
import {
  type Endpoint,
  LineChecks,
  type LineRequest,
  linesOf,
  pathOf,
  requestOf,
} from './lines.ts';
import { LINE_ERRORS, type LineError, errorLine, responseLine, storedLine } from './results.ts';

/** Input of `BatchHost.call`. */
export interface LineCall {
  readonly batch: Batch;
  /** Path below the base path. */
  readonly path: string;
  readonly body: Buffer;
  /** Stores the response, in the transaction that charges it. */
  readonly deliver: DeliverResponse;
}

export interface LineResponse {
  readonly status: number;
  readonly requestId: string;
  /** Whether the same request can succeed later. */
  readonly canRetry: boolean;
  /** Whether the engine is unavailable or busy. */
  readonly isUnavailable: boolean;
  readonly body: Buffer;
}

/** Functions of the server that batches use. */
export interface BatchHost {
  /** The endpoint of a path; `undefined` if it cannot be used in batches. */
  readonly endpoint: (path: string) => Endpoint | undefined;
  /** Whether engines are still starting, so that an unknown model may become available. */
  readonly isStarting: () => boolean;
  /** Whether an engine of the model has spare capacity; `true` for a model without engines. */
  readonly hasCapacity: (path: string, model: string) => boolean;
  /** Runs a request as the caller of the batch, at the price of batches. */
  readonly call: (call: LineCall) => Promise<LineResponse>;
  /** Whether the server is closing, so that no further line starts. */
  readonly isClosing: () => boolean;
  /** Called for each stored line of a result. */
  readonly ran: (result: LineResult) => void;
}

/** `completed`: in the output file; `failed`: in the error file. */
export type LineResult = 'completed' | 'failed';

export interface RunParts {
  readonly store: Store;
  readonly files: FileTable;
  readonly batches: BatchTable;
  readonly settings: BatchesSection;
  readonly host: BatchHost;
  /** Queue of the lines of all batches of this process, in which accounts take turns. */
  readonly lines: JobQueue;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export const LEASE_MS = 30 * SECOND_MS;
/** Lines of a batch in memory. */
export const MAX_PENDING = 32;
/** Limit of their total size, unless there is only one. */
const MAX_PENDING_BYTES = 16_000_000;
const MAX_PROBLEMS = 100;
/** Attempts of a line that fails at an engine; an unavailable or busy engine is retried without limit. */
const MAX_ATTEMPTS = 3;
const MAX_PAUSE_MS = 30 * SECOND_MS;
/** Interval of checks for spare capacity. */
const CAPACITY_POLL_MS = SECOND_MS / 4;
const STARTING_MS = 2 * SECOND_MS;
/** Pause of a batch after an unexpected error. */
const LATER_MS = 5 * SECOND_MS;
/** Time of a validation before it yields to the event loop. */
const SLICE_MS = 5;
const FILLED_AT_ONCE = 100;
const MB = 1_000_000;

/** Reason to stop a run. `lost`: another process has the lease; `pause`: back to the queue. */
type Stop = 'expired' | 'cancelled' | 'lost' | 'pause';

export class BatchRun {
  readonly #parts: RunParts;
  readonly #batch: Batch;
  readonly #path: string;
  readonly #aborter = new AbortController();
  readonly #pending = new Set<Promise<void>>();
  #pendingBytes = 0;
  #stop: Stop | undefined;
  #pauseMs = 0;
  #isChecking = false;
  #isExpired = false;
  /** Whether all lines are valid requests. */
  #isValid: boolean;
  #completed = 0;
  #failed = 0;
  #resultBytes = 0;
  #use = NO_USE;
  /** Bytes that the account stores besides the result of this batch. */
  #otherBytes = 0;

  constructor(parts: RunParts, batch: Batch) {
    this.#parts = parts;
    this.#batch = batch;
    this.#path = pathOf(batch.endpoint);
    this.#isValid = batch.inProgressMs > 0;
  }

  /** Resolves when the batch has ended or was released. Rejects if the database is unreachable. */
  async run(): Promise<void> {
    try {
      await this.#work();
    } finally {
      this.#aborter.abort();
    }
  }

  /** Starts no further line, and releases the batch when its running lines have ended. */
  pause(): void {
    this.#end('pause');
  }

  get isStopping(): boolean {
    return this.#stop !== undefined;
  }

  /** Renews the lease, stores the progress, and stops the run if the batch was cancelled or has expired. */
  async checkLease(): Promise<void> {
    // Checks must not pile up on a slow database.
    if (this.#isChecking) return;
    this.#isChecking = true;
    const { batches, files, log } = this.#parts;
    const { id, accountId } = this.#batch;
    try {
      const renewed = await batches.renew(id, {
        completed: this.#completed,
        failed: this.#failed,
        resultBytes: this.#resultBytes,
        use: this.#use,
      });
      if (renewed === undefined) return this.#end('lost');
      this.#isExpired = renewed.isExpired;
      if (renewed.state === 'cancelling') return this.#end('cancelled');
      const { callerBytes } = await batches.resultBytes(accountId);
      this.#otherBytes = callerBytes - this.#resultBytes + (await files.storedBytes(accountId));
    } catch (error) {
      // The lease expires, and another worker continues.
      log.debug({ batch: id, reason: reasonOf(error) }, 'The lease of a batch was not renewed');
    } finally {
      this.#isChecking = false;
    }
  }

  #end(stop: Stop): void {
    this.#stop ??= stop;
    this.#aborter.abort();
  }

  #stopped(): Stop | undefined {
    if (this.#stop !== undefined) return this.#stop;
    if (this.#parts.host.isClosing()) return 'pause';
    return this.#isExpired ? 'expired' : undefined;
  }

  async #work(): Promise<void> {
    const { batches, clock } = this.#parts;
    const { id, state } = this.#batch;
    if (state === 'cancelling') this.#stop = 'cancelled';
    if (state === 'validating' && !(await this.#validate())) return;
    if (state === 'finalizing') return await this.#finish('completed');
    await this.#count();
    await this.checkLease();
    await this.#runLines();
    const stopped = this.#stopped();
    switch (stopped) {
      case 'lost':
        return;
      case 'pause':
        return await batches.rest(id, this.#pauseMs);
      case 'expired':
      case 'cancelled':
        await this.#fill(LINE_ERRORS[stopped]);
        return await this.#finish(stopped);
      case undefined:
        if (await batches.finalizing(id, clock.nowMs())) return await this.#finish('completed');
        // The batch was cancelled just now, or the lease was lost; the next run finds out.
        return await batches.rest(id);
    }
  }

  async #validate(): Promise<boolean> {
    const { batches, host, settings, clock, log } = this.#parts;
    const { id } = this.#batch;
    const endpoint = host.endpoint(this.#path);
    if (host.isStarting()) {
      await batches.rest(id, STARTING_MS);
      return false;
    }
    if (endpoint === undefined) {
      const message = `The endpoint "${this.#batch.endpoint}" can no longer be used in batches`;
      const problem = { code: 'invalid_endpoint', message, param: 'endpoint', line: null };
      await batches.rejected(id, [problem], clock.nowMs());
      return false;
    }
    const bounds = { maxRequests: settings.maxRequests, maxProblems: MAX_PROBLEMS };
    const checks = new LineChecks(endpoint, bounds);
    let sliceEndMs = clock.monotonicMs() + SLICE_MS;
    for await (const line of this.#lines()) {
      if (this.#stop !== undefined || !checks.add(line)) break;
      if (clock.monotonicMs() < sliceEndMs) continue;
      await nextTurn();
      sliceEndMs = clock.monotonicMs() + SLICE_MS;
    }
    if (this.#stop === 'cancelled') return true;
    if (this.#stop !== undefined) {
      await batches.rest(id);
      return false;
    }
    checks.end();
    if (checks.problems.length > 0) {
      await batches.rejected(id, checks.problems, clock.nowMs());
      return false;
    }
    const isStarted = await batches.started(id, checks.total, clock.nowMs());
    this.#isValid = isStarted;
    if (isStarted) log.info({ batch: id, requests: checks.total }, 'A batch was started');
    // The batch was cancelled meanwhile, or the lease was lost.
    else await batches.rest(id);
    return isStarted;
  }

  #lines() {
    // The content of an upload has the id of the file.
    return linesOf(this.#parts.files.read(this.#batch.inputFileId, 0));
  }

  async #count(): Promise<void> {
    const { files } = this.#parts;
    const { id } = this.#batch;
    const output = await files.sumOf(id, OUTPUT_PART);
    const errors = await files.sumOf(id, ERROR_PART);
    this.#completed = output.lines;
    this.#failed = errors.lines;
    this.#resultBytes = output.sizeBytes + errors.sizeBytes;
    this.#use = sumOfUses(output.use, errors.use);
  }

  /** Runs every line without a result; resolves when all started lines have ended. */
  async #runLines(): Promise<void> {
    const done = await this.#parts.files.linesOf(this.#batch.id);
    try {
      for await (const line of this.#lines()) {
        if (this.#stopped() !== undefined) break;
        if (done.has(line.number)) continue;
        const request = requestOf(line);
        while (!this.#canStart(request)) await Promise.race(this.#pending);
        this.#start(request);
      }
    } finally {
      await Promise.all(this.#pending);
    }
  }

  #canStart({ body }: LineRequest): boolean {
    if (this.#pending.size === 0) return true;
    const bytes = this.#pendingBytes + body.length;
    return this.#pending.size < MAX_PENDING && bytes <= MAX_PENDING_BYTES;
  }

  #start(request: LineRequest): void {
    this.#pendingBytes += request.body.length;
    const running = this.#runLine(request)
      .catch((error: unknown) => {
        // The database is unreachable, or a bug: pause the batch, and run the line again later.
        const fields = { batch: this.#batch.id, line: request.number, reason: reasonOf(error) };
        this.#parts.log.warn(fields, 'A request of a batch could not be run');
        this.#pauseMs = LATER_MS;
        this.#end('pause');
      })
      .finally(() => {
        this.#pending.delete(running);
        this.#pendingBytes -= request.body.length;
      });
    this.#pending.add(running);
  }

  async #runLine(request: LineRequest): Promise<void> {
    const { files } = this.#parts;
    const { id } = this.#batch;
    for (let attempt = 1; ; attempt += 1) {
      const failed = await this.#runWithCapacity(request);
      if (failed === undefined) return;
      if (!failed.canRetry || (attempt >= MAX_ATTEMPTS && !failed.isUnavailable)) {
        return await this.#record(request, (id) => responseLine(id, request.customId, failed));
      }
      await this.#pause(Math.min(2 ** attempt * SECOND_MS, MAX_PAUSE_MS));
      if (this.#stopped() !== undefined) return;
      // The response was lost, or another process has run the line.
      if (await files.hasLine(id, request.number)) return await this.#count();
    }
  }

  /** The error response of a line; `undefined` if it has a result, or if the run was stopped. */
  async #runWithCapacity(request: LineRequest): Promise<LineResponse | undefined> {
    const { host, lines } = this.#parts;
    for (;;) {
      if (this.#stopped() !== undefined) return undefined;
      if (host.hasCapacity(this.#path, request.model)) {
        const run = async () => {
          if (this.#stopped() !== undefined) return undefined;
          // Interactive callers may have used the capacity while this line waited for its turn.
          if (!host.hasCapacity(this.#path, request.model)) return BUSY;
          return await this.#call(request);
        };
        const { signal } = this.#aborter;
        try {
          const response = await lines.run(run, signal, this.#batch.accountId);
          if (response !== BUSY) return response;
        } catch (error) {
          // The run was stopped while the line waited for its turn.
          if (error === signal.reason) return undefined;
          throw error;
        }
      }
      await this.#pause(CAPACITY_POLL_MS);
    }
  }

  async #call(request: LineRequest): Promise<LineResponse | undefined> {
    const { host, settings } = this.#parts;
    const { number: seq, customId, body } = request;
    if (this.#otherBytes + this.#resultBytes > settings.maxStoredMbPerCaller * MB) {
      await this.#record(request, (id) => errorLine(id, customId, LINE_ERRORS.storageFull));
      return undefined;
    }
    let delivered: Piece | undefined;
    const deliver: DeliverResponse = async (tx, response, { settled, outcome }) => {
      const lineId = this.#lineId();
      const line = storedLine(lineId, customId, response);
      const piece = {
        contentId: this.#batch.id,
        seq,
        part: line === undefined ? ERROR_PART : OUTPUT_PART,
        body: line ?? errorLine(lineId, customId, LINE_ERRORS.tooLarge),
        use: useOf(settled, outcome.tokens),
      };
      // Another process has run the line: this response is not charged.
      if ((await this.#writeIn(tx, [piece])) === 0) throw new Fault('REQUEST_IN_PROGRESS');
      delivered = piece;
    };
    const response = await host.call({ batch: this.#batch, path: this.#path, body, deliver });
    if (response.status !== OK) return response;
    if (delivered === undefined) throw new Error('A request of a batch was not charged');
    this.#add(delivered);
    return undefined;
  }

  #lineId(): string {
    return `batch_req_${this.#parts.ids.hex(12)}`;
  }

  /** Stores the line of a request without a successful response. */
  async #record(request: LineRequest, lineOf: (lineId: string) => Buffer): Promise<void> {
    const body = lineOf(this.#lineId());
    const piece = { contentId: this.#batch.id, seq: request.number, part: ERROR_PART, body };
    if ((await this.#write([piece])) > 0) this.#add(piece);
  }

  /** Adds lines without a result to an open batch; returns their number. */
  async #write(pieces: readonly Piece[]): Promise<number> {
    const { store } = this.#parts;
    return await store.transaction((tx) => this.#writeIn(tx, pieces));
  }

  async #writeIn(tx: Queryable, pieces: readonly Piece[]): Promise<number> {
    const isOpen = await this.#parts.batches.isOpen(tx, this.#batch.id);
    return isOpen ? await addPieces(tx, pieces) : 0;
  }

  #add({ part, body, use = NO_USE }: Piece): void {
    const isOutput = part === OUTPUT_PART;
    if (isOutput) this.#completed += 1;
    else this.#failed += 1;
    this.#resultBytes += body.length;
    this.#use = sumOfUses(this.#use, use);
    this.#parts.host.ran(isOutput ? 'completed' : 'failed');
  }

  async #pause(ms: number): Promise<void> {
    // `#stopped` returns the reason of an abort.
    await this.#parts.clock.sleep(ms, this.#aborter.signal).catch(() => undefined);
  }

  async #fill(error: LineError): Promise<void> {
    const { files } = this.#parts;
    const { id } = this.#batch;
    if (!this.#isValid) return;
    const done = await files.linesOf(id);
    let pieces: Piece[] = [];
    for await (const line of this.#lines()) {
      if (done.has(line.number)) continue;
      const { customId } = requestOf(line);
      const body = errorLine(this.#lineId(), customId, error);
      pieces.push({ contentId: id, seq: line.number, part: ERROR_PART, body });
      if (pieces.length < FILLED_AT_ONCE) continue;
      await this.#write(pieces);
      pieces = [];
    }
    if (pieces.length > 0) await this.#write(pieces);
  }

  async #finish(end: BatchEnd): Promise<void> {
    const { store, files, batches, clock, ids, log } = this.#parts;
    const { id, accountId, keepMs } = this.#batch;
    const nowMs = clock.nowMs();
    const results = [
      { part: OUTPUT_PART, name: `${id}_output.jsonl`, fileId: `file-${ids.hex(12)}` },
      { part: ERROR_PART, name: `${id}_error.jsonl`, fileId: `file-${ids.hex(12)}` },
    ];
    const isEnded = await store.transaction(async (tx) => {
      // From now on no process can add a line.
      if (!(await batches.ended(tx, id, end, nowMs))) return false;
      const resultFiles: ResultFile[] = [];
      let total: BatchUse = NO_USE;
      for (const { part, name, fileId } of results) {
        const { lines, sizeBytes, use } = await files.sumOf(id, part, tx);
        total = sumOfUses(total, use);
        resultFiles.push({ fileId: lines === 0 ? '' : fileId, lines });
        if (lines === 0) continue;
        const times = { createdMs: nowMs, expiresMs: nowMs + keepMs };
        const facts = { accountId, contentId: id, part, name, purpose: 'batch_output', sizeBytes };
        await files.publish(tx, { id: fileId, ...facts, ...times });
      }
      await batches.result(tx, id, resultFiles, total);
      return true;
    });
    if (!isEnded) return;
    log.info({ batch: id, status: end }, 'A batch has ended');
  }
}

const OK = 200;
const BUSY = 'busy';
