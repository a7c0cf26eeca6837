/** Entry file of the video engine: opens the media tool and starts the server. */
import { rm } from 'node:fs/promises';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { childLog, serveEngine } from '../server/server.ts';
import { Media } from '../../src/engines/media/media.ts';
import type { VideoSettings } from '../../src/engines/embedded/program-contract.ts';
import { VideoService } from './video-service.ts';

serveEngine(async (given, _report, dataFolder) => {
  const { directory, ...programs } = given as VideoSettings; // from the parent, of the same version
  // Deletes files of a previous process, whose jobs this process does not know.
  await rm(directory, { recursive: true, force: true });
  const clock = systemClock();
  const media = await Media.open({ ...programs, dataFolder, log: childLog(), clock });
  await media.tryOut(directory);
  return new VideoService({ media, directory, clock, ids: systemIds() });
});
