/** Video jobs with a real engine at an address, composed as in the application. */
import { Engines } from '../../src/engines/engines.ts';
import { VideosClient } from '../../src/engines/media/videos-client.ts';
import type { Clock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Store } from '../../src/db/db.ts';
import { TestMoney, anyVideo } from '../support/test-video-engines.ts';
import { Guard } from '../../src/net/guard.ts';
import { Video } from '../../src/video/video.ts';

export interface Place {
  readonly databaseUrl: string;
  readonly folder: string;
  /** Base URL of the engine, with `/v1`, and its key. */
  readonly engineUrl: string;
  readonly engineKey: string;
}

const REPLICAS = [{ engine: 'video', model: 'still-to-video' }];

export function openVideo(
  place: Place,
  store: Store,
  clock: Clock,
): { video: Video; engines: Engines; money: TestMoney } {
  const engines = new Engines({ clock, ids: systemIds(), log: silentLog });
  engines.update([
    { id: 'video', protocol: 'openai', url: place.engineUrl, apiKey: place.engineKey },
  ]);
  const money = new TestMoney(store);
  const video = new Video({
    store,
    engines: new VideosClient({
      engines,
      replicasOf: () => REPLICAS,
      guard: new Guard({}),
      fetchTimeoutMs: 10_000,
      clock,
    }),
    checkVideo: anyVideo,
    money,
    folder: place.folder,
    maxStoredBytes: 20_000_000_000,
    keepHours: 24,
    maxJobHours: 2,
    maxSilenceMinutes: 10,
    maxOpenJobs: 5,
    callbacks: undefined,
    ended: () => undefined,
    expectedSeconds: () => 60,
    clock,
    ids: systemIds(),
    log: silentLog,
  });
  return { video, engines, money };
}
