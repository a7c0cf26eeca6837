/** What a look at a media file found, as the tools' processes tell it. */
import { z } from 'zod';

const VideoFacts = z.object({
  /** As shown, after rotation. */
  width: z.int().min(1),
  height: z.int().min(1),
  framesPerSecond: z.number().min(0),
  rotation: z.literal([0, 90, 180, 270]),
});
type VideoFacts = z.infer<typeof VideoFacts>;

export const MediaFacts = z.object({
  /** The longest of what the header says and what the packets say, in seconds. */
  durationSeconds: z.number().min(0),
  video: VideoFacts.nullable(),
  hasAudio: z.boolean(),
  /** What decoding gave: the video after a check, the sound after `sound`. A probe decodes nothing. */
  decoded: z.object({ seconds: z.number().min(0), frames: z.int().min(0) }).optional(),
});
export type MediaFacts = z.infer<typeof MediaFacts>;
