/**
 * Prepared statements of one SQLite connection, by their text, with the seam's types: integers as
 * bigint, bytes as Buffer, `$1` placeholders as `?1`.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Parameter } from '../contract.ts';

/** Bounds the cache: a noun that builds texts with varying lists must not fill memory. */
const MAX_STATEMENTS = 1_000;

type Bound = string | number | bigint | null | Uint8Array;

interface Prepared {
  readonly statement: StatementSync;
  /** Whether the statement has columns at all: one without is told so, which costs half. */
  readonly hasRows: boolean;
}

export class Statements {
  readonly #database: DatabaseSync;
  readonly #byText = new Map<string, Prepared>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  run(text: string, parameters: readonly Parameter[]): Record<string, unknown>[] {
    const { statement, hasRows } = this.#byText.get(text) ?? this.#prepare(text);
    const bound = bind(parameters);
    if (!hasRows) {
      statement.run(...bound);
      return [];
    }
    const rows = statement.all(...bound);
    for (const row of rows) wrapBytes(row);
    return rows;
  }

  #prepare(text: string): Prepared {
    if (this.#byText.size >= MAX_STATEMENTS) this.#byText.clear();
    const statement = this.#database.prepare(text.replaceAll(/\$(\d+)/g, '?$1'));
    statement.setReadBigInts(true);
    const prepared = { statement, hasRows: statement.columns().length > 0 };
    this.#byText.set(text, prepared);
    return prepared;
  }
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

function wrapBytes(row: Record<string, unknown>): void {
  for (const name in row) {
    const value = row[name];
    if (value instanceof Uint8Array) {
      row[name] = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
  }
}
