/**
 * Copies the database from SQLite to an empty PostgreSQL in one transaction, and verifies the copy: equal
 * row counts and sums in every table, and equal audits without differences.
 */
import { dayOf } from '../core/clock.ts';
import type { AuditReport } from '../billing/ledger/ledger.ts';
import type { Parameter, Queryable, Store } from '../db/db.ts';
import type { Stores } from './stores.ts';

/** Tables that are not copied: each database has its own migrations and leases. */
const OWN_TABLES = /^(?:sqlite_|store_)/;
const BATCH_ROWS = 500;
/** A row with bytes can have 16 MB. */
const BATCH_ROWS_OF_BYTES = 16;
/** PostgreSQL allows 65,535 placeholders. */
const MAX_PLACEHOLDERS = 60_000;
const STEP_TIMEOUT_MS = 600_000;
/** Older days share the default partition. */
const MOST_DAYS = 1_000;

export interface MovedTable {
  readonly table: string;
  readonly rows: number;
}

export interface MoveReport {
  readonly ok: boolean;
  readonly tables: readonly MovedTable[];
  readonly source: AuditReport;
  readonly target: AuditReport;
  /** Tables whose row counts or sums differ. */
  readonly differences: readonly string[];
}

export interface Move {
  readonly source: Stores;
  readonly target: Stores;
  readonly nowMs: number;
  readonly onProgress: (doneRows: number, totalRows: number) => void;
}

/** Throws if the target has rows. */
export async function moveDatabase(move: Move): Promise<MoveReport> {
  const { source, target } = move;
  const tables = await tablesOf(source.store);
  await refuseRows(target.store, tables);
  await makeDays(move);
  const moved = await copyAll(move, tables);
  const differences = await compareAll(source.store, target.store, tables);
  const [before, after] = [await source.ledger.audit(), await target.ledger.audit()];
  const isSame =
    before.owedNano === after.owedNano &&
    before.revenueNano === after.revenueNano &&
    before.transfers === after.transfers;
  const ok = differences.length === 0 && before.ok && after.ok && isSame;
  return { ok, tables: moved, source: before, target: after, differences };
}

interface Table {
  readonly name: string;
  readonly columns: readonly string[];
  /** Columns with integers, for the sums. */
  readonly numbers: readonly string[];
  readonly hasBytes: boolean;
}

async function tablesOf(store: Store): Promise<Table[]> {
  const names = await store.query<{ name: string }>(
    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
  );
  const tables: Table[] = [];
  for (const { name } of names) {
    if (OWN_TABLES.test(name)) continue;
    const columns = await store.query<{ name: string; type: string }>(
      'SELECT name, type FROM pragma_table_info($1) ORDER BY cid',
      [name],
    );
    tables.push({
      name,
      columns: columns.map((column) => column.name),
      hasBytes: columns.some((column) => column.type === 'BYTEA'),
      numbers: columns.filter((column) => column.type === 'BIGINT').map((column) => column.name),
    });
  }
  return tables;
}

async function refuseRows(store: Store, tables: readonly Table[]): Promise<void> {
  for (const { name } of tables) {
    const rows = await store.query(`SELECT 1 AS found FROM ${name} LIMIT 1`);
    if (rows.length > 0) {
      throw new Error(
        `The target database must be empty, but ${name} has rows; use a new database`,
      );
    }
  }
}

/** Creates the partitions of all days that have rows. */
async function makeDays({ source, target, nowMs }: Move): Promise<void> {
  const today = dayOf(nowMs);
  const first = (await source.ledger.firstDay()) ?? today;
  await target.ledger.prepareDays(Math.max(first, today - MOST_DAYS), today + 2);
}

async function copyAll(move: Move, tables: readonly Table[]): Promise<MovedTable[]> {
  const counts = new Map<string, number>();
  for (const { name } of tables) counts.set(name, await countOf(move.source.store, name));
  const total = [...counts.values()].reduce((sum, rows) => sum + rows, 0);
  let done = 0;
  await move.target.store.transaction(
    async (tx) => {
      done = 0;
      for (const table of tables) {
        await copyTable(move.source.store, tx, table, (rows) => {
          done += rows;
          move.onProgress(done, total);
        });
      }
    },
    { timeoutMs: STEP_TIMEOUT_MS },
  );
  return tables.map(({ name }) => ({ table: name, rows: counts.get(name) ?? 0 }));
}

async function copyTable(
  source: Queryable,
  tx: Queryable,
  table: Table,
  onRows: (rows: number) => void,
): Promise<void> {
  const list = table.columns.join(', ');
  const most = table.hasBytes ? BATCH_ROWS_OF_BYTES : BATCH_ROWS;
  const batch = Math.min(most, Math.floor(MAX_PLACEHOLDERS / table.columns.length));
  const key = await keyOf(source, table);
  let after: readonly Parameter[] | undefined;
  for (;;) {
    const where = after === undefined ? '' : `WHERE (${key.join(', ')}) > (${places(key.length)})`;
    const rows = await source.query<Record<string, Parameter>>(
      `SELECT ${list}, ${key.join(', ')} FROM ${table.name} ${where}
       ORDER BY ${key.join(', ')} LIMIT ${batch}`,
      after ?? [],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    const values = rows.flatMap((row) => table.columns.map((column) => row[column] ?? null));
    const width = table.columns.length;
    const tuples = rows.map((_, at) => `(${places(width, at * width)})`);
    await tx.query(`INSERT INTO ${table.name} (${list}) VALUES ${tuples.join(', ')}`, values);
    onRows(rows.length);
    after = key.map((column) => last[column] ?? null);
  }
}

/** Columns for reading a table in pages: the primary key, or `rowid`. */
async function keyOf(source: Queryable, table: Table): Promise<string[]> {
  const rows = await source.query<{ name: string }>(
    'SELECT name FROM pragma_table_info($1) WHERE pk > 0 ORDER BY pk',
    [table.name],
  );
  return rows.length === 0 ? ['rowid'] : rows.map((row) => row.name);
}

function places(count: number, from = 0): string {
  return Array.from({ length: count }, (_, at) => `$${from + at + 1}`).join(', ');
}

async function countOf(store: Queryable, table: string): Promise<number> {
  const [row] = await store.query<{ rows: bigint }>(`SELECT count(*) AS rows FROM ${table}`);
  return Number(row?.rows ?? 0n);
}

/** A prime. Sums of remainders do not overflow, unlike sums of times. */
const MODULUS = 1_000_003;

async function compareAll(
  source: Store,
  target: Store,
  tables: readonly Table[],
): Promise<string[]> {
  const differences: string[] = [];
  for (const table of tables) {
    const sums = table.numbers.map(
      (column, at) => `COALESCE(sum(${column} % ${MODULUS}), 0) AS s${at}`,
    );
    const sql = `SELECT ${['count(*) AS rows', ...sums].join(', ')} FROM ${table.name}`;
    const [before] = await source.query(sql);
    const [after] = await target.transaction((tx) => tx.query(sql), { timeoutMs: STEP_TIMEOUT_MS });
    const isSame = Object.entries(before ?? {}).every(([name, value]) => after?.[name] === value);
    if (!isSame) differences.push(table.name);
  }
  return differences;
}
