/**
 * Applies numbered migrations once, each in a transaction with the row that records it, so that
 * processes starting at the same time produce one schema.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { type Migration, type Queryable, SET_LOCK_TIMEOUT, type Store } from './contract.ts';
import { isLockTimeout, isUniqueViolation } from './failures.ts';

/** Statements that have queued behind a step run in this pause. */
const PAUSE_MS = SECOND_MS;

interface Waiting {
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * `timeoutMs` bounds each statement, since indexing a large table takes long, and the wait for long
 * reads of PostgreSQL. Throws if the database has unknown steps: a newer version created it, and
 * writes by this version could damage it.
 */
export async function migrateWith(
  store: Store,
  migrations: readonly Migration[],
  timeoutMs: number,
  waiting?: Waiting,
): Promise<void> {
  for (const migration of await pendingMigrations(store, migrations)) {
    await applyWhenFree(store, migration, timeoutMs, waiting);
  }
}

/** Returns the steps that a database lacks. Throws like `migrateWith`. */
export async function pendingMigrations(
  store: Store,
  migrations: readonly Migration[],
): Promise<readonly Migration[]> {
  const isEmpty =
    store.dialect === 'postgres' &&
    (await store.query("SELECT 1 WHERE to_regclass('store_migration') IS NULL")).length > 0;
  if (isEmpty) return migrations;
  const rows = await store.query<{ id: string }>('SELECT id FROM store_migration');
  const applied = new Set(rows.map((row) => row.id));
  const known = new Set(migrations.map(({ id }) => id));
  const unknown = [...applied].filter((id) => !known.has(id)).sort();
  if (unknown.length > 0) throw new Error(newerThanThis(unknown));
  return migrations.filter(({ id }) => !applied.has(id));
}

/** Tries a step again while a long read of PostgreSQL has a lock that the step needs. */
async function applyWhenFree(
  store: Store,
  migration: Migration,
  timeoutMs: number,
  waiting: Waiting | undefined,
): Promise<void> {
  const untilMs = (waiting?.clock.monotonicMs() ?? 0) + timeoutMs;
  for (;;) {
    try {
      return await applyOnce(store, migration, timeoutMs);
    } catch (error) {
      if (waiting === undefined || !isLockTimeout(error)) throw error;
      const { clock, log } = waiting;
      if (clock.monotonicMs() >= untilMs) throw error;
      log.warn({}, 'A long read of the database delays the migration, which is tried again');
      await clock.sleep(PAUSE_MS);
    }
  }
}

function newerThanThis(unknown: readonly string[]): string {
  const which = unknown.slice(0, SHOWN_STEPS).join(', ');
  return `A newer version of Farebox has changed the database (unknown migrations: ${which}). Run that version or a newer one, or restore a backup from before the upgrade`;
}

const SHOWN_STEPS = 3;

async function applyOnce(store: Store, migration: Migration, timeoutMs: number): Promise<void> {
  try {
    await store.transaction(
      async (tx) => {
        await tx.query('INSERT INTO store_migration (id) VALUES ($1)', [migration.id]);
        if (store.dialect === 'postgres') await tx.query(SET_LOCK_TIMEOUT);
        await applyStatements(tx, textFor(store, migration));
      },
      { timeoutMs, limitsLockWait: true },
    );
  } catch (error) {
    // Another process was first and has created the same tables.
    if (!isUniqueViolation(error)) throw error;
  }
}

function textFor(store: Store, migration: Migration): string {
  return typeof migration.up === 'string' ? migration.up : migration.up[store.dialect];
}

async function applyStatements(tx: Queryable, text: string): Promise<void> {
  for (const statement of text.split(/;\s*(?:\n|$)/)) {
    if (statement.trim() !== '') await tx.query(statement);
  }
}
