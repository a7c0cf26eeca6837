/** Entry file of the video child: opens the media tool and starts the server. */
import { rm } from 'node:fs/promises';
import { z } from 'zod';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { childLog, serveLocal } from '../local/local-server.ts';
import { Media } from './media.ts';
import { VideoService } from './video-service.ts';

export type VideoSettings = z.infer<typeof VideoSettings>;
const VideoSettings = z.object({
  /** A folder of its own; what is in it is deleted at each start. */
  directory: z.string(),
  ffmpeg: z.string().optional(),
  ffprobe: z.string().optional(),
  /** The `PATH` of the machine. */
  searchPath: z.string(),
});

serveLocal(async (given) => {
  const { directory, ...programs } = VideoSettings.parse(given);
  // What a dead process left: its jobs are unknown to this one.
  await rm(directory, { recursive: true, force: true });
  const clock = systemClock();
  const media = await Media.open({ ...programs, log: childLog(), clock });
  return new VideoService({ media, directory, clock, ids: systemIds() });
});
