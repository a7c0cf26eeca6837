/** Entry file of the video child: opens the media tool and starts the server. */
import { rm } from 'node:fs/promises';
import { z } from 'zod';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { childLog, serveLocal } from '../local/local-server.ts';
import { Media } from './media.ts';
import { VideoService } from './video-service.ts';

const VideoSettings = z.object({
  directory: z.string(),
  ffmpeg: z.string().optional(),
  ffprobe: z.string().optional(),
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
