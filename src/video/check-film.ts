/**
 * A film is looked at before it is sold: it decodes to its end, and has about the ordered length,
 * size, shape and sound. What an engine says of its work is no proof of it.
 *
 * The order is read from the job: from the request as the engine got it, in which everything that
 * the price depends on was checked, and never from the catalogue of today. What was not ordered is
 * not asked for: a piece has any length, a film that follows its source the shape of that.
 */
import type { Media } from '../engines/media/media.ts';
import { Fault } from '../core/faults.ts';
import type { VideoJob } from './job.ts';

/**
 * - `unfit`: the file is no film, or not the one that was ordered
 * - `unchecked`: this machine has nothing to look at films with
 *
 * The reason is for the log: it speaks of the engine.
 */
export type FilmVerdict =
  | { readonly kind: 'fit'; readonly mimeType: string }
  | { readonly kind: 'unfit' | 'unchecked'; readonly reason: string };

/**
 * Looks at the file at `path` before it is sold. `sourcePath` is the video that the job starts from,
 * if any. Throws for an abort, and for a bug.
 */
export type CheckFilm = (
  film: { readonly job: VideoJob; readonly path: string; readonly sourcePath: string | undefined },
  signal: AbortSignal,
) => Promise<FilmVerdict>;

/** Models make whole frames and groups of them: eight seconds are 7.9 or 8.1, five may be 5.06. */
const MIN_LENGTH_SHARE = 0.8;
const MAX_LENGTH_SHARE = 1.25;
/** The shortest clip that a model makes may be longer than a second. */
const LENGTH_SLACK_SECONDS = 1;
/** A track may end this much before the length that its container states. */
const CLAIM_SLACK_SECONDS = 0.5;
/**
 * Of the shorter side. Models keep the number of pixels, not the sides, so that 720p of 21:9 may be
 * 640 high; 480p in place of 720p is two thirds, and refused.
 */
const MIN_SIDE_SHARE = 0.75;
const MAX_SIDE_SHARE = 2;
/** Of width by height: 854 x 480 is often 864 x 480. 4:3 in place of 16:9 is three quarters. */
const MIN_SHAPE_SHARE = 0.8;
/** Tells a video from a still image. */
const MIN_FRAMES_PER_SECOND = 2;
/** For a video of free length: the longest that any model offers. */
const LONGEST_SECONDS = 300;

interface Order {
  readonly minSeconds: number;
  readonly maxSeconds: number;
  readonly minFrames: number;
  readonly size: { readonly width: number; readonly height: number } | undefined;
  readonly isShaped: boolean;
  readonly hasSound: boolean;
}

export function filmCheck(openMedia: () => Promise<Media>): CheckFilm {
  return async ({ job, path, sourcePath }, signal) => {
    const media = await openMedia();
    try {
      const order =
        job.request['upscale_factor'] === undefined || sourcePath === undefined
          ? orderOf(job)
          : await upscaleOrder(media, job, sourcePath, signal);
      const longest = Number.isFinite(order.maxSeconds) ? order.maxSeconds : LONGEST_SECONDS;
      const film = await media.checkFilm(path, longest, { signal });
      const reason = objection(film, order);
      return reason === undefined
        ? { kind: 'fit', mimeType: film.type }
        : { kind: 'unfit', reason };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      const { code, message: reason } = error;
      if (code === 'INVALID_VIDEO_FORMAT') return { kind: 'unfit', reason };
      if (code === 'SERVICE_UNAVAILABLE') return { kind: 'unchecked', reason };
      throw error;
    }
  };
}

function orderOf({ request, inputs, hasSound }: VideoJob): Order {
  const seconds = Number(request['seconds'] ?? 0);
  const [, width, height] = /^(\d+)x(\d+)$/.exec(String(request['size'])) ?? [];
  const size = width === undefined ? undefined : { width: Number(width), height: Number(height) };
  // A picture or a clip that the film begins with or goes on from brings its own shape, and an
  // extension its length too.
  const isFollowing = inputs.some(({ role }) => !role.startsWith('audio'));
  const isExtending = inputs.some(({ role }) => role.startsWith('reference_video'));
  return {
    minSeconds: seconds * MIN_LENGTH_SHARE,
    maxSeconds:
      seconds === 0 || isExtending ? Infinity : seconds * MAX_LENGTH_SHARE + LENGTH_SLACK_SECONDS,
    minFrames: seconds * MIN_LENGTH_SHARE * MIN_FRAMES_PER_SECOND,
    size,
    isShaped: request['aspect_ratio'] !== undefined && !isFollowing,
    hasSound,
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
    hasSound: false,
  };
}

/** Why the video is not the ordered one, for the log. */
function objection(
  film: Awaited<ReturnType<Media['checkFilm']>>,
  order: Order,
): string | undefined {
  const { seconds, frames, width, height } = film;
  const length = `The film has ${seconds.toFixed(2)} s`;
  if (frames === 0 || seconds === 0) return 'The film has no frames';
  if (seconds < film.claimedSeconds * MIN_LENGTH_SHARE - CLAIM_SLACK_SECONDS) {
    return `${length}, and says that it has ${film.claimedSeconds.toFixed(2)} s`;
  }
  if (seconds < order.minSeconds || seconds > order.maxSeconds) {
    const most = order.maxSeconds === Infinity ? '' : ` to ${order.maxSeconds.toFixed(2)} s`;
    return `${length}, not ${order.minSeconds.toFixed(2)}${most}`;
  }
  if (frames < order.minFrames) return `${length} and ${frames} frames`;
  if (order.hasSound && !film.hasSound) return 'The film has no sound';
  if (order.size === undefined) return undefined;
  const short = Math.min(width, height) / Math.min(order.size.width, order.size.height);
  const shape = width / height / (order.size.width / order.size.height);
  const isSized = short >= MIN_SIDE_SHARE && short <= MAX_SIDE_SHARE;
  const isFormed = Math.min(shape, 1 / shape) >= MIN_SHAPE_SHARE;
  if (isSized && (isFormed || !order.isShaped)) return undefined;
  return `The film has ${width}x${height} pixels, not about ${order.size.width}x${order.size.height}`;
}
