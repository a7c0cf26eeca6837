/**
 * One batch in the hands of its worker, from wherever it is to its end: its file is checked, each of
 * its lines runs once, and its result becomes files.
 *
 * A line has run when it has a line in the result, which is written in the transaction that charges
 * it: whoever takes the batch up, after whatever crash, runs those that have none. Two processes that
 * both think that they have the batch can run a line twice, and sell it once.
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
import type { BatchTable, Made } from './batch-table.ts';
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
import { LINE_ERRORS, type LineError, answeredLine, keptLine, unansweredLine } from './results.ts';

/** One request of a batch on its way. */
export interface LineCall {
  readonly batch: Batch;
  /** Below the base path. */
  readonly path: string;
  readonly body: Buffer;
  /** Takes the answer over in the transaction that charges it. */
  readonly deliver: DeliverResponse;
}

export interface LineResponse {
  readonly status: number;
  readonly requestId: string;
  /** Whether the same request can succeed later. */
  readonly canRetry: boolean;
  readonly body: Buffer;
}

/** What batches ask of the server around them. */
export interface BatchHost {
  /** What a path sells in batches; `undefined` for one that is not there. */
  readonly endpoint: (path: string) => Endpoint | undefined;
  /** Engines are starting: a model that is not known may be there in a moment. */
  readonly isStarting: () => boolean;
  /** Whether an engine of the model has room to spare; true for one that nobody serves. */
  readonly hasRoom: (path: string, model: string) => boolean;
  /** Runs a request as its caller would, at the price of batches. */
  readonly call: (call: LineCall) => Promise<LineResponse>;
  /** No further line is begun. */
  readonly isClosing: () => boolean;
  /** Told of each line of a result that was written. */
  readonly ran: (result: LineResult) => void;
}

/** Whether a line is in the output, or in the error file. */
export type LineResult = 'completed' | 'failed';

export interface RunParts {
  readonly store: Store;
  readonly files: FileTable;
  readonly batches: BatchTable;
  readonly settings: BatchesSection;
  readonly host: BatchHost;
  /** The lines of all batches of this process, in turns over their callers. */
  readonly lines: JobQueue;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export const LEASE_MS = 30 * SECOND_MS;
/** Lines of a batch that wait or run; the rest of them are in the file. */
export const MAX_PENDING = 32;
/** Their bytes, unless there is only one. */
const MAX_PENDING_BYTES = 16_000_000;
const MAX_PROBLEMS = 100;
/** Tries of a line that an engine fails at; one that is away or full is waited for. */
const MAX_ATTEMPTS = 3;
const MAX_PAUSE_MS = 30 * SECOND_MS;
/** How often an engine without room is looked at again. */
const ROOM_POLL_MS = SECOND_MS / 4;
const STARTING_MS = 2 * SECOND_MS;
/** How long a batch rests after an unexpected error. */
const LATER_MS = 5 * SECOND_MS;
/** Time of a check before others have a turn of the event loop. */
const SLICE_MS = 5;
const FILLED_AT_ONCE = 100;
const MB = 1_000_000;

/**
 * Why a batch is not worked on any further: its time is over, its caller ended it, another process has
 * it, or it goes back into the queue.
 */
type Stop = 'expired' | 'cancelled' | 'lost' | 'rest';

export class BatchRun {
  readonly #parts: RunParts;
  readonly #batch: Batch;
  readonly #path: string;
  readonly #aborter = new AbortController();
  readonly #pending = new Set<Promise<void>>();
  #pendingBytes = 0;
  #stop: Stop | undefined;
  #restMs = 0;
  #isLooking = false;
  /** Its lines are in order, and can be read as requests. */
  #isChecked: boolean;
  #completed = 0;
  #failed = 0;
  #resultBytes = 0;
  #use = NO_USE;
  /** What the account stores beside the result of this batch. */
  #besideBytes = 0;

  constructor(parts: RunParts, batch: Batch) {
    this.#parts = parts;
    this.#batch = batch;
    this.#path = pathOf(batch.endpoint);
    this.#isChecked = batch.inProgressMs > 0;
  }

  /** Works on the batch until it has ended, or is another's. Rejects when the database is away. */
  async run(): Promise<void> {
    try {
      await this.#work();
    } finally {
      this.#aborter.abort();
    }
  }

  /** Starts no further line and gives the batch back. */
  rest(): void {
    this.#end('rest');
  }

  /** Keeps the lease, says how far the batch is, and hears whether it is to end. */
  async look(): Promise<void> {
    // A slow database must not gather looks.
    if (this.#isLooking) return;
    this.#isLooking = true;
    const { batches, files, clock, log } = this.#parts;
    const { id, accountId } = this.#batch;
    try {
      const state = await batches.renew(id, clock.nowMs() + LEASE_MS, {
        completed: this.#completed,
        failed: this.#failed,
        resultBytes: this.#resultBytes,
        use: this.#use,
      });
      if (state === undefined) return this.#end('lost');
      if (state === 'cancelling') return this.#end('cancelled');
      const { callerBytes } = await batches.resultBytes(accountId);
      this.#besideBytes = callerBytes - this.#resultBytes + (await files.storedBytes(accountId));
    } catch (error) {
      // The lease runs out, and whoever takes the batch up goes on.
      log.debug({ batch: id, reason: reasonOf(error) }, 'The lease of a batch was not renewed');
    } finally {
      this.#isLooking = false;
    }
  }

  #end(stop: Stop): void {
    this.#stop ??= stop;
    this.#aborter.abort();
  }

  #stopped(): Stop | undefined {
    const { host, clock } = this.#parts;
    if (this.#stop !== undefined) return this.#stop;
    if (host.isClosing()) return 'rest';
    return clock.nowMs() >= this.#batch.expiresMs ? 'expired' : undefined;
  }

  async #work(): Promise<void> {
    const { batches, clock } = this.#parts;
    const { id, state } = this.#batch;
    if (state === 'cancelling') this.#stop = 'cancelled';
    if (state === 'validating' && !(await this.#validate())) return;
    if (state === 'finalizing') return await this.#finish('completed');
    await this.#count();
    await this.look();
    await this.#runLines();
    const stopped = this.#stopped();
    switch (stopped) {
      case 'lost':
        return;
      case 'rest':
        return await batches.rest(id, clock.nowMs() + this.#restMs);
      case 'expired':
      case 'cancelled':
        await this.#fill(LINE_ERRORS[stopped]);
        return await this.#finish(stopped);
      case undefined:
        if (await batches.finalizing(id, clock.nowMs())) return await this.#finish('completed');
        // Cancelled in this moment, or lost: whoever takes it up next sees which.
        return await batches.rest(id, clock.nowMs());
    }
  }

  async #validate(): Promise<boolean> {
    const { batches, host, settings, clock, log } = this.#parts;
    const { id } = this.#batch;
    const endpoint = host.endpoint(this.#path);
    if (host.isStarting()) {
      await batches.rest(id, clock.nowMs() + STARTING_MS);
      return false;
    }
    if (endpoint === undefined) {
      const message = `The endpoint "${this.#batch.endpoint}" is not served in batches any more`;
      const problem = { code: 'invalid_endpoint', message, param: 'endpoint', line: null };
      await batches.refused(id, [problem], clock.nowMs());
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
      await batches.rest(id, clock.nowMs());
      return false;
    }
    checks.end();
    if (checks.problems.length > 0) {
      await batches.refused(id, checks.problems, clock.nowMs());
      return false;
    }
    const isBegun = await batches.begun(id, checks.total, clock.nowMs());
    this.#isChecked = isBegun;
    if (isBegun) log.info({ batch: id, requests: checks.total }, 'A batch runs');
    // Cancelled meanwhile, or lost.
    else await batches.rest(id, clock.nowMs());
    return isBegun;
  }

  #lines() {
    // What was uploaded has its pieces under its own id.
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

  /** Runs every line that has no result; resolves when those that were begun have ended. */
  async #runLines(): Promise<void> {
    const done = await this.#parts.files.linesOf(this.#batch.id);
    try {
      for await (const line of this.#lines()) {
        if (this.#stopped() !== undefined) break;
        if (done.has(line.number)) continue;
        const request = requestOf(line);
        while (!this.#hasPlaceFor(request)) await Promise.race(this.#pending);
        this.#begin(request);
      }
    } finally {
      await Promise.all(this.#pending);
    }
  }

  #hasPlaceFor({ body }: LineRequest): boolean {
    if (this.#pending.size === 0) return true;
    const bytes = this.#pendingBytes + body.length;
    return this.#pending.size < MAX_PENDING && bytes <= MAX_PENDING_BYTES;
  }

  #begin(request: LineRequest): void {
    this.#pendingBytes += request.body.length;
    const running = this.#runLine(request)
      .catch((error: unknown) => {
        // The database is away, or a bug: the batch rests, and the line runs when it is taken up.
        const fields = { batch: this.#batch.id, line: request.number, reason: reasonOf(error) };
        this.#parts.log.warn(fields, 'A request of a batch could not be run');
        this.#restMs = LATER_MS;
        this.#end('rest');
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
      const failed = await this.#whenThereIsRoom(request);
      if (failed === undefined) return;
      const isAway = failed.status === UNAVAILABLE || failed.status === TOO_MANY;
      if (!failed.canRetry || (attempt >= MAX_ATTEMPTS && !isAway)) {
        return await this.#record(request, (lineId) => {
          return answeredLine(lineId, request.customId, failed);
        });
      }
      await this.#pause(Math.min(2 ** attempt * SECOND_MS, MAX_PAUSE_MS));
      if (this.#stopped() !== undefined) return;
      // An answer that was lost on its way here, or another process was there first.
      if (await files.hasLine(id, request.number)) return await this.#count();
    }
  }

  /** The refusal of a line; `undefined` when it has its result, or is not begun any more. */
  async #whenThereIsRoom(request: LineRequest): Promise<LineResponse | undefined> {
    const { host, lines } = this.#parts;
    for (;;) {
      if (this.#stopped() !== undefined) return undefined;
      if (host.hasRoom(this.#path, request.model)) {
        const run = async () => {
          if (this.#stopped() !== undefined) return undefined;
          // Who waits for an answer came first, while this one waited for its turn.
          if (!host.hasRoom(this.#path, request.model)) return BUSY;
          return await this.#ask(request);
        };
        const answer = await lines.run(run, undefined, this.#batch.accountId);
        if (answer !== BUSY) return answer;
      }
      await this.#pause(ROOM_POLL_MS);
    }
  }

  async #ask(request: LineRequest): Promise<LineResponse | undefined> {
    const { host, settings } = this.#parts;
    const { number: seq, customId, body } = request;
    if (this.#besideBytes + this.#resultBytes > settings.maxStoredMbPerCaller * MB) {
      await this.#record(request, (lineId) => {
        return unansweredLine(lineId, customId, LINE_ERRORS.noRoom);
      });
      return undefined;
    }
    let delivered: Piece | undefined;
    const deliver: DeliverResponse = async (tx, kept, { settled, outcome }) => {
      const lineId = this.#lineId();
      const line = keptLine(lineId, customId, kept);
      const piece = {
        contentId: this.#batch.id,
        seq,
        part: line === undefined ? ERROR_PART : OUTPUT_PART,
        body: line ?? unansweredLine(lineId, customId, LINE_ERRORS.tooLarge),
        use: useOf(settled, outcome.tokens),
      };
      // Another process was there first: this answer is not sold.
      if ((await this.#writeIn(tx, [piece])) === 0) throw new Fault('REQUEST_IN_PROGRESS');
      delivered = piece;
    };
    const answer = await host.call({ batch: this.#batch, path: this.#path, body, deliver });
    if (answer.status !== OK) return answer;
    if (delivered === undefined) throw new Error('A request of a batch was not sold');
    this.#add(delivered);
    return undefined;
  }

  #lineId(): string {
    return `batch_req_${this.#parts.ids.hex(12)}`;
  }

  /** Writes the line of a request without a response. */
  async #record(request: LineRequest, lineOf: (lineId: string) => Buffer): Promise<void> {
    const body = lineOf(this.#lineId());
    const piece = { contentId: this.#batch.id, seq: request.number, part: ERROR_PART, body };
    if ((await this.#write([piece])) > 0) this.#add(piece);
  }

  /** Adds lines to the result of a batch that has not ended, where there are none; how many. */
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
    // What aborted it says `#stopped`.
    await this.#parts.clock.sleep(ms, this.#aborter.signal).catch(() => undefined);
  }

  async #fill(error: LineError): Promise<void> {
    const { files } = this.#parts;
    const { id } = this.#batch;
    if (!this.#isChecked) return;
    const done = await files.linesOf(id);
    let pieces: Piece[] = [];
    for await (const line of this.#lines()) {
      if (done.has(line.number)) continue;
      const { customId } = requestOf(line);
      const body = unansweredLine(this.#lineId(), customId, error);
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
      // From here on nobody adds a line.
      if (!(await batches.ended(tx, id, end, nowMs))) return false;
      const made: Made[] = [];
      let used: BatchUse = NO_USE;
      for (const { part, name, fileId } of results) {
        const { lines, sizeBytes, use } = await files.sumOf(id, part, tx);
        used = sumOfUses(used, use);
        made.push({ fileId: lines === 0 ? '' : fileId, lines });
        if (lines === 0) continue;
        const times = { createdMs: nowMs, expiresMs: nowMs + keepMs };
        const facts = { accountId, contentId: id, part, name, purpose: 'batch_output', sizeBytes };
        await files.publish(tx, { id: fileId, ...facts, ...times });
      }
      await batches.result(tx, id, made, used);
      return true;
    });
    if (!isEnded) return;
    log.info({ batch: id, status: end }, 'A batch has ended');
  }
}

const OK = 200;
const TOO_MANY = 429;
const UNAVAILABLE = 503;
const BUSY = 'busy';
