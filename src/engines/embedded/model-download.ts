/**
 * Downloads a large file in the background. It resumes by HTTP range after a cut or a restart, and
 * verifies the checksum before renaming the file into place, so that a file under its final name is
 * always valid. A `.part` file contains the bytes so far; if its checksum turns out wrong,
 * everything is downloaded again.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Dispatcher, request as httpRequest } from 'undici';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { headerText } from '../../net/exchange.ts';

const MAX_REDIRECTS = 5;
const HEADERS_LIMIT_MS = 30 * SECOND_MS;
/** A connection without data for this long is closed, and the download is resumed. */
const IDLE_LIMIT_MS = MINUTE_MS;
const FIRST_RETRY_MS = SECOND_MS;
const SLOWEST_RETRY_MS = MINUTE_MS;
/** Consecutive attempts without any byte; an attempt with data resets the count. */
const MAX_EMPTY_TRIES = 8;
const PROGRESS_EVERY_MS = 250;

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
    readonly sizeBytes: number;
    readonly sha256: string;
  };
  readonly dispatcher?: Dispatcher | undefined;
  /** Consecutive attempts without data. Default: eight, about two minutes. */
  readonly maxTries?: number;
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
  /** Called before each retry with its reason and delay. */
  readonly onRetry?: (reason: string, delayMs: number) => void;
}

class FinalError extends Error {
  override readonly name = 'FinalError';
}

/**
 * Resolves when the file is complete and verified. Rejects with the signal's reason when aborted,
 * and with a Fault if the server rejects the request, the checksum differs or no data arrives.
 */
export async function downloadFile(options: DownloadOptions): Promise<void> {
  const { path, clock, log, signal, maxTries = MAX_EMPTY_TRIES, onRetry } = options;
  const part = `${path}.part`;
  await mkdir(dirname(path), { recursive: true });
  for (let emptyTries = 0; ;) {
    const before = await sizeOf(part);
    try {
      await tryDownload(options, part, before);
      return await rename(part, path);
    } catch (error) {
      // Cuts, busy servers and name errors are temporary; errors that a retry cannot fix go to the
      // caller.
      signal.throwIfAborted();
      emptyTries = (await sizeOf(part)) > before ? 1 : emptyTries + 1;
      if (error instanceof FinalError || emptyTries >= maxTries) {
        const message = `${new URL(options.file.url).origin} did not return the file: ${reasonOf(error)}`;
        throw new Fault('FETCH_FAILED', { message, cause: error });
      }
      const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (emptyTries - 1), SLOWEST_RETRY_MS);
      log.warn({ reason: reasonOf(error), delayMs }, 'A download is retried');
      onRetry?.(reasonOf(error), delayMs);
      await clock.sleep(delayMs, signal).catch(() => signal.throwIfAborted());
    }
  }
}

async function tryDownload(options: DownloadOptions, part: string, have: number): Promise<void> {
  const { file } = options;
  const response = await request(options, have);
  const range = /^bytes (\d+)-/.exec(headerText(response.headers, 'content-range') ?? '');
  const isResumed = have > 0 && response.statusCode === 206 && Number(range?.[1]) === have;
  const start = isResumed ? have : 0;
  const length = Number(headerText(response.headers, 'content-length'));
  const total = Number.isFinite(length) ? start + length : undefined;
  if (response.statusCode !== 200 && !isResumed) {
    await response.body.dump();
    throw await errorOf(response.statusCode, part);
  }
  if (total !== undefined && total > file.sizeBytes) {
    await response.body.dump();
    throw new FinalError(`it has ${total} bytes, expected at most ${file.sizeBytes}`);
  }
  const sum = await receive(options, part, response.body, start, total);
  if (sum === file.sha256) return;
  // The data is wrong at an unknown position: delete all of it.
  await rm(part, { force: true });
  const message = `its SHA-256 is ${sum}, expected ${file.sha256}`;
  // The resumed part may be of another file: retry once from the start before rejecting the file.
  throw isResumed ? new Error(message) : new FinalError(message);
}

/** The error for a status without data; deletes a part that the server does not resume. */
async function errorOf(status: number, part: string): Promise<Error> {
  if (status === 206 || status === 416) {
    await rm(part, { force: true });
    return new Error('the file has changed since the download started');
  }
  const message = `the server returned status ${status}`;
  const isTemporary = status === 408 || status === 429 || status >= 500;
  return isTemporary ? new Error(message) : new FinalError(message);
}

type Response = Awaited<ReturnType<typeof httpRequest>>;

async function request(options: DownloadOptions, have: number): Promise<Response> {
  const { file, signal, dispatcher } = options;
  let { url } = file;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const response = await httpRequest(url, {
      ...(dispatcher && { dispatcher }),
      headers: {
        'accept-encoding': 'identity',
        ...(have > 0 && { range: `bytes=${have}-` }),
      },
      headersTimeout: HEADERS_LIMIT_MS,
      bodyTimeout: IDLE_LIMIT_MS,
      signal,
    });
    const location = headerText(response.headers, 'location');
    const isRedirect = response.statusCode >= 300 && response.statusCode < 400;
    if (!isRedirect || location === undefined) return response;
    await response.body.dump();
    url = new URL(location, url).href;
  }
  throw new FinalError(`more than ${MAX_REDIRECTS} redirects`);
}

/** Appends the rest to the part; returns the checksum of the whole file. */
async function receive(
  { file, clock, onProgress }: DownloadOptions,
  part: string,
  body: AsyncIterable<Buffer>,
  start: number,
  total: number | undefined,
): Promise<string> {
  const hash = createHash('sha256');
  if (start > 0) for await (const chunk of createReadStream(part)) hash.update(chunk);
  const target = await open(part, start > 0 ? 'a' : 'w');
  const startedMs = clock.monotonicMs();
  let reportedMs = startedMs;
  let size = start;
  const report = (): void => {
    reportedMs = clock.monotonicMs();
    onProgress?.(progressOf(start, size, total, reportedMs - startedMs));
  };
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > file.sizeBytes)
        throw new FinalError(`it has more than the expected ${file.sizeBytes} bytes`);
      await target.write(chunk);
      hash.update(chunk);
      if (clock.monotonicMs() - reportedMs >= PROGRESS_EVERY_MS) report();
    }
    await target.sync();
  } finally {
    await target.close();
  }
  report();
  if (total !== undefined && size < total) {
    throw new Error(`the connection ended after ${size} of ${total} bytes`);
  }
  return hash.digest('hex');
}

/** Progress after `elapsedMs` of an attempt that started with `start` bytes. */
function progressOf(
  start: number,
  bytesDone: number,
  total: number | undefined,
  elapsedMs: number,
): DownloadProgress {
  const rate = elapsedMs > 0 ? ((bytesDone - start) * SECOND_MS) / elapsedMs : 0;
  return {
    fraction: total === undefined || total === 0 ? 0 : bytesDone / total,
    bytesDone,
    bytesTotal: total,
    bytesPerSecond: Math.round(rate),
    secondsLeft:
      total !== undefined && rate > 0 ? Math.ceil((total - bytesDone) / rate) : undefined,
  };
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    // No such file yet.
    return 0;
  }
}
