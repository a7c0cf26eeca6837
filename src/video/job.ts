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
import { assert } from '../core/assert.ts';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { type Nano, nano } from '../core/money.ts';
import type { Row } from '../db/db.ts';
import type { EngineRef } from '../engines/media/media.ts';

const JobState = z.enum([
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
  return { code, message: `${message}; nothing was charged`, isPolicy };
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

export interface VideoJob extends EngineRef {
  /** The `queue_id` of the wire. */
  readonly id: string;
  readonly accountId: string;
  /** Empty for a wallet. */
  readonly keyId: string;
  readonly modelId: string;
  readonly state: JobState;
  readonly quoteNano: Nano;
  /** The request without its media. */
  readonly request: Readonly<Record<string, unknown>>;
  readonly inputs: readonly JobInput[];
  /** Orders that an engine took. */
  readonly attempts: number;
  /** Orders that may have reached an engine and whose answer is lost. */
  readonly unclear: number;
  /** When the engine fell silent; 0 while it answers. */
  readonly silentSinceMs: number;
  /** From 0 to 1. */
  readonly fraction: number;
  readonly createdMs: number;
  /** When the engine took it; 0 before. */
  readonly startedMs: number;
  readonly finishedMs: number;
  readonly executionMs: number;
  readonly failure: JobFailure | null;
  readonly mediaBytes: number;
  readonly mediaType: string;
  readonly mediaUntilMs: number;
  readonly hasMedia: boolean;
  readonly hasDownload: boolean;
  readonly webhookUrl: string;
  readonly webhookAttempts: number;
}

/** A job as it is first written; everything else begins at nothing. */
export type NewJob = Pick<
  VideoJob,
  | 'id'
  | 'accountId'
  | 'keyId'
  | 'modelId'
  | 'quoteNano'
  | 'request'
  | 'inputs'
  | 'createdMs'
  | 'webhookUrl'
> & { readonly inputBytes: number; readonly downloadHash: string | null };

const Request = z.record(z.string(), z.unknown());

/** Builds a job from a row of `video_job`. */
export function jobOf(row: Row): VideoJob {
  const text = (name: string): string => {
    const value = row[name];
    assert(typeof value === 'string', `video_job.${name} is text`);
    return value;
  };
  const big = (name: string): bigint => {
    const value = row[name];
    assert(typeof value === 'bigint', `video_job.${name} is a number`);
    return value;
  };
  const number = (name: string): number => Number(big(name));
  const failure = text('failure');
  return {
    id: text('id'),
    accountId: text('account_id'),
    keyId: text('key_id'),
    modelId: text('model_id'),
    state: JobState.parse(text('state')),
    quoteNano: nano(big('quote_nano')),
    request: Request.parse(JSON.parse(text('request'))),
    inputs: z.array(JobInput).parse(JSON.parse(text('inputs'))),
    engine: text('engine'),
    engineModel: text('engine_model'),
    engineJobId: text('engine_job_id'),
    attempts: number('attempts'),
    unclear: number('unclear'),
    silentSinceMs: number('silent_since_ms'),
    fraction: number('progress_ppm') / 1e6,
    createdMs: number('created_ms'),
    startedMs: number('started_ms'),
    finishedMs: number('finished_ms'),
    executionMs: number('execution_ms'),
    failure: failure === '' ? null : JobFailure.parse(JSON.parse(failure)),
    mediaBytes: number('media_bytes'),
    mediaType: text('media_type'),
    mediaUntilMs: number('media_until_ms'),
    hasMedia: number('has_media') === 1,
    hasDownload: row['download_hash'] !== null,
    webhookUrl: text('webhook_url'),
    webhookAttempts: number('webhook_attempts'),
  };
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
  // decisions.md 1, "Retrieve 422".
  const type = isPolicy ? 'provider_content_policy' : 'provider_request_refused';
  const error = { message, type, credits_refunded: true };
  return new Fault(code, { message, body: { error }, canRetry: false });
}
