/**
 * What a body of the video endpoints may look like, for every model. What one model allows of it is
 * checked in `model-checks.ts`.
 *
 * `null` for an optional field is the same as leaving it out. Queue and quote let unknown fields
 * through to the engine; retrieve and complete take no others.
 */
import { z } from 'zod';
import { VIDEO_ASPECT_RATIOS, VIDEO_DURATIONS, VIDEO_RESOLUTIONS } from '../config/config.ts';

// Bounds of every model; what one of them takes is in `model-checks.ts`.
const MAX_PROMPT_CHARACTERS = 20_000;
const MAX_REFERENCE_IMAGES = 30;
const MAX_REFERENCE_VIDEOS = 10;
const MAX_REFERENCE_AUDIOS = 10;
const MAX_DOCUMENTS = 1;
const MAX_ELEMENTS = 4;
const MAX_ELEMENT_IMAGES = 3;
const MAX_SCENE_IMAGES = 4;
const MAX_KEYFRAMES = 10;
/** Keyframes count in frames of this rate, whatever the rate of the result. */
const KEYFRAMES_PER_SECOND = 24;
/** service.md: reference videos of a quote. */
const MAX_REFERENCE_SECONDS = 150;
const MAX_WEBHOOK_CHARACTERS = 2_000;

/** The object without the fields that are `null`: absent and null mean the same. */
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

/** Fields that change the price: the same in a quote and in a queue call. */
const PRICED = {
  aspect_ratio: z.enum(VIDEO_ASPECT_RATIOS).optional(),
  resolution: z.enum(VIDEO_RESOLUTIONS).optional(),
  upscale_factor: z.literal([1, 2, 4], 'Must be 1, 2 or 4').optional(),
  audio: z.boolean().optional(),
  video_url: MediaUrl.optional(),
};

export type VideoQuoteRequest = z.infer<typeof VideoQuoteRequest>;
export const VideoQuoteRequest = z.preprocess(
  dropNulls,
  z.looseObject({
    model: z.string().min(1),
    // Needed by every model but upscalers; `checkQuote` says so.
    duration: Duration.optional(),
    ...PRICED,
    reference_video_total_duration: z.number().min(0).max(MAX_REFERENCE_SECONDS).optional(),
  }),
);

/** What the price and the checks of a model depend on, the same in a quote and in a queue call. */
export type PricedRequest = Pick<VideoQuoteRequest, 'duration' | keyof typeof PRICED>;

const Element = z.preprocess(
  dropNulls,
  z.looseObject({
    frontal_image_url: MediaUrl.optional(),
    reference_image_urls: z.array(MediaUrl).max(MAX_ELEMENT_IMAGES).optional(),
    video_url: MediaUrl.optional(),
  }),
);

const Keyframe = z.looseObject({ image_url: MediaUrl, frame_index: z.int().min(0) });

function checkKeyframes(request: Fields, context: z.RefinementCtx): void {
  const seen = new Set<number>();
  const seconds = /^(\d+)s$/.exec(request.duration ?? '')?.[1];
  const frames = seconds === undefined ? Infinity : Number(seconds) * KEYFRAMES_PER_SECOND;
  for (const [index, { frame_index: frame }] of (request.keyframes ?? []).entries()) {
    const object = (message: string): void => {
      context.addIssue({ code: 'custom', path: ['keyframes', index, 'frame_index'], message });
    };
    if (seen.has(frame)) object('Two keyframes have the same frame_index');
    if (frame > frames) {
      object(`Must be at most ${frames}: the duration times ${KEYFRAMES_PER_SECOND}`);
    }
    seen.add(frame);
  }
}

function checkReferenceAudio(request: Fields, context: z.RefinementCtx): void {
  if ((request.reference_audio_urls ?? []).length === 0) return;
  const others = [request.reference_image_urls, request.reference_video_urls];
  if (others.some((urls) => (urls ?? []).length > 0)) return;
  const message = 'Needs a reference image or a reference video beside it';
  context.addIssue({ code: 'custom', path: ['reference_audio_urls'], message });
}

type Fields = z.infer<typeof QueueFields>;
const QueueFields = z.looseObject({
  model: z.string().min(1),
  // Needed by every model but upscalers; `checkQueue` says so.
  prompt: z.string().max(MAX_PROMPT_CHARACTERS).optional(),
  duration: Duration.optional(),
  ...PRICED,
  negative_prompt: z.string().max(MAX_PROMPT_CHARACTERS).optional(),
  image_url: MediaUrl.optional(),
  end_image_url: MediaUrl.optional(),
  audio_url: MediaUrl.optional(),
  reference_image_urls: z.array(MediaUrl).max(MAX_REFERENCE_IMAGES).optional(),
  reference_video_urls: z.array(MediaUrl).max(MAX_REFERENCE_VIDEOS).optional(),
  reference_audio_urls: z.array(MediaUrl).max(MAX_REFERENCE_AUDIOS).optional(),
  reference_document_urls: z.array(MediaUrl).max(MAX_DOCUMENTS).optional(),
  elements: z.array(Element).max(MAX_ELEMENTS).optional(),
  scene_image_urls: z.array(MediaUrl).max(MAX_SCENE_IMAGES).optional(),
  keyframes: z.array(Keyframe).max(MAX_KEYFRAMES).optional(),
  omni_reference_task_type: z.enum(['auto', 'reference', 'edit', 'extend']).optional(),
  consents: z.record(z.string(), z.unknown()).optional(),
  webhook_url: z
    .string()
    .max(MAX_WEBHOOK_CHARACTERS)
    .refine((text) => URL.parse(text)?.protocol === 'https:', 'Must be an https URL')
    .optional(),
});

export type VideoQueueRequest = z.infer<typeof VideoQueueRequest>;
export const VideoQueueRequest = z.preprocess(
  dropNulls,
  QueueFields.superRefine((request, context) => {
    checkKeyframes(request, context);
    checkReferenceAudio(request, context);
  }),
);

const QueueId = z.string().min(1).max(100);
// Real clients send only the id.
const Lookup = z.strictObject({ model: z.string().min(1).optional(), queue_id: QueueId });

export type VideoRetrieveRequest = z.infer<typeof VideoRetrieveRequest>;
export const VideoRetrieveRequest = z.preprocess(
  dropNulls,
  Lookup.extend({ delete_media_on_completion: z.boolean().default(false) }),
);

export type VideoCompleteRequest = z.infer<typeof VideoCompleteRequest>;
export const VideoCompleteRequest = z.strictObject({
  model: z.string().min(1),
  queue_id: QueueId,
});

export type VideoCancelRequest = z.infer<typeof VideoCancelRequest>;
export const VideoCancelRequest = z.preprocess(dropNulls, Lookup);

/** Every media field of a queue call with its place, such as `elements.0.video_url`. */
export function mediaUrlsOf(request: VideoQueueRequest): { role: string; url: string }[] {
  const found: { role: string; url: string }[] = [];
  const walk = (value: unknown, path: string): void => {
    if (typeof value === 'string' && /(^|[._])[a-z_]*_urls?(\.\d+)?$/.test(path)) {
      if (path !== 'webhook_url' && isMediaUrl(value)) found.push({ role: path, url: value });
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, field] of Object.entries(value)) {
        walk(field, path === '' ? key : `${path}.${key}`);
      }
    }
  };
  const { consents: _consents, ...rest } = request;
  walk(rest, '');
  return found;
}
