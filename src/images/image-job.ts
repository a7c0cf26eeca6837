/**
 * Images of asynchronous engines: an engine responds with a job instead of images, which is polled
 * until it has ended. If the caller disconnects or the time is over, the job is removed.
 */
import * as z from 'zod';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Engines, Replica } from '../engines/engines.ts';
import { removeJob, stateOf } from '../engines/media/media.ts';
import { type ReadLargeJson, readEngineJson } from '../http/read-request.ts';
import type { JsonObject } from '../json/json-scan.ts';
import { parsedJson } from '../json/json-text.ts';
import type { Guard } from '../net/guard.ts';

export interface ImageJob {
  readonly id: string;
  /** Fetched without the key of the engine. */
  readonly url: string | undefined;
}

const POLL_MS = 1_000;
/** Limits of one poll: a finished job may contain all images. */
const POLL_LIMITS = { firstByteMs: 30_000, idleMs: 30_000, totalMs: 120_000 };
/** Consecutive polls without a state, after which the job counts as lost. */
const MAX_SILENT_POLLS = 5;
const MAX_REDIRECTS = 5;
/** A job is a short JSON object, in contrast to images. */
const MAX_JOB_BYTES = 100_000;

const PollUrl = z
  .string()
  .regex(/^https?:/i)
  .nullish()
  .catch(null);
const JobBody = z.object({
  id: z.string().min(1).max(500),
  status: z.string(),
  polling_url: PollUrl,
  status_url: PollUrl,
  data: z.null().optional(),
  urls: z.object({ get: PollUrl }).nullish().catch(null),
});
const Image = z.union([z.string().transform((url) => ({ url })), z.looseObject({})]);
const Images = z
  .union([z.array(Image), Image.transform((image) => [image])])
  .nullish()
  .catch(null);
const Polled = z.looseObject({ status: z.string(), data: Images, images: Images, output: Images });

/** The job in a response, unless the response has images. */
export function imageJobIn(body: Buffer): ImageJob | undefined {
  if (body.length > MAX_JOB_BYTES) return undefined;
  const json = parsedJson(String(body));
  const job = JobBody.safeParse(json).data;
  const state = job === undefined ? undefined : stateOf(job.status);
  if (job === undefined || (state !== 'running' && state !== 'done')) return undefined;
  const { id, polling_url: pollingUrl, status_url: statusUrl, urls } = job;
  return { id, url: pollingUrl ?? statusUrl ?? urls?.get ?? undefined };
}

interface JobParts {
  readonly engines: Engines;
  readonly guard: Guard;
  readonly fetchTimeoutMs: number;
  readonly clock: Clock;
  readonly readLargeJson: ReadLargeJson;
}

interface JobCall {
  readonly replica: Replica;
  readonly path: string;
  readonly caller: string;
  readonly signal: AbortSignal;
  readonly totalMs: number;
  readonly maxResponseBytes: number;
}

interface EndedJob {
  readonly images: readonly JsonObject[];
  readonly facts: JsonObject;
}

/** The images of a job when it has ended; a text states why there are none. Rejects if aborted. */
export async function endOfJob(
  parts: JobParts,
  job: ImageJob,
  call: JobCall,
): Promise<EndedJob | string> {
  const { engines, clock, readLargeJson } = parts;
  let isOver = false;
  try {
    const untilMs = clock.monotonicMs() + call.totalMs;
    for (let silent = 0; silent < MAX_SILENT_POLLS && clock.monotonicMs() < untilMs;) {
      await clock.sleep(POLL_MS, call.signal);
      const body = await pollJob(parts, job, call);
      const polled = Polled.safeParse(await readEngineJson(body, call.caller, readLargeJson)).data;
      const state = polled === undefined ? undefined : stateOf(polled.status);
      silent = state === undefined ? silent + 1 : 0;
      if (polled === undefined || (state !== 'done' && state !== 'ended')) continue;
      isOver = true;
      if (state === 'ended') return `The job of the engine has ended as "${polled.status}"`;
      return { images: polled.data ?? polled.images ?? polled.output ?? [], facts: polled };
    }
    return 'The job of the engine has no result in time';
  } finally {
    // Not awaited: the caller has disconnected, or receives an error.
    if (!isOver) removeJob(engines, engineCallOf(job, call)).catch(() => undefined);
  }
}

function engineCallOf({ id }: ImageJob, call: JobCall) {
  const { replica, path, caller, maxResponseBytes } = call;
  return {
    work: 'images' as const,
    replicas: [replica],
    method: 'GET' as const,
    path: `${path}/${encodeURIComponent(id)}`,
    isOptionalPath: true,
    caller,
    maxResponseBytes,
    timeLimits: POLL_LIMITS,
  };
}

/** The state of the job; empty if the engine does not respond. */
async function pollJob(parts: JobParts, job: ImageJob, call: JobCall): Promise<Buffer> {
  const { signal, maxResponseBytes: maxBytes, caller } = call;
  if (job.url === undefined) {
    const response = await parts.engines.collect({ ...engineCallOf(job, call), signal });
    signal.throwIfAborted();
    return response.ok ? response.body : Buffer.alloc(0);
  }
  const bounds = { maxBytes, timeoutMs: parts.fetchTimeoutMs, maxRedirects: MAX_REDIRECTS };
  try {
    return (await parts.guard.fetch(job.url, { ...bounds, signal, caller })).bytes;
  } catch (error) {
    // The next poll may succeed.
    if (error instanceof Fault && !signal.aborted) return Buffer.alloc(0);
    throw error;
  }
}
