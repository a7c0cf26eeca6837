/**
 * Daily partitions of growing tables: created ahead, so that inserts never wait for one, and
 * dropped whole. A table is partitioned by one column that grows with time, `unitsPerDay` per day.
 *
 * Rows inserted before their partition exists are in the default partition `<table>_rest`, and move
 * when it is created. SQLite has no partitions, so these functions do nothing there.
 */
import type { Queryable, Store } from '../contract.ts';

export interface PartitionedTable {
  readonly table: string;
  readonly column: string;
  /** 1 if the column is a day number, 86,400,000 if it is a time in milliseconds. */
  readonly unitsPerDay: number;
}

const MOVE_TIMEOUT_MS = 120_000;
/** Lock id for changes of partitions; any constant number serves. */
const PARTITION_LOCK = 84_021;

/** Creates the missing partitions of the given days; returns their number. */
export async function makeDayPartitions(
  store: Store,
  table: PartitionedTable,
  days: Iterable<number>,
): Promise<number> {
  if (store.dialect !== 'postgres') return 0;
  const existing = new Set(await dayPartitions(store, table));
  let made = 0;
  for (const day of days) {
    if (existing.has(day)) continue;
    if (await makePartition(store, table, day)) made += 1;
  }
  return made;
}

export async function dayPartitions(store: Store, table: PartitionedTable): Promise<number[]> {
  if (store.dialect !== 'postgres') return [];
  const rows = await store.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass($1)`,
    [table.table],
  );
  const prefix = `${table.table}_d`;
  return rows
    .filter((row) => row.name.startsWith(prefix))
    .map((row) => Number(row.name.slice(prefix.length)))
    .filter((day) => Number.isSafeInteger(day))
    .toSorted((a, b) => a - b);
}

export function partitionOf(table: PartitionedTable, day: number): string {
  return `${table.table}_d${day}`;
}

/**
 * Drops a day's partition inside the caller's transaction, which first reads what it wants to keep.
 * Waits for running statements on the table, at most for the statement timeout.
 */
export async function dropDayPartition(
  tx: Queryable,
  table: PartitionedTable,
  day: number,
): Promise<void> {
  await tx.query(`DROP TABLE IF EXISTS ${partitionOf(table, day)}`);
}

async function makePartition(store: Store, table: PartitionedTable, day: number): Promise<boolean> {
  const name = partitionOf(table, day);
  const from = day * table.unitsPerDay;
  const until = from + table.unitsPerDay;
  const rest = `${table.table}_rest`;
  return store.transaction(
    async (tx) => {
      await tx.query(`SELECT pg_advisory_xact_lock(${PARTITION_LOCK})`);
      const [found] = await tx.query<{ id: string | null }>('SELECT to_regclass($1)::text AS id', [
        name,
      ]);
      if (found?.id !== null) return false;
      await tx.query(`CREATE TABLE ${name} (LIKE ${table.table} INCLUDING ALL)`);
      // Blocks inserts into the default partition between the move and the attachment.
      await tx.query(`LOCK TABLE ${rest} IN ACCESS EXCLUSIVE MODE`);
      await tx.query(
        `WITH moved AS (DELETE FROM ${rest} WHERE ${table.column} >= ${from}
           AND ${table.column} < ${until} RETURNING *)
         INSERT INTO ${name} SELECT * FROM moved`,
      );
      await tx.query(
        `ALTER TABLE ${table.table} ATTACH PARTITION ${name} FOR VALUES FROM (${from}) TO (${until})`,
      );
      return true;
    },
    { timeoutMs: MOVE_TIMEOUT_MS },
  );
}
