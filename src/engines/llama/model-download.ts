/**
 * Fetches a large file in the background: resumed by HTTP range after a cut or a restart, checked
 * against its SHA-256, renamed into place only when whole, so that a file under its own name is
 * always good. A `.part` file carries the bytes so far, a `.part.json` beside it says of which file.
 *
 * The checksum is the pinned one; without one, the `x-linked-etag` header (Hugging Face sends the
 * SHA-256 of a stored file in it), which is then recorded in the result.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';

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
  readonly url: string;
  /** Absolute path of the finished file. */
  readonly path: string;
  /** Lowercase hex; undefined takes the checksum that the server announces. */
  readonly sha256: string | undefined;
  /** More bytes than this are refused. */
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
}

export interface DownloadedFile {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  /** `pinned` in advance, or `announced` by the server that also sent the bytes. */
  readonly checksumFrom: 'pinned' | 'announced';
}

/** What must stay the same for a part to be continued. */
const PartNote = z.object({ url: z.string(), tag: z.string() });

/** Trying again cannot help. */
class FinalError extends Error {
  override readonly name = 'FinalError';
}

/**
 * Downloads until the file is whole and checked. Rejects with the signal's reason when aborted,
 * and with a Fault when the server refuses, the checksum differs or nothing arrives any more.
 */
export async function downloadFile(options: DownloadOptions): Promise<DownloadedFile> {
  await mkdir(dirname(options.path), { recursive: true });
  let fruitless = 0;
  for (;;) {
    const before = await sizeOf(partPath(options));
    try {
      return await tryDownload(options);
    } catch (error) {
      // Cuts, busy servers and name errors pass; what cannot pass is told to the caller.
      options.signal.throwIfAborted();
      if (error instanceof FinalError) throw failure(error);
      if (error instanceof StalePartError) await rm(notePath(options), { force: true });
      const moved = (await sizeOf(partPath(options))) > before;
      fruitless = moved ? 1 : fruitless + 1;
      if (fruitless >= MAX_FRUITLESS_TRIES) throw failure(error);
      const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (fruitless - 1), SLOWEST_RETRY_MS);
      options.log.warn({ reason: reasonOf(error), delayMs }, 'download is tried again');
      await options.clock.sleep(delayMs, options.signal);
    }
  }
}

function failure(cause: unknown): Fault {
  const message = `The model file could not be downloaded: ${reasonOf(cause)}`;
  return new Fault('FETCH_FAILED', { message, cause });
}

function partPath(options: DownloadOptions): string {
  return `${options.path}.part`;
}

function notePath(options: DownloadOptions): string {
  return `${options.path}.part.json`;
}

async function tryDownload(options: DownloadOptions): Promise<DownloadedFile> {
  const note = await readNote(options);
  const have = note === undefined ? 0 : await sizeOf(partPath(options));
  const answer = await ask(options, have, note?.tag);
  const start = answer.resumed ? have : 0;
  await writeFile(notePath(options), JSON.stringify({ url: options.url, tag: answer.tag }));
  const total = answer.lengthBytes === undefined ? undefined : start + answer.lengthBytes;
  if (total !== undefined && total > options.maxBytes) {
    await answer.body.dump();
    throw new FinalError(`it has ${total} bytes, at most ${options.maxBytes} are taken`);
  }
  const hash = createHash('sha256');
  if (start > 0) await hashFile(partPath(options), hash);
  const sizeBytes = await receive(options, answer.body, { start, total, hash });
  if (total !== undefined && sizeBytes < total) {
    throw new Error(`the connection ended after ${sizeBytes} of ${total} bytes`);
  }
  const got = { sizeBytes, sha256: hash.digest('hex'), announced: answer.sha256 };
  return await finish(options, got, answer.resumed);
}

async function finish(
  options: DownloadOptions,
  got: { sizeBytes: number; sha256: string; announced: string | undefined },
  wasResumed: boolean,
): Promise<DownloadedFile> {
  const wanted = options.sha256 ?? got.announced;
  if (wanted === undefined) {
    throw new FinalError('no checksum is known for it, and the server announces none');
  }
  if (got.sha256 !== wanted) {
    // The bytes are wrong somewhere: nothing of them can be kept.
    await rm(partPath(options), { force: true });
    await rm(notePath(options), { force: true });
    const message = `its SHA-256 is ${got.sha256}, it should be ${wanted}`;
    // A part of an earlier run may have been damaged: once anew, then it is the file itself.
    throw wasResumed ? new Error(message) : new FinalError(message);
  }
  await rename(partPath(options), options.path);
  await rm(notePath(options), { force: true });
  return {
    path: options.path,
    sizeBytes: got.sizeBytes,
    sha256: got.sha256,
    checksumFrom: options.sha256 === undefined ? 'announced' : 'pinned',
  };
}

type Body = Awaited<ReturnType<typeof httpRequest>>['body'];

interface Answer {
  readonly body: Body;
  readonly resumed: boolean;
  readonly lengthBytes: number | undefined;
  /** Changes when the file behind the URL changes. */
  readonly tag: string;
  readonly sha256: string | undefined;
}

/** Follows redirects by hand: the checksum is announced on the way, not by the last server. */
async function ask(
  options: DownloadOptions,
  have: number,
  knownTag: string | undefined,
): Promise<Answer> {
  let url = options.url;
  let announced: string | undefined;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const response = await httpRequest(url, {
      headers: { 'accept-encoding': 'identity', ...(have > 0 ? { range: `bytes=${have}-` } : {}) },
      headersTimeout: HEADERS_LIMIT_MS,
      bodyTimeout: IDLE_LIMIT_MS,
      signal: options.signal,
    });
    announced ??= checksumIn(response.headers);
    const location = header(response.headers, 'location');
    if (response.statusCode >= 300 && response.statusCode < 400 && location !== undefined) {
      await response.body.dump();
      url = new URL(location, url).href;
      continue;
    }
    const tag = announced ?? header(response.headers, 'etag') ?? '';
    return await judge(response, { have, tag, knownTag, announced });
  }
  throw new FinalError(`more than ${MAX_REDIRECTS} redirects`);
}

async function judge(
  response: Awaited<ReturnType<typeof httpRequest>>,
  asked: { have: number; tag: string; knownTag: string | undefined; announced: string | undefined },
): Promise<Answer> {
  const { statusCode, headers, body } = response;
  const length = Number(header(headers, 'content-length'));
  const known = { body, tag: asked.tag, sha256: asked.announced };
  const lengthBytes = Number.isFinite(length) ? length : undefined;
  if (statusCode === 200) return { ...known, resumed: false, lengthBytes };
  const isSame = asked.knownTag === asked.tag;
  if (statusCode === 206 && isSame && startOfRange(headers) === asked.have) {
    return { ...known, resumed: true, lengthBytes };
  }
  await body.dump();
  if (statusCode === 206) throw new StalePartError('the file has changed since it was begun');
  if (statusCode === 416) throw new StalePartError('the part is longer than the file');
  const isPassing = statusCode === 408 || statusCode === 429 || statusCode >= 500;
  const message = `the server answered with status ${statusCode}`;
  throw isPassing ? new Error(message) : new FinalError(message);
}

/** The part cannot be continued: the next try begins anew. */
class StalePartError extends Error {
  override readonly name = 'StalePartError';
}

async function receive(
  options: DownloadOptions,
  body: Body,
  state: { start: number; total: number | undefined; hash: Hash },
): Promise<number> {
  const file = await open(partPath(options), state.start > 0 ? 'a' : 'w');
  const meter = new ProgressMeter(options, state.start, state.total);
  let size = state.start;
  try {
    for await (const chunk of body) {
      // undici gives buffers as long as no encoding is set.
      const bytes = chunk as Buffer;
      size += bytes.length;
      if (size > options.maxBytes) {
        throw new FinalError(`it has more than ${options.maxBytes} bytes`);
      }
      await file.write(bytes);
      state.hash.update(bytes);
      meter.move(size);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  meter.end(size);
  return size;
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
    if (elapsedMs >= PROGRESS_EVERY_MS) this.#report(bytesDone, elapsedMs);
  }

  end(bytesDone: number): void {
    this.#report(bytesDone, this.#options.clock.monotonicMs() - this.#reportedAtMs);
  }

  #report(bytesDone: number, elapsedMs: number): void {
    if (elapsedMs > 0) {
      const now = ((bytesDone - this.#reportedBytes) * SECOND_MS) / elapsedMs;
      const weight = this.#rate === 0 ? 1 : Math.min(1, elapsedMs / RATE_WINDOW_MS);
      this.#rate += (now - this.#rate) * weight;
    }
    this.#reportedAtMs += elapsedMs;
    this.#reportedBytes = bytesDone;
    const total = this.#total;
    this.#options.onProgress?.({
      fraction: total === undefined || total === 0 ? 0 : bytesDone / total,
      bytesDone,
      bytesTotal: total,
      bytesPerSecond: Math.round(this.#rate),
      secondsLeft:
        total === undefined || this.#rate <= 0
          ? undefined
          : Math.ceil((total - bytesDone) / this.#rate),
    });
  }
}

async function readNote(options: DownloadOptions): Promise<z.infer<typeof PartNote> | undefined> {
  try {
    const note = PartNote.parse(JSON.parse(await readFile(notePath(options), 'utf8')));
    return note.url === options.url ? note : undefined;
  } catch {
    // No note, or a torn one: the part is begun anew.
    return undefined;
  }
}

async function hashFile(path: string, hash: Hash): Promise<void> {
  await pipeline(createReadStream(path), async (chunks: AsyncIterable<Buffer>) => {
    for await (const chunk of chunks) hash.update(chunk);
  });
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    // Not there yet.
    return 0;
  }
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

function header(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** The SHA-256 that Hugging Face announces; other tags are no checksums. */
function checksumIn(headers: Headers): string | undefined {
  const tag = header(headers, 'x-linked-etag') ?? header(headers, 'etag');
  const text = tag?.replace(/^W\//, '').replaceAll('"', '').toLowerCase();
  return text !== undefined && /^[0-9a-f]{64}$/.test(text) ? text : undefined;
}

function startOfRange(headers: Headers): number | undefined {
  const match = /^bytes (\d+)-/.exec(header(headers, 'content-range') ?? '');
  return match?.[1] === undefined ? undefined : Number(match[1]);
}
