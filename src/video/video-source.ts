/**
 * What a video request is measured by before it has a price: the source of an upscale and the
 * length of reference videos. Files stay in the bag of the request, so that a queued job takes
 * them over without fetching twice.
 */
import type { VideoModelSettings } from '../config/config.ts';
import type { Media, MediaCall, MediaFacts } from '../engines/media/media.ts';
import { Fault } from '../core/faults.ts';
import type { SourceFacts } from './video.ts';

const MS_PER_SECOND = 1_000;

/** Facts of the video to upscale. Faults: INVALID_VIDEO_FORMAT, VIDEO_DURATION_TOO_SHORT. */
export async function measureSource(
  media: Media,
  path: string,
  call: MediaCall,
): Promise<SourceFacts> {
  const { video, durationSeconds } = await media.probe(path, call);
  if (video === null) {
    throw new Fault('INVALID_VIDEO_FORMAT', { message: 'The file has no video' });
  }
  const durationMs = Math.round(durationSeconds * MS_PER_SECOND);
  if (durationMs < 1) {
    throw new Fault('VIDEO_DURATION_TOO_SHORT', {
      message: 'The video has no length',
    });
  }
  return { durationMs, height: video.height, framesPerSecond: video.framesPerSecond };
}

/** Milliseconds of one file. */
export async function lengthOf(media: Media, path: string, call: MediaCall): Promise<number> {
  const facts: MediaFacts = await media.probe(path, call);
  return Math.round(facts.durationSeconds * MS_PER_SECOND);
}

/** The settings that a model of type video always has; without them it is not sold. */
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
