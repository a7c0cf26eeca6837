/** Caches the prepared statements of one SQLite connection, and translates their SQL. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Column, FileTransaction, Parameter, Row } from '../contract.ts';

/** Bounds the cache for callers that build texts with lists of various lengths. */
const MAX_STATEMENTS = 1_000;
const NUMBERED = /\$(\d+)/g;
/** A file has one writer, so rows need no locks. */
const LOCK = / FOR UPDATE\b/g;
const NOW = /now_ms\((\$\d+)\)/g;
const JSON_VALUES = /json_array_elements\((\$\d+)::json\)/g;
const JSON_TEXTS = /json_array_elements_text\((\$\d+)::json\)/g;

interface Prepared {
  readonly statement: StatementSync;
  /** Names of the columns; empty for a statement that returns no rows. */
  readonly columns: readonly string[];
  /** Template of a row: copying it keeps one object shape, which is faster than adding members. */
  readonly empty: Readonly<Record<string, Column>>;
}

export class Statements implements FileTransaction {
  readonly #database: DatabaseSync;
  readonly #byText = new Map<string, Prepared>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  execute(text: string, parameters: readonly Parameter[]): void {
    const { statement } = this.#byText.get(text) ?? this.#prepare(text);
    // `run` would allocate result objects that are not used.
    statement.get(...parameters);
  }

  rows(text: string, parameters: readonly Parameter[]): Row[] {
    const { statement, columns, empty } = this.#byText.get(text) ?? this.#prepare(text);
    if (columns.length === 0) {
      statement.get(...parameters);
      return [];
    }
    const rows: Row[] = [];
    // Rows are arrays, see `#prepare`.
    for (const values of statement.all(...parameters) as unknown as (Column | Uint8Array)[][]) {
      const row: Record<string, Column> = { ...empty };
      for (let at = 0; at < columns.length; at += 1) {
        const value = values[at] ?? null;
        row[columns[at] ?? ''] =
          value instanceof Uint8Array
            ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
            : value;
      }
      rows.push(row);
    }
    return rows;
  }

  #prepare(text: string): Prepared {
    if (this.#byText.size >= MAX_STATEMENTS) this.#byText.clear();
    const sql = text
      .replaceAll(LOCK, '')
      .replaceAll(JSON_TEXTS, 'value FROM json_each($1)')
      .replaceAll(JSON_VALUES, 'json_each($1)')
      .replaceAll(NOW, 'CAST($1 AS INTEGER)');
    const numbers = Array.from(sql.matchAll(NUMBERED), ([, digits]) => Number(digits));
    // Parameters in order need no number, which SQLite would look up at each binding.
    const isInOrder = numbers.every((number, at) => number === at + 1);
    const statement = this.#database.prepare(sql.replaceAll(NUMBERED, isInOrder ? '?' : '?$1'));
    statement.setReadBigInts(true);
    // Objects created by SQLite's binding are slow to create and to read.
    statement.setReturnArrays(true);
    const columns = statement.columns().map(({ name }) => name);
    const empty = Object.fromEntries(columns.map((name) => [name, null]));
    const prepared = { statement, columns, empty };
    this.#byText.set(text, prepared);
    return prepared;
  }
}
