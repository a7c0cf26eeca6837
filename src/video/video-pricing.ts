/**
 * The price of a video, exact to the nano-USD: rates are integers, durations are milliseconds, and
 * the result is rounded once, half up.
 *
 * Pure functions: measurements (the source of an upscale, the length of reference videos) are
 * parameters. Requests must already be validated against the model.
 */
import type {
  VideoModelSettings,
  VideoPricing,
  VideoRate,
  VideoResolution,
} from '../config/config.ts';
import { assert, unreachable } from '../core/assert.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, divideHalfUp, nano, usdToNano } from '../core/money.ts';
import type { PricedRequest } from './video-requests.ts';

export interface SourceFacts {
  readonly durationMs: number;
  readonly width: number;
  readonly height: number;
  readonly framesPerSecond: number;
}

export interface Measured {
  readonly source?: SourceFacts | undefined;
  /** Total milliseconds of all reference videos, an integer; `undefined` without any. */
  readonly referenceMs?: number | undefined;
}

const MATCHING = new Set(['-1', 'auto', 'Auto']);
/** Minimum length of the source for a matched duration, from the API specification. */
const MIN_MATCHED_MS = 4_000;
const MAX_MATCHED_MS = 30_000;
export const DEFAULT_FACTOR = 2;

/** Pixels of the shorter side. */
const SHORT_SIDES: Readonly<Record<Exclude<VideoResolution, '2x' | '4x'>, number>> = {
  '256p': 256,
  '360p': 360,
  '480p': 480,
  '540p': 540,
  '580p': 580,
  '720p': 720,
  '768P': 768,
  '1080p': 1_080,
  true_1080p: 1_080,
  '1440p': 1_440,
  '2K': 1_440,
  '2160p': 2_160,
  '4k': 2_160,
};

export interface FrameSize {
  readonly width: number;
  readonly height: number;
}

function resolutionOf(model: VideoModelSettings, request: PricedRequest) {
  return request.resolution ?? model.defaultResolution ?? model.resolutions[0];
}

function sizeOf(resolution: VideoResolution, ratio: string): FrameSize | undefined {
  const [across = 0, along = 0] = ratio.split(':').map(Number);
  if (resolution === '2x' || resolution === '4x' || !(across > 0 && along > 0)) return undefined;
  const short = SHORT_SIDES[resolution];
  // The longer side, rounded to an even number, as encoders require.
  const even = (pixels: number): number => Math.round(pixels / 2) * 2;
  if (across >= along) return { width: even((short * across) / along), height: short };
  return { width: short, height: even((short * along) / across) };
}

/**
 * The frame size of a result. For an aspect ratio that follows the source (`adaptive`, `auto`) or
 * is missing, the largest frame of the model is used, because the real one is not known in advance.
 * `undefined` for models without frame sizes.
 */
export function frameSize(
  model: VideoModelSettings,
  request: PricedRequest,
): FrameSize | undefined {
  const resolution = resolutionOf(model, request);
  if (resolution === undefined) return undefined;
  const fixed = sizeOf(resolution, request.aspect_ratio ?? '');
  if (fixed !== undefined) return fixed;
  const ratios = model.aspectRatios.length > 0 ? model.aspectRatios : ['16:9'];
  const sizes = ratios
    .map((ratio) => sizeOf(resolution, ratio))
    .filter((size) => size !== undefined);
  const area = (size: FrameSize): number => size.width * size.height;
  return sizes.sort((a, b) => area(b) - area(a))[0] ?? sizeOf(resolution, '16:9');
}

function badField(field: string, message: string): Fault {
  const details = { _errors: [], [field]: { _errors: [message] } };
  return new Fault('INVALID_REQUEST', { message: `${field}: ${message}`, details });
}

/** Milliseconds of the result. Faults: 400 if a matched length has no source, or an invalid one. */
export function outputMs(request: PricedRequest, measured: Measured): number {
  const { duration = '' } = request;
  const seconds = /^(\d+)s$/.exec(duration)?.[1];
  if (seconds !== undefined) return Number(seconds) * 1_000;
  assert(MATCHING.has(duration) || duration === '1 gen', 'a checked duration');
  if (duration === '1 gen') return 0;
  const sourceMs = measured.referenceMs;
  if (sourceMs === undefined) {
    const message = `${duration} needs the length of the source: reference_video_total_duration, or reference_video_urls when queueing`;
    throw badField('duration', message);
  }
  if (sourceMs < MIN_MATCHED_MS || sourceMs > MAX_MATCHED_MS) {
    throw badField('duration', `${duration} needs a source of 4 to 30 seconds`);
  }
  return sourceMs;
}

function priceOf(usd: string, amount: bigint, unit: bigint): Nano {
  return nano(divideHalfUp(usdToNano(usd) * amount, unit));
}

const MS_PER_SECOND = 1_000n;
const PIXELS_PER_MEGAPIXEL = 1_000_000n;
const TOKENS_PER_RATE = 1_000_000n;

/** Whether a request is for a video with sound, which may have another price. */
export function hasSound(model: VideoModelSettings, request: PricedRequest): boolean {
  return model.task !== 'upscale' && model.audio && (request.audio ?? true);
}

/** Price of a request. Faults: 400 for an invalid matched length, 422 for an invalid source. */
export function quoteVideo(
  model: VideoModelSettings,
  request: PricedRequest,
  measured: Measured = {},
): Nano {
  const { pricing } = model;
  if (pricing.kind === 'upscale') return upscalePrice(pricing, request, measured.source);
  const price = (rate: VideoRate, amount: bigint, unit: bigint): Nano => {
    const bySound =
      typeof rate === 'string' ? rate : hasSound(model, request) ? rate.sound : rate.silent;
    return priceOf(bySound, amount, unit);
  };
  if (pricing.kind === 'generation') return price(pricing.perGeneration, 1n, 1n);
  const { referenceMs } = measured;
  const rateOf = <Rate>(usual: Rate, withReference: Rate | undefined): Rate =>
    referenceMs === undefined ? usual : (withReference ?? usual);
  const paidMs = BigInt(outputMs(request, measured) + (referenceMs ?? 0));
  switch (pricing.kind) {
    case 'second':
      return price(
        rateOf(pricing.perSecond, pricing.perSecondWithReference),
        paidMs,
        MS_PER_SECOND,
      );
    case 'duration-resolution': {
      const resolution = resolutionOf(model, request);
      assert(resolution !== undefined, 'a model priced by resolution has resolutions');
      const rate = rateOf(pricing.rates[resolution], pricing.ratesWithReference?.[resolution]);
      assert(rate !== undefined, 'every resolution on offer has a rate');
      return price(rate, paidMs, MS_PER_SECOND);
    }
    case 'megapixel':
      return price(
        rateOf(pricing.perMegapixelSecond, pricing.perMegapixelSecondWithReference),
        pixelsOf(model, request) * paidMs,
        PIXELS_PER_MEGAPIXEL * MS_PER_SECOND,
      );
    case 'tokens':
      return price(
        rateOf(pricing.perMillionTokens, pricing.perMillionTokensWithReference),
        pixelsOf(model, request) * BigInt(pricing.framesPerSecond) * paidMs,
        BigInt(pricing.pixelsPerToken) * TOKENS_PER_RATE * MS_PER_SECOND,
      );
    default:
      return unreachable(pricing);
  }
}

function pixelsOf(model: VideoModelSettings, request: PricedRequest): bigint {
  const size = frameSize(model, request);
  assert(size !== undefined, 'a model priced by pixels has resolutions');
  return BigInt(size.width) * BigInt(size.height);
}

/**
 * Whether a source belongs to a tier. Tiers are defined by height; a video wider than 16:9 may also
 * have at most as many pixels as 16:9 at that height.
 */
function isInTier(width: number, height: number, maxHeight: number): boolean {
  if (height > maxHeight) return false;
  return width * 9 <= height * 16 || width * height * 9 <= maxHeight * maxHeight * 16;
}

function upscalePrice(
  pricing: VideoPricing & { kind: 'upscale' },
  request: PricedRequest,
  source: SourceFacts | undefined,
): Nano {
  assert(source !== undefined, 'an upscale is priced by its source');
  const most = pricing.maxSourceSeconds;
  if (source.durationMs > most * 1_000) {
    throw new Fault('VIDEO_DURATION_TOO_LONG', {
      message: `The video has ${Math.ceil(source.durationMs / 1_000)} seconds: send at most ${most}`,
    });
  }
  const factor = request.upscale_factor ?? DEFAULT_FACTOR;
  const [width, height] = [source.width * factor, source.height * factor];
  const tiers = pricing.tiers.toSorted((a, b) => a.maxHeight - b.maxHeight);
  const tier = tiers.find(({ maxHeight }) => isInTier(width, height, maxHeight));
  if (tier === undefined) {
    const largest = tiers.at(-1)?.maxHeight ?? 0;
    throw badField(
      'upscale_factor',
      `The result would have ${width}x${height} pixels: choose a factor that gives a height of at most ${largest}, and no more pixels than 16:9 has at that height`,
    );
  }
  const speed = source.framesPerSecond > pricing.fastAbove ? BigInt(pricing.fastFactor) : 1n;
  const amount = BigInt(Math.round(source.durationMs)) * speed;
  return priceOf(tier.perSecond, amount, MS_PER_SECOND);
}
