/** The properties of a media file, as reported by the media processes. */
import * as z from 'zod';

const VideoFacts = z.object({
  /** As displayed, after rotation. */
  width: z.int().min(1),
  height: z.int().min(1),
  framesPerSecond: z.number().min(0),
  rotation: z.literal([0, 90, 180, 270]),
});
type VideoFacts = z.infer<typeof VideoFacts>;

export const MediaFacts = z.object({
  /** Seconds; the longest of the header's and the packets' durations. */
  durationSeconds: z.number().min(0),
  video: VideoFacts.nullable(),
  hasAudio: z.boolean(),
  /** Decoded: the video by `check`, the sound by `sound`. A probe decodes nothing. */
  decoded: z.object({ seconds: z.number().min(0), frames: z.int().min(0) }).optional(),
  /** Whether no decoded frame has a part brighter than black. */
  isBlack: z.boolean().optional(),
  /** Whether no decoded sample is louder than silence. */
  isSilent: z.boolean().optional(),
});
export type MediaFacts = z.infer<typeof MediaFacts>;
