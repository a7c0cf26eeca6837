/**
 * Validates a video before it is sold: it decodes completely, is not black, and has about the
 * ordered length, size, aspect ratio and audible sound. Reports of the engine are not trusted.
 * Black or silent input media may have a black or silent result.
 *
 * The order is read from the job (the request as the engine received it, with all properties that
 * determine the price), not from the current catalog. A property that was not ordered is not
 * checked: any length, or the aspect ratio of the source.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import type { Media } from '../engines/media/media.ts';
import { Fault } from '../core/faults.ts';
import type { VideoJob } from './job.ts';

/**
 * Result of the check of a video.
 * - `unfit`: the file is not a video, or not the ordered one
 * - `unchecked`: this machine cannot decode videos
 *
 * `reason` is only for the log, because it describes the engine.
 */
export type VideoVerdict =
  | { readonly kind: 'fit'; readonly mimeType: string; readonly sha256: string }
  | { readonly kind: 'unfit' | 'unchecked'; readonly reason: string };

/**
 * Validates the file at `path`. `sourcePath` is the input video of the job, if any. Throws for an
 * abort, and for a bug.
 */
export type CheckVideo = (
  video: { readonly job: VideoJob; readonly path: string; readonly sourcePath: string | undefined },
  signal: AbortSignal,
) => Promise<VideoVerdict>;

/** Models generate whole groups of frames: eight seconds are 7.9 or 8.1, five may be 5.06. */
const MIN_LENGTH_SHARE = 0.8;
const MAX_LENGTH_SHARE = 1.25;
/** The shortest clip of a model may be longer than ordered. */
const LENGTH_SLACK_SECONDS = 1;
/** A track may end this much before the duration in the container. */
const CLAIM_SLACK_SECONDS = 0.5;
/**
 * Minimum share of the shorter side. Models keep the number of pixels, not the sides: 720p of 21:9
 * may have a height of 640. 480p instead of 720p is two thirds, and is rejected.
 */
const MIN_SIDE_SHARE = 0.75;
const MAX_SIDE_SHARE = 2;
/**
 * Minimum share of the aspect ratio. 854 x 480 is often 864 x 480; 4:3 instead of 16:9 is three
 * quarters, and is rejected.
 */
const MIN_SHAPE_SHARE = 0.8;
/** Distinguishes a video from a still image. */
const MIN_FRAMES_PER_SECOND = 2;
/** For a video of free length: the longest that any model offers. */
const LONGEST_SECONDS = 300;

interface Order {
  readonly minSeconds: number;
  readonly maxSeconds: number;
  readonly minFrames: number;
  readonly size: { readonly width: number; readonly height: number } | undefined;
  readonly isShaped: boolean;
  readonly isVisible: boolean;
  readonly hasSound: boolean;
  readonly isAudible: boolean;
}

export function videoCheck(openMedia: () => Promise<Media>): CheckVideo {
  return async ({ job, path, sourcePath }, signal) => {
    const media = await openMedia();
    try {
      const order =
        job.request['upscale_factor'] === undefined || sourcePath === undefined
          ? orderOf(job)
          : await upscaleOrder(media, job, sourcePath, signal);
      const longest = Number.isFinite(order.maxSeconds) ? order.maxSeconds : LONGEST_SECONDS;
      const video = await media.checkVideo(path, longest, { signal });
      const reason = problemOf(video, order);
      if (reason !== undefined) return { kind: 'unfit', reason };
      return { kind: 'fit', mimeType: video.type, sha256: await sha256Of(path, signal) };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      const { code, message: reason } = error;
      if (code === 'INVALID_VIDEO_FORMAT') return { kind: 'unfit', reason };
      if (code === 'SERVICE_UNAVAILABLE') return { kind: 'unchecked', reason };
      throw error;
    }
  };
}

async function sha256Of(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash, { signal });
  return hash.digest('hex');
}

function orderOf({ request, inputs, hasSound }: VideoJob): Order {
  const seconds = Number(request['seconds'] ?? 0);
  const [, width, height] = /^(\d+)x(\d+)$/.exec(String(request['size'])) ?? [];
  const size = width === undefined ? undefined : { width: Number(width), height: Number(height) };
  // An input image or clip determines the aspect ratio; an extension also determines the length.
  const isFollowing = inputs.some(({ role }) => !role.startsWith('audio'));
  const hasSource = inputs.some(({ role }) => /audio|video/.test(role));
  const isExtending = inputs.some(({ role }) => role.startsWith('reference_video'));
  return {
    minSeconds: seconds * MIN_LENGTH_SHARE,
    maxSeconds:
      seconds === 0 || isExtending ? Infinity : seconds * MAX_LENGTH_SHARE + LENGTH_SLACK_SECONDS,
    minFrames: seconds * MIN_LENGTH_SHARE * MIN_FRAMES_PER_SECOND,
    size,
    isShaped: request['aspect_ratio'] !== undefined && !isFollowing,
    isVisible: !isFollowing,
    hasSound,
    isAudible: hasSound && !hasSource,
  };
}

async function upscaleOrder(
  media: Media,
  { request }: VideoJob,
  sourcePath: string,
  signal: AbortSignal,
): Promise<Order> {
  const { durationSeconds, video } = await media.probe(sourcePath, { signal });
  const factor = Number(request['upscale_factor']);
  const size = video && { width: video.width * factor, height: video.height * factor };
  return {
    minSeconds: durationSeconds * MIN_LENGTH_SHARE,
    maxSeconds: durationSeconds * MAX_LENGTH_SHARE + LENGTH_SLACK_SECONDS,
    minFrames: 1,
    size: size ?? undefined,
    isShaped: true,
    isVisible: false,
    hasSound: false,
    isAudible: false,
  };
}

function problemOf(
  video: Awaited<ReturnType<Media['checkVideo']>>,
  order: Order,
): string | undefined {
  const { seconds, frames, width, height, claimedSeconds } = video;
  const length = `The video has ${seconds.toFixed(2)} s`;
  if (frames === 0 || seconds === 0) return 'The video has no frames';
  if (seconds < claimedSeconds * MIN_LENGTH_SHARE - CLAIM_SLACK_SECONDS) {
    return `${length}, and its container states ${claimedSeconds.toFixed(2)} s`;
  }
  if (seconds < order.minSeconds || seconds > order.maxSeconds) {
    const most = order.maxSeconds === Infinity ? '' : ` to ${order.maxSeconds.toFixed(2)} s`;
    return `${length}, not ${order.minSeconds.toFixed(2)}${most}`;
  }
  if (frames < order.minFrames) return `${length} and ${frames} frames`;
  if (order.isVisible && video.isBlack) return 'The video is black';
  if (order.hasSound && !video.hasSound) return 'The video has no sound';
  if (order.isAudible && video.isSilent) return 'The sound of the video is silent';
  if (order.size === undefined) return undefined;
  const short = Math.min(width, height) / Math.min(order.size.width, order.size.height);
  const shape = width / height / (order.size.width / order.size.height);
  const isSized = short >= MIN_SIDE_SHARE && short <= MAX_SIDE_SHARE;
  const isFormed = Math.min(shape, 1 / shape) >= MIN_SHAPE_SHARE;
  if (isSized && (isFormed || !order.isShaped)) return undefined;
  return `The video has ${width}x${height} pixels, not about ${order.size.width}x${order.size.height}`;
}
