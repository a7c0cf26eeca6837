/** The descriptions of the video generation endpoints in the API document. */
import { z } from 'zod';
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
const REFUNDED = z.literal(true).describe('What was set aside is back.');

const SOURCES: readonly FaultCode[] = [
  ...PICTURE_REFUSALS,
  'INVALID_AUDIO_FORMAT',
  'INVALID_VIDEO_FORMAT',
  'VIDEO_DURATION_TOO_LONG',
  'VIDEO_DURATION_TOO_SHORT',
];

export const FILMS = ['video/mp4', 'video/quicktime', 'video/webm'].map((type) =>
  bytesContent(type, '…'),
);

export const VIDEO_QUOTE: RouteDescription = {
  tag: 'Video',
  summary: 'Quote a price',
  about: 'Needs no key. What a model takes is in its `constraints` of `GET /models?type=video`.',
  request: jsonContent(VideoQuoteRequest, { model: 'reel-1', duration: '5s', resolution: '720p' }),
  response: jsonResponse(
    'The price in USD.',
    z.strictObject({ quote: Usd.describe('USD that the video would cost.') }),
    { quote: 0.25 },
  ),
  refusals: [...MODEL_REFUSALS, ...SOURCES, 'RATE_LIMIT_EXCEEDED'],
};

const Queued = z
  .strictObject({
    model: z.string().describe('Id of the model.'),
    queue_id: z.string().describe('Id of the request, to retrieve it by.'),
    download_url: z.string().optional().describe('Secret address of the result.'),
    webhook_secret: z.string().optional().describe('Signs calls of your webhook.'),
    quote: Usd.describe('USD set aside.'),
  })
  .meta({ id: 'QueuedVideo' });

const NeedsConsent = z
  .strictObject({
    error: z
      .strictObject({
        code: z.literal('needs_consent').describe('A word for programs.'),
        message: z.string().describe('A sentence for people.'),
      })
      .describe('The refusal.'),
    consent_flow: z.string().describe('The member of `consents` that agrees.'),
    face_media_roles: z.array(z.string()).describe('The media that need it.'),
    consent: z
      .strictObject({
        consent_version: z.string().describe('Version of the text, repeated in `consents`.'),
        policy_text: z.string().describe('The text.'),
      })
      .describe('What is agreed to.'),
    docs_url: z.string().describe('Where it is explained.'),
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
      ...jsonResponse('The request is queued.', Queued, {
        model: 'reel-1',
        queue_id: QUEUE_ID,
        quote: 0.25,
      }),
      headers: ['model'],
    },
    {
      status: 409,
      about: 'The model takes these media only with a consent, and here is what to agree to.',
      content: jsonContent(NeedsConsent, {
        error: {
          code: 'needs_consent',
          message: 'The model takes image_url only with your consent',
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
        'Whether it is made; a finished video comes as its bytes unless a `download_url` was given.',
      ),
    average_execution_time: Milliseconds.describe(
      'Milliseconds that videos of the model take, as a rule.',
    ),
    execution_duration: Milliseconds.describe('Milliseconds that this one has taken so far.'),
    progress: z.number().nullable().optional().describe('0 to 1.'),
    remaining_time: z
      .number()
      .nullable()
      .optional()
      .describe('Milliseconds that are left, by what the engine says; null where it says nothing.'),
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
        message: z.string().describe('A sentence for people.'),
        type: z
          .enum(['provider_content_policy', 'provider_request_refused'])
          .describe('Whether the content was refused, or the request as it was made.'),
        credits_refunded: REFUNDED,
      })
      .describe('Why there is no video.'),
  })
  .meta({ id: 'VideoPolicyRefusal' });

export const VIDEO_RETRIEVE: RouteDescription = {
  tag: 'Video',
  summary: 'Retrieve a video',
  about:
    'JSON while it is being made, then the video itself. `delete_media_on_completion` removes it once it was sent.',
  request: jsonContent(VideoRetrieveRequest, { model: 'reel-1', queue_id: QUEUE_ID }),
  response: [
    {
      status: 200,
      about: 'How far it is, or the video.',
      headers: ['rate', 'no-store'],
      someHeaders: ['range'],
      content: [...jsonContent(Progress, PROGRESS), ...FILMS],
    },
    {
      status: 422,
      about: 'The engine refused what was asked for; what was set aside is back.',
      content: jsonContent(PolicyRefusal, {
        error: {
          message: 'The prompt is against the policy of the engine',
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
  summary: 'Remove a finished video',
  destructive: true,
  request: jsonContent(VideoCompleteRequest, { model: 'reel-1', queue_id: QUEUE_ID }),
  response: jsonResponse(
    'The media is removed from storage.',
    z.strictObject({ success: z.boolean().describe('Whether it is gone.') }),
    {
      success: true,
    },
  ),
  refusals: ['MEDIA_NOT_FOUND', 'REQUEST_ID_NOT_FOUND', 'INFERENCE_FAILED'],
};

const Cancelled = z
  .strictObject({
    queue_id: z.string().describe('Id of the request.'),
    status: z.enum(['CANCELLED', 'FAILED']).describe('`FAILED`: it had failed before.'),
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
  response: jsonResponse('The request has ended and is not charged.', Cancelled, {
    queue_id: QUEUE_ID,
    status: 'CANCELLED',
    credits_refunded: true,
  }),
  refusals: ['MEDIA_NOT_FOUND', 'INVALID_MODEL', 'MODEL_NOT_FOUND'],
};

const Job = z.strictObject({
  queue_id: z.string().describe('Id of the request.'),
  model: z.string().describe('Id of the model.'),
  status: z.enum(['PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED']).describe('How far it is.'),
  progress: z.number().nullable().describe('0 to 1; null where the engine does not tell.'),
  quote: z.number().describe('USD that the video costs; refunded if the job fails.'),
  created_at: z.string().describe('When it was queued; ISO 8601, UTC.'),
  finished_at: z.string().optional().describe('When it was final; ISO 8601, UTC.'),
  execution_duration: z
    .number()
    .nullable()
    .describe('Milliseconds that the engine has worked on it; null before.'),
  media: z
    .strictObject({
      stored: z.boolean().describe('Whether it is still kept.'),
      expires_at: z.string().describe('Until when it is kept; ISO 8601, UTC.'),
    })
    .optional()
    .describe('The film, once there is one.'),
  error: z.string().optional().describe('Why it failed, a word of the error catalogue.'),
  credits_refunded: REFUNDED.optional(),
});
const Jobs = z
  .strictObject({
    object: z.literal('list').describe('Kind of the object.'),
    data: z.array(Job).describe('Your requests, newest first.'),
    has_more: z.boolean().describe('Whether there are older ones.'),
  })
  .meta({ id: 'VideoJobs' });

export const JobsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(100).default(20).describe('Items, 1 to 100.'),
  before: z.iso
    .datetime({ offset: true })
    .optional()
    .describe('Only videos queued before this time, ISO 8601 with its offset.'),
});

export const VIDEO_JOBS: RouteDescription = {
  tag: 'Video',
  summary: 'List videos',
  query: JobsQuery,
  response: jsonResponse('Own requests, newest first.', Jobs, {
    object: 'list',
    data: [],
    has_more: false,
  }),
};
