/** Worker thread of `books.ts`: reads the books of a SQLite file, which would block the event loop. */
import { workerData } from 'node:worker_threads';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { postResult } from '../../core/worker-result.ts';
import { openStore } from '../../db/db.ts';
import { readWholeBooks } from './books-read.ts';

interface Wanted {
  readonly url: string;
  readonly fromDay: number;
  readonly toDay: number;
}

const { url, fromDay, toDay } = workerData as Wanted; // set by books.ts

postResult(async () => {
  const store = await openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
  try {
    return await readWholeBooks(store, fromDay, toDay);
  } finally {
    await store.close();
  }
});
