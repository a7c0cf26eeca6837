/**
 * Applies numbered migrations once, each in a transaction with the row that records it, so that
 * processes starting at the same time produce one schema.
 */
import type { Migration, Queryable, Store } from './contract.ts';
import { isUniqueViolation } from './failures.ts';

/**
 * `timeoutMs` bounds each statement, since indexing a large table takes long. Throws if the
 * database has unknown steps: a newer version created it, and writes by this version could damage
 * it.
 */
export async function migrateWith(
  store: Store,
  migrations: readonly Migration[],
  timeoutMs: number,
): Promise<void> {
  const rows = await store.query<{ id: string }>('SELECT id FROM store_migration');
  const applied = new Set(rows.map((row) => row.id));
  const known = new Set(migrations.map(({ id }) => id));
  const unknown = [...applied].filter((id) => !known.has(id)).sort();
  if (unknown.length > 0) throw new Error(newerThanThis(unknown));
  for (const migration of migrations) {
    if (applied.has(migration.id)) continue;
    await applyOnce(store, migration, timeoutMs);
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
        await applyStatements(tx, textFor(store, migration));
      },
      { timeoutMs },
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
