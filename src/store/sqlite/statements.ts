/**
 * Prepared statements of one SQLite connection, by their text, with the seam's types: integers as
 * bigint, bytes as Buffer, `$1` placeholders as `?1`.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Parameter } from '../contract.ts';

/** Bounds the cache: a noun that builds texts with varying lists must not fill memory. */
const MAX_STATEMENTS = 1_000;

type Bound = string | number | bigint | null | Uint8Array;

export class Statements {
  readonly #database: DatabaseSync;
  readonly #byText = new Map<string, StatementSync>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  run(text: string, parameters: readonly Parameter[]): Record<string, unknown>[] {
    const statement = this.#byText.get(text) ?? this.#prepare(text);
    const rows = statement.all(...parameters.map(bind));
    for (const row of rows) wrapBytes(row);
    return rows;
  }

  #prepare(text: string): StatementSync {
    if (this.#byText.size >= MAX_STATEMENTS) this.#byText.clear();
    const statement = this.#database.prepare(text.replaceAll(/\$(\d+)/g, '?$1'));
    statement.setReadBigInts(true);
    this.#byText.set(text, statement);
    return statement;
  }
}

function bind(parameter: Parameter): Bound {
  if (typeof parameter === 'boolean') return parameter ? 1 : 0;
  return parameter;
}

function wrapBytes(row: Record<string, unknown>): void {
  for (const name in row) {
    const value = row[name];
    if (value instanceof Uint8Array) {
      row[name] = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
  }
}
