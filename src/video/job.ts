/**
 * A video job and its states:
 *
 *   admitting → queued → submitted → running → storing → completed
 *        └─────────┴─────────┴──────────┴─────────┴────→ failed
 *
 * In `admitting` the hold is being placed; no worker takes the job. `completed` and `failed` are
 * final; the step into them also moves the money. A cancel by the caller leads to `failed`.
 */
import * as z from 'zod';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { isoTime } from '../core/clock.ts';
import { nano } from '../core/money.ts';
import { Flag, type Queryable, type Row, Whole, jsonText, maybe, rowShape } from '../db/db.ts';

export const JobState = z.enum([
  'admitting',
  'queued',
  'submitted',
  'running',
  'storing',
  'completed',
  'failed',
]);
export type JobState = z.infer<typeof JobState>;

const JobInput = z.object({
  /** The request field, such as `image_url` or `elements.0.video_url`. */
  role: z.string(),
  /** Relative to the folder of inputs. */
  file: z.string(),
  mimeType: z.string(),
});
export type JobInput = Readonly<z.infer<typeof JobInput>>;

/** Failure as shown by retrieve and the webhook; contains no message of an engine. */
const JobFailure = z.object({
  code: z
    .custom<FaultCode>((code) => Object.hasOwn(FAULTS, String(code)))
    .catch('INFERENCE_FAILED'),
  message: z.string(),
  isPolicy: z.boolean(),
});
export type JobFailure = Readonly<z.infer<typeof JobFailure>>;

function failure(code: FaultCode, message: string): JobFailure {
  const isPolicy = code === 'CONTENT_POLICY_VIOLATION';
  return { code, message: `${message}; it costs nothing`, isPolicy };
}

export const FAILURES = {
  policy: failure('CONTENT_POLICY_VIOLATION', 'The engine rejected the content'),
  request: failure(
    'VIDEO_REQUEST_REFUSED',
    'The engine does not support this request: change the prompt or the options',
  ),
  media: failure(
    'VIDEO_REQUEST_REFUSED',
    'The engine cannot read the media: it is damaged or its format is not supported',
  ),
  engine: failure('INFERENCE_FAILED', 'The engine could not make the video'),
  tooLong: failure('INFERENCE_FAILED', 'The video was not made in time'),
  lost: failure('INFERENCE_FAILED', 'The engine lost the video'),
  unfit: failure('INFERENCE_FAILED', 'The engine returned another video than was ordered'),
  unchecked: failure('SERVICE_UNAVAILABLE', 'The video could not be checked on this server'),
  unclear: failure('INFERENCE_FAILED', 'The engine did not confirm the request'),
  away: failure('MODEL_OFFLINE', 'The engine has not responded for too long'),
  abandoned: failure('SERVICE_UNAVAILABLE', 'The server stopped before it accepted the job'),
  cancelled: failure('VIDEO_CANCELLED', 'The video was cancelled'),
} as const satisfies Record<string, JobFailure>;

/** The cost of a job at one replica, in USD. */
const SupplierQuote = z.object({ engine: z.string(), model: z.string(), usd: z.string() });

const SHAPE = rowShape({
  /** The `queue_id` of the API. */
  id: z.string(),
  accountId: z.string(),
  /** Empty for a wallet. */
  keyId: z.string(),
  modelId: z.string(),
  state: JobState,
  quoteNano: z.bigint().transform(nano),
  request: jsonText(z.record(z.string(), z.unknown())),
  inputs: jsonText(z.array(JobInput)),
  /** Engine and its model name; empty before the job is submitted. */
  engine: z.string(),
  engineModel: z.string(),
  engineJobId: z.string(),
  /** Create requests that an engine accepted. */
  attempts: Whole,
  /** Create requests that may have reached an engine but whose response was lost. */
  unclear: Whole,
  /** Time since which the engine has not responded; 0 while it does. */
  silentSinceMs: Whole,
  progressPpm: Whole,
  createdMs: Whole,
  /** Time at which the engine accepted the job; 0 before. */
  startedMs: Whole,
  finishedMs: Whole,
  executionMs: Whole,
  failure: z
    .literal('')
    .transform(() => null)
    .or(jsonText(JobFailure)),
  mediaBytes: Whole,
  mediaType: z.string(),
  mediaUntilMs: Whole,
  hasMedia: Flag,
  downloadHash: z.string().nullable(),
  /** The price is that of a video with sound. */
  hasSound: Flag,
  webhookUrl: z.string(),
  tags: maybe(jsonText(z.record(z.string(), z.string()))),
  /** The quote at the list price, if the account had its own prices. */
  listNano: maybe(z.bigint().transform(nano)),
  costs: maybe(jsonText(z.array(SupplierQuote))),
});

export const JOB_COLUMNS = SHAPE.columns;

export type VideoJob = Readonly<ReturnType<typeof jobOf>>;

export function jobOf(row: Row) {
  const { progressPpm, downloadHash, ...job } = SHAPE.parse(row);
  return { ...job, fraction: progressPpm / 1e6, hasDownload: downloadHash !== null };
}

export interface NewJob extends Pick<
  VideoJob,
  'id' | 'accountId' | 'keyId' | 'modelId' | 'quoteNano' | 'request' | 'createdMs' | 'webhookUrl'
> {
  readonly inputs: readonly JobInput[];
  readonly inputBytes: number;
  readonly downloadHash: string | null;
  readonly hasSound: boolean;
  readonly tags?: VideoJob['tags'];
  readonly listNano?: VideoJob['listNano'];
  readonly costs?: VideoJob['costs'];
}

export function isWallets({ keyId }: Pick<VideoJob, 'keyId'>): boolean {
  return keyId === '';
}

/** Status values of retrieve and webhooks, and the members that retrieve adds. */
export function statusOf({
  state,
  failure: why,
}: VideoJob): 'PROCESSING' | 'COMPLETED' | 'FAILED' | 'CANCELLED' {
  if (state === 'completed') return 'COMPLETED';
  if (why?.code === FAILURES.cancelled.code) return 'CANCELLED';
  return state === 'failed' ? 'FAILED' : 'PROCESSING';
}

export function failureFault({ code, message, isPolicy }: JobFailure): Fault {
  if (!isPolicy && code !== 'VIDEO_REQUEST_REFUSED') {
    return new Fault(code, { message, fields: { credits_refunded: true }, canRetry: false });
  }
  // A rejection of the content or the request has its own body, with the type of the rejection.
  const type = isPolicy ? 'provider_content_policy' : 'provider_request_refused';
  const error = { message, type, credits_refunded: true };
  return new Fault(code, { message, body: { error }, canRetry: false });
}

export interface VideoCallbacks {
  readonly secretOf: (accountId: string) => string;
  /** Queues a message, at most once per event and subject. */
  readonly add: (tx: Queryable, message: VideoMessage) => Promise<unknown>;
  readonly nudge: () => void;
}

export interface VideoMessage {
  readonly accountId: string;
  readonly url: string;
  readonly event: `video.${string}`;
  readonly subject: string;
  readonly body: string;
}

export function messageOf(job: VideoJob): VideoMessage {
  const status = statusOf(job);
  const event = `video.${status.toLowerCase()}` as const;
  const body = JSON.stringify({
    event,
    queue_id: job.id,
    model: job.modelId,
    status,
    created_at: isoTime(job.createdMs),
    finished_at: isoTime(job.finishedMs),
    execution_duration: job.executionMs,
    ...(job.failure !== null && { error: job.failure.message, credits_refunded: true }),
  });
  return { accountId: job.accountId, url: job.webhookUrl, event, subject: job.id, body };
}
