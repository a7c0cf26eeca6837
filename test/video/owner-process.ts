/**
 * A process that owns a video job until a test kills it: opens the database, queues one job for the
 * given engine, and prints each state of the job.
 */
import { flushCompileCache } from 'node:module';
import { systemClock } from '../../src/core/clock.ts';
import { nano } from '../../src/core/money.ts';
import { TEST_MONEY_MIGRATIONS } from '../support/test-video-engines.ts';
import { VIDEO_MIGRATIONS } from '../../src/video/migrations.ts';
import { openTestStore } from '../databases/stores.ts';
import { type Place, openVideo } from './open-video.ts';

interface Order extends Place {
  readonly imagePath: string;
}

process.once('disconnect', () => process.exit(0));
process.once('message', (message) => {
  void run(message as Order); // sent by the test beside this file
});

async function run(order: Order): Promise<void> {
  const clock = systemClock();
  const store = await openTestStore(order.databaseUrl);
  await store.migrate([...VIDEO_MIGRATIONS, ...TEST_MONEY_MIGRATIONS]);
  const { video, money } = openVideo(order, store, clock);
  // A killed process writes nothing to the compile cache.
  flushCompileCache();
  const wanted = {
    accountId: 'alice',
    keyId: '',
    modelId: 'still',
    quoteNano: nano(60_000_000n),
    request: { prompt: 'zoom out', seconds: '2', size: '320x180' },
    hasSound: false,
    inputs: [{ role: 'image_url', path: order.imagePath, mimeType: 'image/png' }],
    withDownload: false,
  };
  const { id } = await video.queue(wanted, { hold: (job) => money.hold(job) });
  video.start();
  let last = '';
  for (;;) {
    const [job] = await video.list('alice', Number.MAX_SAFE_INTEGER, 1);
    if (job !== undefined && job.state !== last) {
      last = job.state;
      process.send?.({ id, state: job.state });
    }
    await clock.sleep(10);
  }
}
