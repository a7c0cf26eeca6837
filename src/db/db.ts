/**
 * The public file of the store: opens the database that a URL names. `sqlite:<path>` is a file for
 * one server; `postgres://…` can be shared by many processes and machines.
 */
import { resolve } from 'node:path';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Store } from './contract.ts';
import { SqliteStore } from './sqlite/sqlite-store.ts';

export type {
  Dialect,
  FileStore,
  FileTransaction,
  FileWork,
  Migration,
  Notices,
  Parameter,
  Queryable,
  Row,
  SharedStore,
  Statement,
  Store,
} from './contract.ts';
export { byStore, isShared, placesFrom } from './contract.ts';
export {
  CommitUncertain,
  ReadTooLong,
  StoreUnavailable,
  isDatabaseError,
  isUniqueViolation,
  isUnstorableText,
} from './failures.ts';
export { Batcher } from './batcher.ts';
export { deleteInBatches } from './delete-in-batches.ts';
export { pendingMigrations } from './migrate.ts';
export { Leases, STORE_MIGRATIONS, claimOnce, oneAtATime } from './lease.ts';
export {
  LeasedParts,
  type Part,
  type PartCall,
  type PartResult,
  type Waiting,
  shareDivisor,
} from './shared-counter/leased-parts.ts';
export {
  JobWorker,
  LONGEST_PAUSE_MS,
  type LeaseOptions,
  LeasedTable,
  NO_LEASE,
} from './leased-jobs.ts';
export { openProblem } from './open-problem.ts';
export { Flag, Whole, jsonText, maybe, rowShape, snakeCase } from './row-shape.ts';
export {
  type PartitionedTable,
  dayPartitions,
  dropDayPartition,
  dropDays,
  makeDayPartitions,
} from './postgres/day-partitions.ts';
export { type ScannedPage, scanDown } from './scan-down.ts';
export { makeFolder } from './sqlite/make-folder.ts';
export { type ServerLock, lockData, lockFile } from './sqlite/server-lock.ts';

export interface OpenStoreOptions {
  /** `sqlite:./data/farebox.db` or `postgres://user:secret@host/database`. */
  readonly url: string;
  /** URL of the same PostgreSQL without a pooler, for notifications; default: `url`. */
  readonly directUrl?: string;
  /** Replicas of the PostgreSQL, for reads that may be slightly stale. */
  readonly replicaUrls?: readonly string[];
  readonly maxConnections?: number;
  /** How long a reply of PostgreSQL may take before the connection counts as lost. */
  readonly replyTimeoutMs?: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

const DEFAULT_CONNECTIONS = 8;

/** Opens the database; throws if the URL is invalid or the file cannot be opened. */
export async function openStore(options: OpenStoreOptions): Promise<Store> {
  const { url } = options;
  if (url.startsWith('sqlite:')) {
    const { clock, log } = options;
    return new SqliteStore({ path: resolve(url.slice('sqlite:'.length)), clock, log });
  }
  if (/^postgres(?:ql)?:\/\//.test(url)) {
    // Loaded on demand: its client costs start-up time and memory that SQLite servers do not need.
    const { PostgresStore } = await import('./postgres/postgres-store.ts');
    return new PostgresStore({
      ...options,
      maxConnections: options.maxConnections ?? DEFAULT_CONNECTIONS,
    });
  }
  throw new Error('The database URL must start with "sqlite:" or "postgres://"');
}
