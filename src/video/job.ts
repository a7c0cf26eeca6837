/**
 * A video job as a value, and its way through the states:
 *
 *   admitting → queued → submitted → running → storing → completed
 *        └─────────┴─────────┴──────────┴─────────┴────→ failed
 *
 * `admitting` stands while the money is being held; nobody works on it. `completed` and `failed`
 * are final; the step into them carries the money with it. A caller's cancel is a way to `failed`.
 */
import { z } from 'zod';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { nano } from '../core/money.ts';
import type { Row } from '../db/db.ts';

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

/** Media that a caller gave, stored beside the job until it ends. */
const JobInput = z.object({
  /** The field that it came in, such as `image_url` or `elements.0.video_url`. */
  role: z.string(),
  /** Relative to the folder of inputs. */
  file: z.string(),
  mimeType: z.string(),
});
export type JobInput = Readonly<z.infer<typeof JobInput>>;

/** Why a job failed, as retrieve and the webhook tell it: never in the words of an engine. */
const JobFailure = z.object({
  code: z
    .custom<FaultCode>((code) => Object.hasOwn(FAULTS, String(code)))
    .catch('INFERENCE_FAILED'),
  message: z.string(),
  /** The engine called the content unfit. */
  isPolicy: z.boolean(),
});
export type JobFailure = Readonly<z.infer<typeof JobFailure>>;

function failure(code: FaultCode, message: string): JobFailure {
  const isPolicy = code === 'CONTENT_POLICY_VIOLATION';
  return { code, message: `${message}; it costs nothing`, isPolicy };
}

/** Every way in which a job fails. */
export const FAILURES = {
  policy: failure('CONTENT_POLICY_VIOLATION', 'The engine refused the content'),
  request: failure(
    'VIDEO_REQUEST_REFUSED',
    'The engine does not take this request: change the prompt or the options',
  ),
  media: failure(
    'VIDEO_REQUEST_REFUSED',
    'The engine cannot use the media: it is damaged or of a kind that is not supported',
  ),
  engine: failure('INFERENCE_FAILED', 'The engine could not make the video'),
  tooLong: failure('INFERENCE_FAILED', 'The video was not made in time'),
  lost: failure('INFERENCE_FAILED', 'The engine lost the video'),
  unfit: failure('INFERENCE_FAILED', 'The engine did not give the video that was ordered'),
  unchecked: failure('SERVICE_UNAVAILABLE', 'The video could not be checked on this server'),
  unclear: failure('INFERENCE_FAILED', 'The engine did not say whether it takes the video'),
  away: failure('MODEL_OFFLINE', 'The engine has not answered for too long'),
  abandoned: failure('SERVICE_UNAVAILABLE', 'The server stopped while it took the job'),
  cancelled: failure('VIDEO_CANCELLED', 'The video was cancelled'),
} as const satisfies Record<string, JobFailure>;

const Count = z.bigint().transform(Number);
const json = <T extends z.ZodType>(schema: T) =>
  z
    .string()
    .transform((text): unknown => JSON.parse(text))
    .pipe(schema);

/** The columns of `video_job` that make a job, in our spelling. */
const Columns = z.object({
  /** The `queue_id` of the wire. */
  id: z.string(),
  accountId: z.string(),
  /** Empty for a wallet. */
  keyId: z.string(),
  modelId: z.string(),
  state: JobState,
  quoteNano: z.bigint().transform(nano),
  /** The request without its media. */
  request: json(z.record(z.string(), z.unknown())),
  inputs: json(z.array(JobInput)),
  /** Where it was ordered, and as what; empty before. */
  engine: z.string(),
  engineModel: z.string(),
  engineJobId: z.string(),
  /** Orders that an engine took. */
  attempts: Count,
  /** Orders that may have reached an engine and whose answer is lost. */
  unclear: Count,
  /** When the engine fell silent; 0 while it answers. */
  silentSinceMs: Count,
  progressPpm: Count,
  createdMs: Count,
  /** When the engine took it; 0 before. */
  startedMs: Count,
  finishedMs: Count,
  executionMs: Count,
  failure: z
    .literal('')
    .transform(() => null)
    .or(json(JobFailure)),
  mediaBytes: Count,
  mediaType: z.string(),
  mediaUntilMs: Count,
  hasMedia: z.bigint().transform((value) => value === 1n),
  downloadHash: z.string().nullable(),
  /** The price is that of a film with sound. */
  hasSound: z.bigint().transform((value) => value === 1n),
  webhookUrl: z.string(),
  webhookAttempts: Count,
  /** What the request was tagged with. */
  tags: json(z.record(z.string(), z.string()))
    .nullable()
    .transform((tags) => tags ?? undefined),
});

/** What a query gives for `jobOf`. */
export const JOB_COLUMNS = Object.keys(Columns.shape)
  .map(
    (name) => `${name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)} AS "${name}"`,
  )
  .join(', ');

export type VideoJob = Readonly<ReturnType<typeof jobOf>>;

/** Builds a job from a row of `JOB_COLUMNS`. */
export function jobOf(row: Row) {
  const { progressPpm, downloadHash, ...job } = Columns.parse(row);
  // The fraction is from 0 to 1.
  return { ...job, fraction: progressPpm / 1e6, hasDownload: downloadHash !== null };
}

/** A job as it is first written; everything else begins at nothing. */
export interface NewJob extends Pick<
  VideoJob,
  'id' | 'accountId' | 'keyId' | 'modelId' | 'quoteNano' | 'request' | 'createdMs' | 'webhookUrl'
> {
  readonly inputs: readonly JobInput[];
  readonly inputBytes: number;
  readonly downloadHash: string | null;
  readonly hasSound: boolean;
  readonly tags?: VideoJob['tags'];
}

/** Whether a wallet pays for it: it has no key. */
export function isWallets({ keyId }: Pick<VideoJob, 'keyId'>): boolean {
  return keyId === '';
}

/** The words of retrieve and webhooks, and those that retrieve says with its status. */
export function statusOf({
  state,
  failure: why,
}: VideoJob): 'PROCESSING' | 'COMPLETED' | 'FAILED' | 'CANCELLED' {
  if (state === 'completed') return 'COMPLETED';
  if (why?.code === FAILURES.cancelled.code) return 'CANCELLED';
  return state === 'failed' ? 'FAILED' : 'PROCESSING';
}

/** The Fault that retrieve throws for a failed job; the money is back already. */
export function failureFault({ code, message, isPolicy }: JobFailure): Fault {
  if (!isPolicy && code !== 'VIDEO_REQUEST_REFUSED') {
    return new Fault(code, { message, fields: { credits_refunded: true }, canRetry: false });
  }
  // A refusal of the content or the request has a body of its own, with the type of the refusal.
  const type = isPolicy ? 'provider_content_policy' : 'provider_request_refused';
  const error = { message, type, credits_refunded: true };
  return new Fault(code, { message, body: { error }, canRetry: false });
}
