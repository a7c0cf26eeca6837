/**
 * The public file of files and batches: many requests in one file, which run when engines have spare
 * capacity. Each request is sold by the route that it names.
 */
import type { BatchesSection } from '../config/config.ts';
import { type Clock, DAY_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { Feature } from '../http/route.ts';
import { batchRoutes } from './batch-routes.ts';
import { type BatchHost, LEASE_MS } from './batch-run.ts';
import { BatchTable } from './batch-table.ts';
import { FileTable } from './file-table.ts';
import { type FilesParts, fileRoutes } from './files.ts';
import { Worker } from './worker.ts';

export type { Batch } from './batch.ts';
export { openBatches } from './batch-table.ts';
export type { BatchHost, LineResponse, LineCall, LineResult } from './batch-run.ts';
export type { Endpoint } from './lines.ts';
export { BATCHES_MIGRATIONS } from './migrations.ts';

export interface BatchesParts {
  readonly store: Store;
  readonly settings: BatchesSection;
  readonly host: BatchHost;
  /** Throws 402 for a caller that must have credit before it may store files. */
  readonly requireCredit: FilesParts['requireCredit'];
  /** Paths below the base path whose requests can be in a batch. */
  readonly endpoints: () => readonly string[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export function batchesFeature(parts: BatchesParts): Feature {
  const { store, settings, requireCredit, clock, ids, endpoints } = parts;
  const tables = {
    files: new FileTable(store),
    batches: new BatchTable({ ...parts, owner: ids.uuid(), leaseMs: LEASE_MS }),
  };
  const worker = new Worker({ ...parts, ...tables });
  const routes = { ...tables, settings, requireCredit, clock, ids, endpoints };
  return {
    routes: [
      ...fileRoutes(routes),
      ...batchRoutes({ ...routes, nudge: (batchId) => worker.nudge(batchId) }),
    ],
    // Only one process uses a SQLite database, because it has the lock of the data folder.
    start: () => worker.start(store.dialect === 'sqlite'),
    leaderJob: () => deleteExpired(tables, settings, clock.nowMs()),
    close: () => worker.stop(),
  };
}

/** Deletes expired files and old batches. */
export async function deleteExpired(
  { files, batches }: { readonly files: FileTable; readonly batches: BatchTable },
  { keepDays }: Pick<BatchesSection, 'keepDays'>,
  nowMs: number,
): Promise<void> {
  await files.removeExpired(nowMs);
  await batches.deleteOld(keepDays * DAY_MS, nowMs);
}
