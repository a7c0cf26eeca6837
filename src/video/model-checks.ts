/**
 * What one model allows of a request, and which fields its kind of pricing needs. All objections
 * are collected, so that a caller corrects a request once.
 */
import { z } from 'zod';
import type { VideoModelSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { DEFAULT_FACTOR, type Measured, frameSize, outputMs } from './quote.ts';
import { type VideoQueueRequest, type VideoQuoteRequest, mediaUrlsOf } from './video-requests.ts';

/** What the checks of quote and queue read. */
type Checked = Pick<
  VideoQuoteRequest,
  'duration' | 'aspect_ratio' | 'resolution' | 'upscale_factor' | 'audio' | 'video_url'
>;

class Objections {
  readonly #issues: { path: string[]; message: string }[] = [];

  add(field: string, message: string): void {
    this.#issues.push({ path: [field], message });
  }

  /** Throws 400 with the tree of all objections, when there are any. */
  raise(): void {
    const [first] = this.#issues;
    if (first === undefined) return;
    const issues = this.#issues.map((issue) => ({
      code: 'custom' as const,
      input: undefined,
      ...issue,
    }));
    throw new Fault('INVALID_REQUEST', {
      message: `${first.path[0]}: ${first.message}`,
      details: z.formatError(new z.ZodError(issues)),
      fields: { issues: issues.map(({ code, path, message }) => ({ code, path, message })) },
    });
  }
}

function oneOf(values: readonly string[]): string {
  return `This model takes ${values.join(', ')}`;
}

function checkUpscale(request: Checked, objections: Objections): void {
  if (request.resolution !== undefined) {
    objections.add('resolution', 'Upscale models take upscale_factor (1, 2 or 4), not resolution');
  }
  if (request.video_url === undefined) {
    objections.add('video_url', 'Required: the video to upscale');
  }
}

function checkGeneration(
  model: VideoModelSettings,
  request: Checked,
  objections: Objections,
): void {
  const { duration, resolution, aspect_ratio: ratio } = request;
  if (duration === undefined) objections.add('duration', `Required. ${oneOf(model.durations)}`);
  else if (!model.durations.includes(duration)) objections.add('duration', oneOf(model.durations));
  if (resolution !== undefined && !model.resolutions.includes(resolution)) {
    objections.add('resolution', oneOf(model.resolutions));
  }
  if (ratio !== undefined && !model.aspectRatios.includes(ratio)) {
    objections.add('aspect_ratio', oneOf(model.aspectRatios));
  }
  if (request.upscale_factor !== undefined) {
    objections.add('upscale_factor', 'Only upscale models take it');
  }
  if (request.audio === false && model.audio && !model.audioConfigurable) {
    objections.add('audio', 'This model always makes sound');
  }
  const { kind } = model.pricing;
  if (kind === 'duration-resolution' && resolution === undefined) {
    objections.add('resolution', `Required: the price depends on it. ${oneOf(model.resolutions)}`);
  }
  if ((kind === 'megapixel' || kind === 'tokens') && ratio === undefined) {
    objections.add(
      'aspect_ratio',
      `Required: the price depends on it. ${oneOf(model.aspectRatios)}`,
    );
  }
}

/** A shape that follows the source needs one. */
function checkAdaptive(request: Checked, hasReference: boolean, objections: Objections): void {
  const { aspect_ratio: ratio } = request;
  if ((ratio === 'adaptive' || ratio === 'auto') && !hasReference) {
    objections.add('aspect_ratio', `${ratio} follows a reference video, and none is given`);
  }
}

/** Faults: INVALID_REQUEST with every field that this model does not take as it is. */
export function checkQuote(model: VideoModelSettings, request: VideoQuoteRequest): void {
  const objections = new Objections();
  const reference = request.reference_video_total_duration;
  if (model.task === 'upscale') checkUpscale(request, objections);
  else {
    checkGeneration(model, request, objections);
    if (model.task === 'reference-to-video') {
      checkAdaptive(request, reference !== undefined, objections);
    } else if (reference !== undefined) {
      objections.add('reference_video_total_duration', 'Only reference-to-video models take it');
    }
    if (reference !== undefined && reference > model.maxReferenceSeconds) {
      const message = `This model takes ${model.maxReferenceSeconds} seconds of reference videos`;
      objections.add('reference_video_total_duration', message);
    }
  }
  objections.raise();
}

/** The same for a queue call, with its prompt and its media. */
export function checkQueue(model: VideoModelSettings, request: VideoQueueRequest): void {
  const objections = new Objections();
  if (model.task === 'upscale') checkUpscale(request, objections);
  else {
    checkGeneration(model, request, objections);
    checkPrompt(model, request, objections);
    if (model.task === 'image-to-video' && request.image_url === undefined) {
      objections.add('image_url', 'Required: this model makes a video of an image');
    }
    const references = (request.reference_video_urls ?? []).length;
    if (model.task === 'reference-to-video') {
      checkAdaptive(request, references > 0, objections);
    } else if (references > 0) {
      objections.add('reference_video_urls', 'Only reference-to-video models take them');
    }
  }
  objections.raise();
}

function checkPrompt(
  model: VideoModelSettings,
  request: VideoQueueRequest,
  objections: Objections,
): void {
  const { prompt = '', negative_prompt: negative = '' } = request;
  const most = model.promptCharacterLimit;
  if (prompt.length === 0) objections.add('prompt', `Required: 1 to ${most} characters`);
  if (prompt.length > most) objections.add('prompt', `Must have at most ${most} characters`);
  if (negative.length > most) {
    objections.add('negative_prompt', `Must have at most ${most} characters`);
  }
}

/** Measured reference videos against the model. Faults: 422 when they are too long altogether. */
export function checkReferenceLength(model: VideoModelSettings, referenceMs: number): void {
  if (referenceMs <= model.maxReferenceSeconds * 1_000) return;
  throw new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `The reference videos have ${Math.ceil(referenceMs / 1_000)} seconds: this model takes ${model.maxReferenceSeconds}`,
  });
}

/** `constraints` of the model in `GET /models`. */
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

/** `seconds` and `size` are what the price was made of: a caller does not add its own. */
const OWN_FIELDS = new Set(['model', 'webhook_url', 'consents', 'duration', 'seconds', 'size']);

/** A copy in which each media URL of `roles` is the name of its file part. */
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
 * The request as an engine gets it: media goes as files, so that a field which is nothing but media
 * is left out and one inside an object names its file; what is ours is left out; `seconds` and
 * `size` are added in the words of the video protocol.
 */
export function engineRequest(
  model: VideoModelSettings,
  request: VideoQueueRequest,
  measured: Measured,
): Record<string, unknown> {
  const roles = new Set(mediaUrlsOf(request).map(({ role }) => role));
  const isMedia = (name: string): boolean => roles.has(name) || roles.has(`${name}.0`);
  const kept = Object.entries(request)
    .filter(([name, value]) => value !== undefined && !OWN_FIELDS.has(name) && !isMedia(name))
    .map(([name, value]) => [name, withRoles(value, name, roles)]);
  const result: Record<string, unknown> = Object.fromEntries(kept);
  if (model.task === 'upscale') {
    // An engine with another default would make another film than the one that was priced.
    result['upscale_factor'] = request.upscale_factor ?? DEFAULT_FACTOR;
    return result;
  }
  const ms = request.duration === undefined ? 0 : outputMs(request, measured);
  if (ms > 0) result['seconds'] = String(ms / 1_000);
  const size = frameSize(model, request);
  const isFixed = request.aspect_ratio !== 'adaptive' && request.aspect_ratio !== 'auto';
  if (size !== undefined && isFixed) result['size'] = `${size.width}x${size.height}`;
  return result;
}
