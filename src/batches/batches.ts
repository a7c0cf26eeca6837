/**
 * Files and batches: many requests in a file, run when engines have room to spare, each sold by the
 * route that it names. This is the public file: it makes the feature out of what the server hands it.
 */
import type { BatchesSection } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { Feature } from '../http/route.ts';
import { batchRoutes } from './batch-routes.ts';
import type { BatchState } from './batch.ts';
import type { BatchHost } from './batch-run.ts';
import { BatchTable } from './batch-table.ts';
import { FileTable } from './file-table.ts';
import { type FilesParts, fileRoutes } from './files.ts';
import { Worker, sweep } from './worker.ts';

export type { Batch } from './batch.ts';
export type { BatchHost, LineResponse, LineCall, LineResult } from './batch-run.ts';
export type { Endpoint } from './lines.ts';
export { BATCHES_MIGRATIONS } from './migrations.ts';

export interface BatchesParts {
  readonly store: Store;
  readonly settings: BatchesSection;
  readonly host: BatchHost;
  /** Throws 402 for a caller who may store nothing before there is credit. */
  readonly requireCredit: FilesParts['requireCredit'];
  /** Paths below the base path whose requests can be in a batch. */
  readonly endpoints: () => readonly string[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export async function openBatches(store: Store): Promise<Partial<Record<BatchState, number>>> {
  return await new BatchTable(store, '').openCounts();
}

export function batchesFeature(parts: BatchesParts): Feature {
  const { store, settings, requireCredit, clock, ids, endpoints } = parts;
  const tables = { files: new FileTable(store), batches: new BatchTable(store, ids.uuid()) };
  const worker = new Worker({ ...parts, ...tables });
  const routes = { ...tables, settings, requireCredit, clock, ids, endpoints };
  return {
    routes: [
      ...fileRoutes(routes),
      ...batchRoutes({ ...routes, nudge: (batchId) => worker.nudge(batchId) }),
    ],
    // One process writes a file of SQLite: the lock of the data folder proves it.
    start: () => worker.start(store.dialect === 'sqlite'),
    leaderJob: () => sweep({ ...tables, keepDays: settings.keepDays, clock }),
    close: () => worker.stop(),
  };
}
