/**
 * Copies all rows of a database into an empty one, and verifies the copy: equal row counts and sums in every
 * table. One of the two is SQLite, the other is SQLite or PostgreSQL.
 */
import { dayOf } from '../core/clock.ts';
import { type AuditReport, type Ledger, firstDay } from '../billing/ledger/ledger.ts';
import type { Parameter, Queryable, Store } from '../db/db.ts';
import type { Stores } from './stores.ts';

/** Tables that are not copied: each database has its own migrations and leases. */
const OWN_TABLES = /^(?:sqlite_|store_)/;
const BATCH_ROWS = 500;
/** A row with bytes can have 16 MB. */
const BATCH_ROWS_OF_BYTES = 16;
/** SQLite allows 32,766 placeholders, PostgreSQL 65,535. */
const MAX_PLACEHOLDERS = 30_000;
export const STEP_TIMEOUT_MS = 600_000;
/** Older days share the default partition. */
const MOST_DAYS = 1_000;

export interface CopiedTable {
  readonly table: string;
  readonly rows: number;
}

export interface CopyReport {
  readonly tables: readonly CopiedTable[];
  /** Tables whose row counts or sums differ. */
  readonly differences: readonly string[];
}

export interface MoveReport extends CopyReport {
  readonly ok: boolean;
  readonly source: AuditReport;
  readonly target: AuditReport;
}

type OnProgress = (doneRows: number, totalRows: number) => void;

export interface Move {
  readonly source: Stores;
  readonly target: Stores;
  readonly nowMs: number;
  readonly onProgress: OnProgress;
}

/** Moves an idle SQLite database to PostgreSQL and audits both. Throws if the target has rows. */
export async function moveDatabase(move: Move): Promise<MoveReport> {
  const { source, target, nowMs, onProgress } = move;
  await refuseRows(target.store, await tablesOf(source.store));
  await makeDays(source.store, target.ledger, nowMs);
  const copied = await copyRows(source.store, target.store, onProgress);
  const [before, after] = [await source.ledger.audit(), await target.ledger.audit()];
  const isSame =
    before.owedNano === after.owedNano &&
    before.revenueNano === after.revenueNano &&
    before.transfers === after.transfers;
  const ok = copied.differences.length === 0 && before.ok && after.ok && isSame;
  return { ...copied, ok, source: before, target: after };
}

/** Copies one snapshot of PostgreSQL, which may be in use, to an empty SQLite file. */
export function copySnapshot(
  source: Store,
  target: Store,
  onProgress: OnProgress,
): Promise<CopyReport> {
  return source.transaction((tx) => copyRows(tx, target, onProgress), {
    isSnapshot: true,
    timeoutMs: STEP_TIMEOUT_MS,
  });
}

interface Table {
  readonly name: string;
  readonly columns: readonly string[];
  /** Columns with integers, for the sums. */
  readonly numbers: readonly string[];
  readonly hasBytes: boolean;
}

/** `store` is SQLite; the tables of both databases are the same. */
async function tablesOf(store: Queryable): Promise<Table[]> {
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
async function makeDays(source: Store, target: Ledger, nowMs: number): Promise<void> {
  const today = dayOf(nowMs);
  const first = (await firstDay(source)) ?? today;
  await target.prepareDays(Math.max(first, today - MOST_DAYS), today + 2);
}

async function copyRows(
  source: Queryable,
  target: Store,
  onProgress: OnProgress,
): Promise<CopyReport> {
  const isFromFile = target.dialect === 'postgres';
  const tables = await tablesOf(isFromFile ? source : target);
  const counts = new Map<string, number>();
  for (const { name } of tables) counts.set(name, await countOf(source, name));
  const total = [...counts.values()].reduce((sum, rows) => sum + rows, 0);
  let done = 0;
  const copyAll = async (write: Write): Promise<void> => {
    done = 0;
    for (const table of tables) {
      const pages = isFromFile ? pagesByKey(source, table) : pagesByCursor(source, table);
      for await (const rows of pages) {
        await insert(write, table, rows);
        done += rows.length;
        onProgress(done, total);
      }
    }
  };
  if (isFromFile) {
    const write = (tx: Queryable) => (sql: string, values: readonly Parameter[]) =>
      tx.query(sql, values.map(withoutNul));
    await target.transaction((tx) => copyAll(write(tx)), { timeoutMs: STEP_TIMEOUT_MS });
  } else {
    // The file is new, so it needs no atomicity, and a transaction per page keeps its log short.
    await copyAll((sql, values) =>
      target.transaction((tx) => tx.query(sql, values), { durable: false }),
    );
  }
  const differences = await compareAll(source, target, tables);
  const copied = tables.map(({ name }) => ({ table: name, rows: counts.get(name) ?? 0 }));
  return { tables: copied, differences };
}

type Write = (sql: string, values: readonly Parameter[]) => Promise<unknown>;
type Values = Readonly<Record<string, Parameter>>;

async function insert(write: Write, table: Table, rows: readonly Values[]): Promise<void> {
  const width = table.columns.length;
  const values = rows.flatMap((row) => table.columns.map((column) => row[column] ?? null));
  const tuples = rows.map((_, at) => `(${places(width, at * width)})`);
  const into = `INSERT INTO ${table.name} (${table.columns.join(', ')})`;
  await write(`${into} VALUES ${tuples.join(', ')}`, values);
}

function pageRows(table: Table): number {
  const most = table.hasBytes ? BATCH_ROWS_OF_BYTES : BATCH_ROWS;
  return Math.min(most, Math.floor(MAX_PLACEHOLDERS / table.columns.length));
}

/** PostgreSQL cannot store NUL in a text. */
function withoutNul(value: Parameter): Parameter {
  return typeof value === 'string' ? value.replaceAll('\0', '\uFFFD') : value;
}

async function* pagesByKey(source: Queryable, table: Table): AsyncGenerator<readonly Values[]> {
  const key = await keyOf(source, table);
  const list = [...table.columns, ...key].join(', ');
  let after: readonly Parameter[] | undefined;
  for (;;) {
    const where = after === undefined ? '' : `WHERE (${key.join(', ')}) > (${places(key.length)})`;
    const rows = await source.query<Values>(
      `SELECT ${list} FROM ${table.name} ${where}
       ORDER BY ${key.join(', ')} LIMIT ${pageRows(table)}`,
      after ?? [],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    yield rows;
    after = key.map((column) => last[column] ?? null);
  }
}

/** Needs an open transaction on PostgreSQL. */
async function* pagesByCursor(source: Queryable, table: Table): AsyncGenerator<readonly Values[]> {
  // Prepared statements are kept by their text, so each table has its own cursor name.
  const cursor = `copy_${table.name}`;
  const list = table.columns.join(', ');
  await source.query(`DECLARE ${cursor} NO SCROLL CURSOR FOR SELECT ${list} FROM ${table.name}`);
  for (;;) {
    const rows = await source.query<Values>(`FETCH ${pageRows(table)} FROM ${cursor}`);
    if (rows.length === 0) break;
    yield rows;
  }
  await source.query(`CLOSE ${cursor}`);
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
  source: Queryable,
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
