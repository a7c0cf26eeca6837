/**
 * Applies numbered migrations once, each in its own transaction together with the row that
 * records it, so that two processes that start at once end with one schema.
 */
import type { Migration, Queryable, Store } from './contract.ts';
import { isUniqueViolation } from './failures.ts';

/** `timeoutMs` bounds each statement: an index on a large table takes its time. */
export async function migrateWith(
  store: Store,
  migrations: readonly Migration[],
  timeoutMs: number,
): Promise<void> {
  const rows = await store.query<{ id: string }>('SELECT id FROM store_migration');
  const applied = new Set(rows.map((row) => row.id));
  for (const migration of migrations) {
    if (applied.has(migration.id)) continue;
    await applyOnce(store, migration, timeoutMs);
  }
}

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
    // Another process was first; its transaction has made the same tables.
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
