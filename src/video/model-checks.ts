/**
 * Validates a request against one model and its kind of pricing. All problems are collected, so
 * that a caller can fix them at once.
 */
import type { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { type FlatIssue, refuseIssues } from '../json/validation.ts';
import { DEFAULT_FACTOR, type Measured, frameSize, outputMs } from './video-pricing.ts';
import {
  type PricedRequest,
  type VideoQueueRequest,
  type VideoQuoteRequest,
  mediaUrlsOf,
} from './video-requests.ts';

export function requireVideoSettings(model: {
  readonly id: string;
  readonly video?: VideoModelSettings | undefined;
}): VideoModelSettings {
  if (model.video !== undefined) return model.video;
  throw new Fault('MODEL_OFFLINE', {
    message: `The model "${model.id}" has no video settings and is not sold`,
    canRetry: false,
  });
}

type AddIssue = (field: string, message: string) => void;

/** Faults: INVALID_REQUEST with all options that the model does not support. */
function checkAll(
  model: VideoModelSettings,
  request: PricedRequest,
  check: (addIssue: AddIssue) => void,
): void {
  const issues: FlatIssue[] = [];
  const addIssue: AddIssue = (field, message) => {
    issues.push({ code: 'custom', path: [field], message });
  };
  if (model.task === 'upscale') checkUpscale(request, addIssue);
  else {
    checkGeneration(model, request, addIssue);
    check(addIssue);
  }
  if (issues.length > 0) throw refuseIssues(issues);
}

function oneOf(values: readonly string[]): string {
  return `This model supports ${values.join(', ')}`;
}

function checkUpscale(request: PricedRequest, addIssue: AddIssue): void {
  if (request.resolution !== undefined) {
    addIssue('resolution', 'Upscale models use upscale_factor (1, 2 or 4), not resolution');
  }
  if (request.video_url === undefined) {
    addIssue('video_url', 'Required: the video to upscale');
  }
}

function checkGeneration(model: VideoModelSettings, request: PricedRequest, addIssue: AddIssue) {
  const { duration, resolution, aspect_ratio: ratio } = request;
  if (duration === undefined) addIssue('duration', `Required. ${oneOf(model.durations)}`);
  else if (!model.durations.includes(duration)) addIssue('duration', oneOf(model.durations));
  if (resolution !== undefined && !model.resolutions.includes(resolution)) {
    addIssue('resolution', oneOf(model.resolutions));
  }
  if (ratio !== undefined && !model.aspectRatios.includes(ratio)) {
    addIssue('aspect_ratio', oneOf(model.aspectRatios));
  }
  if (request.upscale_factor !== undefined) {
    addIssue('upscale_factor', 'Only upscale models support it');
  }
  if (request.audio === false && model.audio && !model.audioConfigurable) {
    addIssue('audio', 'This model always produces sound');
  }
  const { kind } = model.pricing;
  if (kind === 'duration-resolution' && resolution === undefined) {
    addIssue('resolution', `Required: the price depends on it. ${oneOf(model.resolutions)}`);
  }
  if ((kind === 'megapixel' || kind === 'tokens') && ratio === undefined) {
    addIssue('aspect_ratio', `Required: the price depends on it. ${oneOf(model.aspectRatios)}`);
  }
}

/** Checks the reference videos of `field`; an aspect ratio that follows the source needs one. */
function checkReferences(
  model: VideoModelSettings,
  { aspect_ratio: ratio }: PricedRequest,
  [field, isGiven]: readonly ['reference_video_total_duration' | 'reference_video_urls', boolean],
  addIssue: AddIssue,
): void {
  if (model.task !== 'reference-to-video') {
    if (isGiven) addIssue(field, 'Only reference-to-video models use reference videos');
  } else if ((ratio === 'adaptive' || ratio === 'auto') && !isGiven) {
    addIssue('aspect_ratio', `${ratio} needs a reference video`);
  }
}

export function checkQuote(model: VideoModelSettings, request: VideoQuoteRequest): void {
  const seconds = request.reference_video_total_duration;
  const field = 'reference_video_total_duration';
  checkAll(model, request, (addIssue) => {
    checkReferences(model, request, [field, seconds !== undefined], addIssue);
    if (seconds === undefined || seconds <= model.maxReferenceSeconds) return;
    addIssue(
      field,
      `This model accepts at most ${model.maxReferenceSeconds} seconds of reference videos`,
    );
  });
}

export function checkQueue(model: VideoModelSettings, request: VideoQueueRequest): void {
  checkAll(model, request, (addIssue) => {
    checkPrompt(model, request, addIssue);
    if (model.task === 'image-to-video' && request.image_url === undefined) {
      addIssue('image_url', 'Required: this model makes a video from an image');
    }
    const hasReferences = (request.reference_video_urls ?? []).length > 0;
    checkReferences(model, request, ['reference_video_urls', hasReferences], addIssue);
  });
}

function checkPrompt(model: VideoModelSettings, request: VideoQueueRequest, addIssue: AddIssue) {
  const { prompt = '', negative_prompt: negative = '' } = request;
  const most = model.promptCharacterLimit;
  if (prompt.length === 0) addIssue('prompt', `Required: 1 to ${most} characters`);
  if (prompt.length > most) addIssue('prompt', `Must have at most ${most} characters`);
  if (negative.length > most) {
    addIssue('negative_prompt', `Must have at most ${most} characters`);
  }
}

/** Checks the total length of reference videos. Faults: 422 if they are too long. */
export function checkReferenceLength(model: VideoModelSettings, referenceMs: number): void {
  if (referenceMs <= model.maxReferenceSeconds * 1_000) return;
  throw new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `The reference videos have ${Math.ceil(referenceMs / 1_000)} seconds: this model accepts at most ${model.maxReferenceSeconds}`,
  });
}

export function videoConstraints(model: VideoModelSettings): object {
  const type =
    model.task === 'text-to-video' || model.task === 'image-to-video' ? model.task : 'video';
  return {
    model_type: type,
    durations: model.durations,
    resolutions: model.resolutions,
    aspect_ratios: model.aspectRatios,
    audio: model.audio,
    audio_configurable: model.audioConfigurable,
    prompt_character_limit: model.promptCharacterLimit,
  };
}

/** `seconds` and `size` are derived from the priced request, so a caller cannot set them. */
const OWN_FIELDS = new Set(['model', 'webhook_url', 'consents', 'duration', 'seconds', 'size']);

/** Engine-specific fields that could request more videos, or longer or faster ones, than quoted. */
const BEYOND_QUOTE = new Set([
  'n',
  'batch_size',
  'num_videos',
  'num_videos_per_prompt',
  'num_outputs',
  'num_outputs_per_prompt',
  'samples',
  'frames',
  'num_frames',
  'video_length',
  'fps',
  'frame_rate',
  'frames_per_second',
]);

/** Engine-specific fields that could request another frame size than the priced one. */
const BESIDE_SIZE = new Set(['width', 'height', 'image_size', 'video_size', 'megapixels']);

function isPassed(name: string, { task, resolutions }: VideoModelSettings): boolean {
  if (OWN_FIELDS.has(name) || BEYOND_QUOTE.has(name)) return false;
  return (task !== 'upscale' && resolutions.length === 0) || !BESIDE_SIZE.has(name);
}

/** A copy in which each media URL of `roles` is replaced by the name of its file part. */
function withRoles(value: unknown, path: string, roles: ReadonlySet<string>): unknown {
  if (roles.has(path)) return path;
  if (Array.isArray(value))
    return value.map((one, index) => withRoles(one, `${path}.${index}`, roles));
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value);
  return Object.fromEntries(
    fields.map(([key, one]) => [key, withRoles(one, `${path}.${key}`, roles)]),
  );
}

/**
 * The request for an engine. Media is sent as files: a media field is omitted, and a media member
 * inside an object contains the name of its file. Fields of the gateway are omitted, and those that
 * could request more than the quote covers; `seconds` and `size` of the video protocol are added.
 */
export function engineRequest(
  model: VideoModelSettings,
  request: VideoQueueRequest,
  measured: Measured,
): Record<string, unknown> {
  const roles = new Set(mediaUrlsOf(request).map(({ role }) => role));
  const isMedia = (name: string): boolean => roles.has(name) || roles.has(`${name}.0`);
  const kept = Object.entries(request)
    .filter(([name, value]) => value !== undefined && isPassed(name, model) && !isMedia(name))
    .map(([name, value]) => [name, withRoles(value, name, roles)]);
  const result: Record<string, unknown> = Object.fromEntries(kept);
  if (model.task === 'upscale') {
    // Explicit, because the engine may have another default than the price.
    result['upscale_factor'] = request.upscale_factor ?? DEFAULT_FACTOR;
    return result;
  }
  const ms = request.duration === undefined ? 0 : outputMs(request, measured);
  if (ms > 0) result['seconds'] = String(ms / 1_000);
  // Without a ratio the size is that of the first one; `frameSize` would return the largest.
  const usual = model.aspectRatios.find((ratio) => ratio.includes(':'));
  const size = frameSize(model, { ...request, aspect_ratio: request.aspect_ratio ?? usual });
  const isFixed = request.aspect_ratio !== 'adaptive' && request.aspect_ratio !== 'auto';
  if (size !== undefined && isFixed) result['size'] = `${size.width}x${size.height}`;
  return result;
}
