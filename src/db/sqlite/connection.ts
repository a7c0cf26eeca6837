/**
 * A connection to a SQLite file, and its statements with the types of the seam. The store has one that
 * writes and one that reads, and the thread of long reads one of its own.
 */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { reasonOf } from '../../core/log.ts';
import type { Column, FileTransaction, Parameter, Row } from '../contract.ts';

/** How long a second process (a command line beside the server) is waited for. */
export const BUSY_TIMEOUT_MS = 5_000;

/** A connection to the file, with the settings that all have. Throws an error that names the file. */
export function openConnection(path: string): DatabaseSync {
  const database = openFile(path);
  database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
  // In KiB. A larger cache fills for hours and gives no speed: what a settle needs is a few pages.
  database.exec('PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY');
  return database;
}

/** SQLite does not say which file it could not open. */
function openFile(path: string): DatabaseSync {
  try {
    return new DatabaseSync(path);
  } catch (error) {
    throw new Error(`The database file ${path} cannot be opened: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** Bounds the cache: a caller that builds texts with varying lists must not fill memory. */
const MAX_STATEMENTS = 1_000;
const NUMBERED = /\$(\d+)/g;

interface Prepared {
  readonly statement: StatementSync;
  /** Names of the columns; a statement without any is run without asking for rows. */
  readonly columns: readonly string[];
  /** A row of them, to be copied: one object of one shape instead of one that grows. */
  readonly empty: Readonly<Record<string, Column>>;
}

/**
 * Prepared statements of one connection, by their text, with the seam's types: integers as bigint,
 * bytes as Buffer, `$1` as `?`, booleans as 0 and 1.
 */
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
    const numbers = Array.from(text.matchAll(NUMBERED), ([, digits]) => Number(digits));
    // Parameters that stand in order need no number, which SQLite looks up at each binding.
    const isInOrder = numbers.every((number, at) => number === at + 1);
    const statement = this.#database.prepare(text.replaceAll(NUMBERED, isInOrder ? '?' : '?$1'));
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
