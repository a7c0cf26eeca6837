/**
 * The prepared statements of one connection to a file, by their text: what `contract.ts` says of SQL and
 * of types, in the words of SQLite.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Column, FileTransaction, Parameter, Row } from '../contract.ts';

/** Bounds the cache of a caller that builds texts with lists of various lengths. */
const MAX_STATEMENTS = 1_000;
const NUMBERED = /\$(\d+)/g;
/** A file has one writer, so that rows need no locks. */
const LOCK = / FOR UPDATE\b/g;
const NOW = /now_ms\((\$\d+)\)/g;
const JSON_VALUES = /json_array_elements\((\$\d+)::json\)/g;
const JSON_TEXTS = /json_array_elements_text\((\$\d+)::json\)/g;

interface Prepared {
  readonly statement: StatementSync;
  /** Names of the columns; a statement without any is run without asking for rows. */
  readonly columns: readonly string[];
  /** A row of them, to be copied: one object of one shape instead of one that grows. */
  readonly empty: Readonly<Record<string, Column>>;
}

export class Statements implements FileTransaction {
  readonly #database: DatabaseSync;
  readonly #byText = new Map<string, Prepared>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /** For what it changes. */
  execute(text: string, parameters: readonly Parameter[]): void {
    const { statement } = this.#byText.get(text) ?? this.#prepare(text);
    // `run` would tell how many rows it changed, in objects that nobody reads.
    statement.get(...boundAll(parameters));
  }

  rows(text: string, parameters: readonly Parameter[]): Row[] {
    const { statement, columns, empty } = this.#byText.get(text) ?? this.#prepare(text);
    const bound = boundAll(parameters);
    if (columns.length === 0) {
      statement.get(...bound);
      return [];
    }
    const rows: Row[] = [];
    // It gives arrays, see `#prepare`.
    for (const values of statement.all(...bound) as unknown as (Column | Uint8Array)[][]) {
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
    // Parameters that stand in order need no number, which SQLite looks up at each binding.
    const isInOrder = numbers.every((number, at) => number === at + 1);
    const statement = this.#database.prepare(sql.replaceAll(NUMBERED, isInOrder ? '?' : '?$1'));
    statement.setReadBigInts(true);
    // Objects that SQLite's binding makes are slow to make and slow to read.
    statement.setReturnArrays(true);
    const columns = statement.columns().map(({ name }) => name);
    const empty = Object.fromEntries(columns.map((name) => [name, null]));
    const prepared = { statement, columns, empty };
    this.#byText.set(text, prepared);
    return prepared;
  }
}

type Bound = Exclude<Parameter, boolean>;

function boundAll(parameters: readonly Parameter[]): readonly Bound[] {
  const hasBoolean = parameters.includes(true) || parameters.includes(false);
  return (hasBoolean ? parameters.map(boundOf) : parameters) as readonly Bound[]; // none left
}

function boundOf(parameter: Parameter): Bound {
  return typeof parameter === 'boolean' ? Number(parameter) : parameter;
}
