/** The descriptions of the video generation endpoints in the API document. */
import * as z from 'zod';
import type { FaultCode } from '../../core/faults.ts';
import {
  VideoCancelRequest,
  VideoCompleteRequest,
  VideoQueueRequest,
  VideoQuoteRequest,
  VideoRetrieveRequest,
} from '../video-requests.ts';
import {
  type RouteDescription,
  bytesContent,
  jsonResponse,
  jsonContent,
} from '../../http/describe.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';

const QUEUE_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';
const Usd = z.number().min(0);
const Milliseconds = z.number().min(0);
const REFUNDED = z.literal(true).describe('The charge is refunded, or the hold is released.');

const SOURCES: readonly FaultCode[] = [
  ...PICTURE_REFUSALS,
  'INVALID_AUDIO_FORMAT',
  'INVALID_VIDEO_FORMAT',
  'VIDEO_DURATION_TOO_LONG',
  'VIDEO_DURATION_TOO_SHORT',
];

export const VIDEOS = ['video/mp4', 'video/quicktime', 'video/webm'].map((type) =>
  bytesContent(type, '…'),
);

export const VIDEO_QUOTE: RouteDescription = {
  tag: 'Video',
  summary: 'Quote a price',
  about:
    'Needs no key. `GET /models?type=video` lists the supported values of a model in `constraints`.',
  request: jsonContent(VideoQuoteRequest, { model: 'reel-1', duration: '5s', resolution: '720p' }),
  response: jsonResponse(
    'The price in USD.',
    z.strictObject({ quote: Usd.describe('Price of the video in USD.') }),
    { quote: 0.25 },
  ),
  refusals: [...MODEL_REFUSALS, ...SOURCES, 'RATE_LIMIT_EXCEEDED'],
};

const Queued = z
  .strictObject({
    model: z.string().describe('Id of the model.'),
    queue_id: z.string().describe('Id of the job, for `POST /video/retrieve`.'),
    download_url: z.string().optional().describe('Secret URL of the result.'),
    webhook_secret: z
      .string()
      .optional()
      .describe('Secret to verify the signature of the webhook call.'),
    quote: Usd.describe('Price in USD.'),
  })
  .meta({ id: 'QueuedVideo' });

const NeedsConsent = z
  .strictObject({
    error: z
      .strictObject({
        code: z.literal('needs_consent').describe('Code for programs.'),
        message: z.string().describe('Text for people.'),
      })
      .describe('The error.'),
    consent_flow: z.string().describe('Name of the member of `consents`.'),
    face_media_roles: z.array(z.string()).describe('Media fields that need the consent.'),
    consent: z
      .strictObject({
        consent_version: z.string().describe('Version of the policy, to repeat in `consents`.'),
        policy_text: z.string().describe('Text of the policy.'),
      })
      .describe('The policy.'),
    docs_url: z.string().describe('URL of the documentation.'),
  })
  .meta({ id: 'NeedsConsent' });

export const VIDEO_QUEUE: RouteDescription = {
  tag: 'Video',
  summary: 'Queue a video',
  about:
    'Charges the quoted price: with an API key now, with a wallet when an engine accepts the job. A failed or cancelled job is refunded.',
  request: jsonContent(VideoQueueRequest, {
    model: 'reel-1',
    prompt: 'A lighthouse at dawn',
    duration: '5s',
  }),
  response: [
    {
      ...jsonResponse('The job is queued.', Queued, {
        model: 'reel-1',
        queue_id: QUEUE_ID,
        quote: 0.25,
      }),
      headers: ['model'],
    },
    {
      status: 409,
      about: 'The model accepts these media only with a consent to the policy in the response.',
      content: jsonContent(NeedsConsent, {
        error: {
          code: 'needs_consent',
          message: 'The model reel-1 accepts image_url only with your consent',
        },
        consent_flow: 'face_media',
        face_media_roles: ['image_url'],
        consent: { consent_version: 'v1', policy_text: 'I may use the likeness of who is shown.' },
        docs_url: 'https://api.example.com/docs',
      }),
    },
  ],
  refusals: [...MODEL_REFUSALS, ...SOURCES, 'NEEDS_CONSENT'],
};

const Progress = z
  .strictObject({
    status: z
      .enum(['PROCESSING', 'COMPLETED'])
      .describe(
        'State of the video; a finished video without `download_url` is sent as bytes instead of JSON.',
      ),
    average_execution_time: Milliseconds.describe(
      '80th percentile of the duration of recent jobs of the model, in milliseconds.',
    ),
    execution_duration: Milliseconds.describe('Milliseconds since the job began.'),
    progress: z.number().nullable().optional().describe('Progress from 0 to 1.'),
    remaining_time: z
      .number()
      .nullable()
      .optional()
      .describe('Estimated milliseconds until the end; null without an estimate.'),
  })
  .meta({ id: 'VideoProgress' });
const PROGRESS = {
  status: 'PROCESSING',
  average_execution_time: 60000,
  execution_duration: 12000,
};

const PolicyRefusal = z
  .strictObject({
    error: z
      .strictObject({
        message: z.string().describe('Text for people.'),
        type: z
          .enum(['provider_content_policy', 'provider_request_refused'])
          .describe('Whether the engine rejected the content or the request.'),
        credits_refunded: REFUNDED,
      })
      .describe('The reason of the failure.'),
  })
  .meta({ id: 'VideoPolicyRefusal' });

export const VIDEO_RETRIEVE: RouteDescription = {
  tag: 'Video',
  summary: 'Retrieve a video',
  about:
    'Returns JSON until the video is finished, then the video. `delete_media_on_completion` deletes it after it was sent.',
  request: jsonContent(VideoRetrieveRequest, { model: 'reel-1', queue_id: QUEUE_ID }),
  response: [
    {
      status: 200,
      about: 'The progress, or the video.',
      headers: ['rate', 'no-store'],
      someHeaders: ['range'],
      content: [...jsonContent(Progress, PROGRESS), ...VIDEOS],
    },
    {
      status: 422,
      about: 'The engine rejected the request, and the charge is refunded.',
      content: jsonContent(PolicyRefusal, {
        error: {
          message: 'The prompt violates the policy of the engine',
          type: 'provider_content_policy',
          credits_refunded: true,
        },
      }),
    },
  ],
  refusals: [
    'MEDIA_NOT_FOUND',
    'INVALID_MODEL',
    'MODEL_NOT_FOUND',
    'UNAUTHORIZED',
    'CONTENT_POLICY_VIOLATION',
    'VIDEO_REQUEST_REFUSED',
    'VIDEO_CANCELLED',
    'INFERENCE_FAILED',
    'MODEL_OFFLINE',
  ],
};

export const VIDEO_COMPLETE: RouteDescription = {
  tag: 'Video',
  summary: 'Delete a finished video',
  destructive: true,
  request: jsonContent(VideoCompleteRequest, { model: 'reel-1', queue_id: QUEUE_ID }),
  response: jsonResponse(
    'The video is deleted from storage.',
    z.strictObject({ success: z.boolean().describe('Always `true`.') }),
    {
      success: true,
    },
  ),
  refusals: ['MEDIA_NOT_FOUND', 'REQUEST_ID_NOT_FOUND', 'INFERENCE_FAILED'],
};

const Cancelled = z
  .strictObject({
    queue_id: z.string().describe('Id of the job.'),
    status: z.enum(['CANCELLED', 'FAILED']).describe('`FAILED`: the job had failed before.'),
    credits_refunded: REFUNDED,
  })
  .meta({ id: 'CancelledVideo' });

export const VIDEO_CANCEL: RouteDescription = {
  tag: 'Video',
  summary: 'Cancel a video',
  destructive: true,
  about:
    'Cancels a job that is not complete: refunds the charge or releases the hold at once. A completed video cannot be cancelled (400). Repeating a cancel is safe.',
  request: jsonContent(VideoCancelRequest, { queue_id: QUEUE_ID }),
  response: jsonResponse('The job has ended and costs nothing.', Cancelled, {
    queue_id: QUEUE_ID,
    status: 'CANCELLED',
    credits_refunded: true,
  }),
  refusals: ['MEDIA_NOT_FOUND', 'INVALID_MODEL', 'MODEL_NOT_FOUND'],
};

const Job = z.strictObject({
  queue_id: z.string().describe('Id of the job.'),
  model: z.string().describe('Id of the model.'),
  status: z.enum(['PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED']).describe('State of the job.'),
  progress: z
    .number()
    .nullable()
    .describe('Progress from 0 to 1; null if the engine does not report it.'),
  quote: z.number().describe('Price in USD; refunded if the job fails.'),
  created_at: z.string().describe('Time at which the job was queued; ISO 8601, UTC.'),
  finished_at: z.string().optional().describe('Time at which the job ended; ISO 8601, UTC.'),
  execution_duration: z
    .number()
    .nullable()
    .describe('Duration of the job at the engine in milliseconds.'),
  media: z
    .strictObject({
      stored: z.boolean().describe('Whether the video is still stored.'),
      expires_at: z.string().describe('Time at which the video is deleted; ISO 8601, UTC.'),
    })
    .optional()
    .describe('The finished video.'),
  error: z.string().optional().describe('Reason of the failure.'),
  credits_refunded: REFUNDED.optional(),
});
const Jobs = z
  .strictObject({
    object: z.literal('list').describe('Kind of the object.'),
    data: z.array(Job).describe('Jobs of the account, newest first.'),
    has_more: z.boolean().describe('Whether there are older jobs.'),
  })
  .meta({ id: 'VideoJobs' });

export const JobsQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(100)
    .default(20)
    .describe('Items, 1 to 100; more if several were queued at the time of the last one.'),
  before: z.iso
    .datetime({ offset: true })
    .optional()
    .describe('Only jobs queued before this time, ISO 8601 with offset.'),
});

export const VIDEO_JOBS: RouteDescription = {
  tag: 'Video',
  summary: 'List videos',
  query: JobsQuery,
  response: jsonResponse('Jobs of the account, newest first.', Jobs, {
    object: 'list',
    data: [],
    has_more: false,
  }),
};
