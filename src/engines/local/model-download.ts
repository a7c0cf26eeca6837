/**
 * Fetches a large file in the background: resumed by HTTP range after a cut or a restart, checked
 * against its SHA-256, renamed into place only when whole, so that a file under its own name is
 * always good. A `.part` file carries the bytes so far, a `.part.json` beside it says of which file.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { request as httpRequest } from 'undici';
import { z } from 'zod';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Log, reasonOf } from '../../core/log.ts';

const MAX_REDIRECTS = 5;
const HEADERS_LIMIT_MS = 30 * SECOND_MS;
/** A connection that gives nothing for so long is cut and resumed. */
const IDLE_LIMIT_MS = MINUTE_MS;
const FIRST_RETRY_MS = SECOND_MS;
const SLOWEST_RETRY_MS = MINUTE_MS;
/** Tries in a row that brought no byte; a try that brought some starts the count again. */
const MAX_FRUITLESS_TRIES = 8;
const PROGRESS_EVERY_MS = 250;
/** The rate is averaged over about so long. */
const RATE_WINDOW_MS = 5 * SECOND_MS;

export interface DownloadProgress {
  /** 0 to 1; 0 while the size is unknown. */
  readonly fraction: number;
  readonly bytesDone: number;
  readonly bytesTotal: number | undefined;
  readonly bytesPerSecond: number;
  readonly secondsLeft: number | undefined;
}

export interface DownloadOptions {
  readonly file: {
    readonly url: string;
    /** Lowercase hex. */
    readonly sha256: string;
    /** More bytes are refused. */
    readonly sizeBytes: number;
  };
  /** Absolute path of the finished file. */
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
}

/** What must stay the same for a part to be continued. */
const PartNote = z.object({ url: z.string(), tag: z.string() });

/** Trying again cannot help. */
class FinalError extends Error {
  override readonly name = 'FinalError';
}

/** The part cannot be continued: the next try begins anew. */
class StalePartError extends Error {
  override readonly name = 'StalePartError';
}

/**
 * Downloads until the file is whole and checked. Rejects with the signal's reason when aborted,
 * and with a Fault when the server refuses, the checksum differs or nothing arrives any more.
 */
export async function downloadFile(options: DownloadOptions): Promise<void> {
  const { path, clock, log, signal } = options;
  await mkdir(dirname(path), { recursive: true });
  for (let fruitless = 0; ;) {
    const before = await sizeOf(partPath(path));
    try {
      return await tryDownload(options);
    } catch (error) {
      // Cuts, busy servers and name errors pass; what cannot pass is told to the caller.
      signal.throwIfAborted();
      if (error instanceof StalePartError) await rm(notePath(path), { force: true });
      const moved = (await sizeOf(partPath(path))) > before;
      fruitless = moved ? 1 : fruitless + 1;
      if (error instanceof FinalError || fruitless >= MAX_FRUITLESS_TRIES) {
        const message = `The model file could not be downloaded: ${reasonOf(error)}`;
        throw new Fault('FETCH_FAILED', { message, cause: error });
      }
      const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (fruitless - 1), SLOWEST_RETRY_MS);
      log.warn({ reason: reasonOf(error), delayMs }, 'download is tried again');
      await clock.sleep(delayMs, signal);
    }
  }
}

function partPath(path: string): string {
  return `${path}.part`;
}

function notePath(path: string): string {
  return `${path}.part.json`;
}

async function tryDownload(options: DownloadOptions): Promise<void> {
  const { file, path } = options;
  const knownTag = await readTag(path, file.url);
  const have = knownTag === undefined ? 0 : await sizeOf(partPath(path));
  const { response, tag } = await ask(options, have);
  const resumed = await isResumed(response, tag === knownTag ? have : undefined);
  const start = resumed ? have : 0;
  await writeFile(notePath(path), JSON.stringify({ url: file.url, tag }));
  const length = Number(header(response, 'content-length'));
  const total = Number.isFinite(length) ? start + length : undefined;
  if (total !== undefined && total > file.sizeBytes) {
    await response.body.dump();
    throw new FinalError(`it has ${total} bytes, at most ${file.sizeBytes} are taken`);
  }
  const sha256 = await receive(options, response.body, start, total);
  if (sha256 !== file.sha256) {
    // The bytes are wrong somewhere: nothing of them can be kept.
    await rm(partPath(path), { force: true });
    await rm(notePath(path), { force: true });
    const message = `its SHA-256 is ${sha256}, it should be ${file.sha256}`;
    // A part of an earlier run may have been damaged: once anew, then it is the file itself.
    throw resumed ? new Error(message) : new FinalError(message);
  }
  await rename(partPath(path), path);
  await rm(notePath(path), { force: true });
}

type Response = Awaited<ReturnType<typeof httpRequest>>;

/**
 * Follows redirects by hand: Hugging Face tells on the way, not at the end, what changes when the
 * file behind the URL changes.
 */
async function ask(
  { file, signal }: DownloadOptions,
  have: number,
): Promise<{ response: Response; tag: string }> {
  let { url } = file;
  let linkedTag: string | undefined;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const response = await httpRequest(url, {
      headers: { 'accept-encoding': 'identity', ...(have > 0 && { range: `bytes=${have}-` }) },
      headersTimeout: HEADERS_LIMIT_MS,
      bodyTimeout: IDLE_LIMIT_MS,
      signal,
    });
    linkedTag ??= header(response, 'x-linked-etag');
    const location = header(response, 'location');
    const isRedirect = response.statusCode >= 300 && response.statusCode < 400;
    if (!isRedirect || location === undefined) {
      return { response, tag: linkedTag ?? header(response, 'etag') ?? '' };
    }
    await response.body.dump();
    url = new URL(location, url).href;
  }
  throw new FinalError(`more than ${MAX_REDIRECTS} redirects`);
}

/** Whether the answer goes on at `have`, undefined when the file has changed; throws for others. */
async function isResumed(response: Response, have: number | undefined): Promise<boolean> {
  const { statusCode, body } = response;
  if (statusCode === 200) return false;
  const range = /^bytes (\d+)-/.exec(header(response, 'content-range') ?? '');
  if (statusCode === 206 && have !== undefined && Number(range?.[1]) === have) return true;
  await body.dump();
  if (statusCode === 206) throw new StalePartError('the file has changed since it was begun');
  if (statusCode === 416) throw new StalePartError('the part is longer than the file');
  const isPassing = statusCode === 408 || statusCode === 429 || statusCode >= 500;
  const message = `the server answered with status ${statusCode}`;
  throw isPassing ? new Error(message) : new FinalError(message);
}

/** Writes the part to its end; the SHA-256 of all of it. */
async function receive(
  options: DownloadOptions,
  body: AsyncIterable<Buffer>,
  start: number,
  total: number | undefined,
): Promise<string> {
  const { path, file } = options;
  const hash = createHash('sha256');
  if (start > 0) for await (const chunk of createReadStream(partPath(path))) hash.update(chunk);
  const part = await open(partPath(path), start > 0 ? 'a' : 'w');
  const meter = new ProgressMeter(options, start, total);
  let size = start;
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > file.sizeBytes) throw new FinalError(`it has more than ${file.sizeBytes} bytes`);
      await part.write(chunk);
      hash.update(chunk);
      meter.move(size);
    }
    await part.sync();
  } finally {
    await part.close();
  }
  meter.report(size);
  if (total !== undefined && size < total) {
    throw new Error(`the connection ended after ${size} of ${total} bytes`);
  }
  return hash.digest('hex');
}

/** Reports at most four times a second, and once at the end. */
class ProgressMeter {
  readonly #options: DownloadOptions;
  readonly #total: number | undefined;
  #reportedAtMs: number;
  #reportedBytes: number;
  #rate = 0;

  constructor(options: DownloadOptions, start: number, total: number | undefined) {
    this.#options = options;
    this.#total = total;
    this.#reportedAtMs = options.clock.monotonicMs();
    this.#reportedBytes = start;
  }

  move(bytesDone: number): void {
    const elapsedMs = this.#options.clock.monotonicMs() - this.#reportedAtMs;
    if (elapsedMs >= PROGRESS_EVERY_MS) this.report(bytesDone);
  }

  report(bytesDone: number): void {
    const elapsedMs = this.#options.clock.monotonicMs() - this.#reportedAtMs;
    if (elapsedMs > 0) {
      const now = ((bytesDone - this.#reportedBytes) * SECOND_MS) / elapsedMs;
      const weight = this.#rate === 0 ? 1 : Math.min(1, elapsedMs / RATE_WINDOW_MS);
      this.#rate += (now - this.#rate) * weight;
    }
    this.#reportedAtMs += elapsedMs;
    this.#reportedBytes = bytesDone;
    const total = this.#total;
    const isKnown = total !== undefined && this.#rate > 0;
    this.#options.onProgress?.({
      fraction: total === undefined || total === 0 ? 0 : bytesDone / total,
      bytesDone,
      bytesTotal: total,
      bytesPerSecond: Math.round(this.#rate),
      secondsLeft: isKnown ? Math.ceil((total - bytesDone) / this.#rate) : undefined,
    });
  }
}

/** What the part was tagged with; `undefined` when there is none of this file. */
async function readTag(path: string, url: string): Promise<string | undefined> {
  try {
    const note = PartNote.parse(JSON.parse(await readFile(notePath(path), 'utf8')));
    return note.url === url ? note.tag : undefined;
  } catch {
    // No note, or a torn one: the part is begun anew.
    return undefined;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    // Not there yet.
    return 0;
  }
}

function header({ headers }: Response, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}
