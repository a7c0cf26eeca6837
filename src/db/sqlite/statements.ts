/**
 * Prepared statements of one SQLite connection, by their text, with the seam's types: integers as
 * bigint, bytes as Buffer, `$1` as `?`.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Parameter } from '../contract.ts';

/** Bounds the cache: a caller that builds texts with varying lists must not fill memory. */
const MAX_STATEMENTS = 1_000;

type Bound = string | number | bigint | null | Uint8Array;

interface Prepared {
  readonly statement: StatementSync;
  /** Names of the columns; a statement without any is run without asking for rows. */
  readonly columns: readonly string[];
}

export class Statements {
  readonly #database: DatabaseSync;
  readonly #byText = new Map<string, Prepared>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  run(text: string, parameters: readonly Parameter[]): Record<string, unknown>[] {
    const { statement, columns } = this.#byText.get(text) ?? this.#prepare(text);
    const bound = bind(parameters);
    if (columns.length === 0) {
      statement.run(...bound);
      return [];
    }
    // It gives arrays, see `#prepare`.
    const rows = statement.all(...bound) as unknown as unknown[][];
    return rows.map((values) => rowOf(columns, values));
  }

  #prepare(text: string): Prepared {
    if (this.#byText.size >= MAX_STATEMENTS) this.#byText.clear();
    const statement = this.#database.prepare(withQuestionMarks(text));
    statement.setReadBigInts(true);
    // Objects that SQLite's binding makes are slow to make and slow to read.
    statement.setReturnArrays(true);
    const prepared = { statement, columns: statement.columns().map(({ name }) => name) };
    this.#byText.set(text, prepared);
    return prepared;
  }
}

const NUMBERED = /\$(\d+)/g;

/** Parameters that stand in order need no number, which SQLite looks up at each binding. */
function withQuestionMarks(text: string): string {
  const numbers = Array.from(text.matchAll(NUMBERED), ([, digits]) => Number(digits));
  const isInOrder = numbers.every((number, at) => number === at + 1);
  return text.replaceAll(NUMBERED, isInOrder ? '?' : '?$1');
}

function bind(parameters: readonly Parameter[]): readonly Bound[] {
  for (const one of parameters) {
    if (typeof one === 'boolean') return parameters.map(boundOf);
  }
  return parameters as readonly Bound[]; // there is no boolean in it
}

function boundOf(parameter: Parameter): Bound {
  return typeof parameter === 'boolean' ? Number(parameter) : parameter;
}

function rowOf(columns: readonly string[], values: readonly unknown[]): Record<string, unknown> {
  const row: Record<string, unknown> = {};
  for (let at = 0; at < columns.length; at += 1) {
    const value = values[at];
    row[columns[at] ?? ''] =
      value instanceof Uint8Array
        ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
        : value;
  }
  return row;
}
