/**
 * Schemas of the bodies of the video endpoints, for all models. `model-checks.ts` applies the
 * limits of one model.
 *
 * `null` for an optional field equals a missing field. Queue and quote forward unknown fields to
 * the engine; retrieve and complete reject them.
 */
import * as z from 'zod';
import { VIDEO_ASPECT_RATIOS, VIDEO_DURATIONS, VIDEO_RESOLUTIONS } from '../config/config.ts';

// Limits for all models; the limits of one model are in `model-checks.ts`.
const MAX_PROMPT_CHARACTERS = 20_000;
const MAX_REFERENCE_IMAGES = 30;
const MAX_REFERENCE_VIDEOS = 10;
const MAX_REFERENCE_AUDIOS = 10;
const MAX_DOCUMENTS = 1;
const MAX_ELEMENTS = 4;
const MAX_ELEMENT_IMAGES = 3;
const MAX_SCENE_IMAGES = 4;
const MAX_KEYFRAMES = 10;
/** Files per request: the fields here allow 89, and unknown fields may contain media too. */
const MAX_MEDIA = 100;
/** Keyframe positions count frames at this rate, whatever the rate of the result is. */
const KEYFRAMES_PER_SECOND = 24;
/** Limit of reference videos in a quote, from the API specification. */
const MAX_REFERENCE_SECONDS = 150;
const MAX_WEBHOOK_CHARACTERS = 2_000;

function dropNulls(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null));
}

function isMediaUrl(text: string): boolean {
  if (text.startsWith('data:'))
    return /^data:[a-z]+\/[a-z0-9.+-]+(;[a-z0-9=.+-]+)*;base64,/i.test(text);
  const url = URL.parse(text);
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:');
}

const MediaUrl = z.string().refine(isMediaUrl, 'Must be an http(s) URL or a base64 data URL');

const Duration = z
  .string()
  .refine((text) => VIDEO_DURATIONS.includes(text), 'Must be 1s to 30s, -1, auto, Auto or 1 gen');

const PRICED = {
  aspect_ratio: z
    .enum(VIDEO_ASPECT_RATIOS)
    .optional()
    .describe(
      'Aspect ratio. Some models need it for their price; `adaptive` and `auto` use that of the source.',
    ),
  resolution: z
    .enum(VIDEO_RESOLUTIONS)
    .optional()
    .describe('Resolution; the values depend on the model. Some models need it for their price.'),
  upscale_factor: z
    .literal([1, 2, 4], 'Must be 1, 2 or 4')
    .optional()
    .describe('Upscale models: factor of width and height. Default 2.'),
  audio: z
    .boolean()
    .optional()
    .describe('Whether the video has sound, for models with optional sound. Default true.'),
  video_url: MediaUrl.optional().describe(
    'Source video for upscale and edit models: http(s) URL or base64 data URL.',
  ),
};

export type VideoQuoteRequest = z.infer<typeof VideoQuoteRequest>;
export const VideoQuoteRequest = z.preprocess(
  dropNulls,
  z.looseObject({
    model: z.string().min(1).describe('Id of a video model.'),
    // Required by every model except upscalers; `checkQuote` validates it.
    duration: Duration.optional().describe(
      'Length of the video: `1s` to `30s`, or `auto` or `-1` for that of the source; the values depend on the model. Required except for upscale models.',
    ),
    ...PRICED,
    reference_video_total_duration: z
      .number()
      .min(0)
      .max(MAX_REFERENCE_SECONDS)
      .optional()
      .describe(
        'Total seconds of all reference videos, at most 150, for models whose price includes them.',
      ),
  }),
);

export type PricedRequest = Pick<VideoQuoteRequest, 'duration' | keyof typeof PRICED>;

const Element = z.preprocess(
  dropNulls,
  z.looseObject({
    frontal_image_url: MediaUrl.optional().describe(
      'Front view of the element: http(s) URL or base64 data URL.',
    ),
    reference_image_urls: z
      .array(MediaUrl)
      .max(MAX_ELEMENT_IMAGES)
      .optional()
      .describe('Other views of the element.'),
    video_url: MediaUrl.optional().describe('Video of the element.'),
  }),
);

const Keyframe = z.looseObject({
  image_url: MediaUrl.describe('Image: http(s) URL or base64 data URL.'),
  frame_index: z
    .int()
    .min(0)
    .describe('Position in the video, from 0, in frames at 24 per second.'),
});

function checkKeyframes(request: Fields, context: z.RefinementCtx): void {
  const seen = new Set<number>();
  const seconds = /^(\d+)s$/.exec(request.duration ?? '')?.[1];
  const frames = seconds === undefined ? Infinity : Number(seconds) * KEYFRAMES_PER_SECOND;
  for (const [index, { frame_index: frame }] of (request.keyframes ?? []).entries()) {
    const addIssue = (message: string): void => {
      context.addIssue({ code: 'custom', path: ['keyframes', index, 'frame_index'], message });
    };
    if (seen.has(frame)) addIssue('Must be unique: another keyframe has the same frame_index');
    if (frame > frames) {
      addIssue(`Must be at most ${frames}: the duration times ${KEYFRAMES_PER_SECOND}`);
    }
    seen.add(frame);
  }
}

function checkMediaCount(request: Fields, context: z.RefinementCtx): void {
  const count = mediaUrlsOf(request).length;
  if (count <= MAX_MEDIA) return;
  const message = `Must have at most ${MAX_MEDIA} media files, not ${count}`;
  context.addIssue({ code: 'custom', path: [], message });
}

function checkReferenceAudio(request: Fields, context: z.RefinementCtx): void {
  if ((request.reference_audio_urls ?? []).length === 0) return;
  const others = [request.reference_image_urls, request.reference_video_urls];
  if (others.some((urls) => (urls ?? []).length > 0)) return;
  const message = 'Needs a reference image or a reference video';
  context.addIssue({ code: 'custom', path: ['reference_audio_urls'], message });
}

type Fields = z.infer<typeof QueueFields>;
const QueueFields = z.looseObject({
  model: z.string().min(1).describe('Id of a video model.'),
  // Required by every model except upscalers; `checkQueue` validates it.
  prompt: z
    .string()
    .max(MAX_PROMPT_CHARACTERS)
    .optional()
    .describe('Content of the video. Required except for upscale models.'),
  duration: Duration.optional().describe(
    'Length of the video: `1s` to `30s`, or `auto` or `-1` for that of the source; the values depend on the model. Required except for upscale models.',
  ),
  ...PRICED,
  negative_prompt: z
    .string()
    .max(MAX_PROMPT_CHARACTERS)
    .optional()
    .describe('Content to avoid, for models that support it.'),
  image_url: MediaUrl.optional().describe('First image: http(s) URL or base64 data URL.'),
  end_image_url: MediaUrl.optional().describe('Last image.'),
  audio_url: MediaUrl.optional().describe('Sound that the video follows.'),
  reference_image_urls: z
    .array(MediaUrl)
    .max(MAX_REFERENCE_IMAGES)
    .optional()
    .describe('Images of persons and things to show.'),
  reference_video_urls: z
    .array(MediaUrl)
    .max(MAX_REFERENCE_VIDEOS)
    .optional()
    .describe('Reference videos.'),
  reference_audio_urls: z
    .array(MediaUrl)
    .max(MAX_REFERENCE_AUDIOS)
    .optional()
    .describe('Reference voices and sounds; needs a reference image or video.'),
  reference_document_urls: z
    .array(MediaUrl)
    .max(MAX_DOCUMENTS)
    .optional()
    .describe('Reference documents.'),
  elements: z
    .array(Element)
    .max(MAX_ELEMENTS)
    .optional()
    .describe('Persons and things that stay the same in the whole video.'),
  scene_image_urls: z
    .array(MediaUrl)
    .max(MAX_SCENE_IMAGES)
    .optional()
    .describe('Images of the scenes.'),
  keyframes: z.array(Keyframe).max(MAX_KEYFRAMES).optional().describe('Images at given positions.'),
  omni_reference_task_type: z
    .enum(['auto', 'reference', 'edit', 'extend'])
    .optional()
    .describe('Use of the references, for models with several tasks.'),
  consents: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('Consents, under the name in `consent_flow` of a 409 response.'),
  webhook_url: z
    .string()
    .max(MAX_WEBHOOK_CHARACTERS)
    .refine((text) => URL.parse(text)?.protocol === 'https:', 'Must be an https URL')
    .optional()
    .describe(
      'An https URL that is called when the job has ended; the call is signed with `webhook_secret` of the response.',
    ),
});

export type VideoQueueRequest = z.infer<typeof VideoQueueRequest>;
export const VideoQueueRequest = z.preprocess(
  dropNulls,
  QueueFields.superRefine((request, context) => {
    checkKeyframes(request, context);
    checkReferenceAudio(request, context);
    checkMediaCount(request, context);
  }),
);

const QueueId = z.string().min(1).max(100);
const Lookup = z.strictObject({
  model: z.string().min(1).optional().describe('Id of the model; optional.'),
  queue_id: QueueId.describe('Id of the job, from `POST /video/queue`.'),
});

export type VideoRetrieveRequest = z.infer<typeof VideoRetrieveRequest>;
export const VideoRetrieveRequest = z.preprocess(
  dropNulls,
  Lookup.extend({
    delete_media_on_completion: z
      .boolean()
      .default(false)
      .describe('Whether the video is deleted from storage after it was sent. Default false.'),
  }),
);

export type VideoCompleteRequest = z.infer<typeof VideoCompleteRequest>;
export const VideoCompleteRequest = z.strictObject({
  model: z.string().min(1).describe('Id of the model of the job.'),
  queue_id: QueueId.describe('Id of the job, from `POST /video/queue`.'),
});

export type VideoCancelRequest = z.infer<typeof VideoCancelRequest>;
export const VideoCancelRequest = z.preprocess(dropNulls, Lookup);

/** Every media URL of a queue request with its path, such as `elements.0.video_url`. */
export function mediaUrlsOf(request: VideoQueueRequest): { role: string; url: string }[] {
  const found: { role: string; url: string }[] = [];
  // `name` is the last member name of the path, ignoring list indexes.
  const walk = (value: unknown, path: string, name: string): void => {
    if (typeof value === 'string' && isMediaMember(name)) {
      if (path !== 'webhook_url' && isMediaUrl(value)) found.push({ role: path, url: value });
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, field] of Object.entries(value)) {
        walk(field, path === '' ? key : `${path}.${key}`, /^\d+$/.test(key) ? name : key);
      }
    }
  };
  const { consents: _consents, ...rest } = request;
  walk(rest, '', '');
  return found;
}

/** Matches `image_url`, `reference_video_urls`, `_url`. */
function isMediaMember(name: string): boolean {
  const suffix = MEDIA_SUFFIXES.find((one) => name.endsWith(one));
  if (suffix === undefined) return false;
  const stem = name.slice(0, -suffix.length);
  const lastWord = Math.max(stem.lastIndexOf('.'), stem.lastIndexOf('_')) + 1;
  return /^[a-z]*$/.test(stem.slice(lastWord));
}

const MEDIA_SUFFIXES = ['_url', '_urls'];
