/**
 * Daily partitions of growing tables: created ahead, so that inserts never wait for one, and
 * dropped whole. A table is partitioned by one column that grows with time, `unitsPerDay` per day.
 *
 * Rows inserted before their partition exists are in the default partition `<table>_rest`, and move
 * when it is created. SQLite has no partitions: there, old rows are deleted account by account in
 * small transactions.
 */
import { dayStartMs } from '../../core/clock.ts';
import { type Queryable, SET_LOCK_TIMEOUT, type Store } from '../contract.ts';

export interface PartitionedTable {
  readonly table: string;
  readonly column: string;
  /** 1 if the column is a day number, 86,400,000 if it is a time in milliseconds. */
  readonly unitsPerDay: number;
}

const MOVE_TIMEOUT_MS = 120_000;
const DROP_TIMEOUT_MS = 300_000;
const ACCOUNT_PAGE = 200;
const DELETE_BATCH = 500;
/** Lock id for changes of partitions; any constant number serves. */
const PARTITION_LOCK = 84_021;

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

export interface DroppedDays {
  readonly beforeDay: number;
  /** Returns statements that keep sums of `rows`, a table expression, in the same transaction. */
  readonly keep: (rows: string) => readonly string[];
  /** Pages of the account ids after a given one, in order. */
  readonly accounts: (after: string, limit: number) => Promise<readonly string[]>;
}

/**
 * Drops the rows before a day, from a table with the columns `account_id` and `created_ms`. Returns
 * how many partitions (PostgreSQL) or rows (SQLite) were dropped.
 */
export async function dropDays(
  store: Store,
  table: PartitionedTable,
  days: DroppedDays,
): Promise<number> {
  let dropped = 0;
  if (store.dialect === 'postgres') {
    for (const day of await dayPartitions(store, table)) {
      if (day >= days.beforeDay) break;
      await dropPartition(store, table, day, days);
      dropped += 1;
    }
    return dropped;
  }
  for (let page = await days.accounts('', ACCOUNT_PAGE); page.length > 0;) {
    for (const id of page) dropped += await deleteRows(store, table, id, days);
    page = await days.accounts(page.at(-1) ?? '', ACCOUNT_PAGE);
  }
  return dropped;
}

async function dropPartition(
  store: Store,
  table: PartitionedTable,
  day: number,
  { keep }: DroppedDays,
): Promise<void> {
  await store.transaction(
    async (tx) => {
      const partition = partitionOf(table, day);
      // No row may be added between the sum and the drop.
      await tx.query(`LOCK TABLE ${partition} IN SHARE MODE`);
      for (const sql of keep(partition)) await tx.query(sql);
      await dropDayPartition(tx, table, day);
    },
    { timeoutMs: DROP_TIMEOUT_MS, limitsLockWait: true },
  );
}

async function deleteRows(
  store: Store,
  { table }: PartitionedTable,
  accountId: string,
  { beforeDay, keep }: DroppedDays,
): Promise<number> {
  const oldest = `(SELECT rowid AS place, * FROM ${table} WHERE account_id = $1 AND created_ms < $2
    ORDER BY created_ms, rowid LIMIT ${DELETE_BATCH}) oldest`;
  const which = [accountId, dayStartMs(beforeDay)];
  let deleted = 0;
  for (;;) {
    const batch = await store.transaction(async (tx) => {
      for (const sql of keep(oldest)) await tx.query(sql, which);
      return tx.query(
        `DELETE FROM ${table} WHERE rowid IN (SELECT place FROM ${oldest}) RETURNING rowid`,
        which,
      );
    });
    deleted += batch.length;
    if (batch.length < DELETE_BATCH) return deleted;
  }
}

function partitionOf(table: PartitionedTable, day: number): string {
  return `${table.table}_d${day}`;
}

/**
 * Drops a day's partition inside the caller's transaction, which has `limitsLockWait` and first reads
 * what it wants to keep. Throws if a transaction reads the table meanwhile and does not end soon.
 */
export async function dropDayPartition(
  tx: Queryable,
  table: PartitionedTable,
  day: number,
): Promise<void> {
  await tx.query(SET_LOCK_TIMEOUT);
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
      await tx.query(SET_LOCK_TIMEOUT);
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
    { timeoutMs: MOVE_TIMEOUT_MS, limitsLockWait: true },
  );
}
