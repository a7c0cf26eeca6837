/**
 * Combines statements: those of equal text become one statement for many rows, and consecutive
 * writes become one statement with a part for each text. A statement costs as much as about ten
 * rows.
 *
 * PostgreSQL applies only one of two changes that one statement makes to a row. So a statement
 * never has two parts that change rows of the same table, and no part has a row twice.
 *
 * A nullable column that is not text needs a `CAST`, since a list of nulls has no type.
 */
import { assert } from '../../core/assert.ts';
import type { Parameter, Statement } from '../contract.ts';

const MAX_TEXTS = 1_000;
const NUMBERED = /\$(\d+)/g;
const WRITE = /^(INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)/;
const ROW_OF_INSERT = /VALUES\s*\(([\s\S]*?)\)(?=\s*(?:ON CONFLICT[\s\S]*)?$)/;

interface Text {
  readonly number: number;
  /** `undefined` for a statement that is no write. */
  readonly table: string | undefined;
  /** A plain insert creates rows; any other write can change rows that exist. */
  readonly isInsert: boolean;
  /** Places of the parameters that select the row of an update or delete. */
  readonly keys: readonly number[] | undefined;
}

interface Part {
  readonly sql: string;
  readonly text: Text;
  readonly rows: (readonly Parameter[])[];
  readonly keys: Set<string>;
}

export class Bulk {
  readonly #combined = new Map<string, string>();
  readonly #texts = new Map<string, Text>();

  of(statements: readonly Statement[]): readonly Statement[] {
    const bulk: Statement[] = [];
    let parts: Part[] = [];
    const end = (): void => {
      if (parts.length > 0) bulk.push(this.#together(parts));
      parts = [];
    };
    for (const one of statements) {
      const { sql, parameters } = one;
      const text = this.#texts.get(sql) ?? this.#read(sql);
      const key = text.keys?.map((place) => parameters[place]).join(' ');
      const last = parts.at(-1);
      if (text.table === undefined) {
        end();
        bulk.push(one);
      } else if (last?.sql === sql && (key === undefined || !last.keys.has(key))) {
        last.rows.push(parameters);
        if (key !== undefined) last.keys.add(key);
      } else {
        if (parts.some((part) => mayChangeOneRow(part.text, text))) end();
        parts.push({
          sql,
          text,
          rows: [parameters],
          keys: new Set(key === undefined ? [] : [key]),
        });
      }
    }
    end();
    return bulk;
  }

  #read(sql: string): Text {
    const [, verb, table] = WRITE.exec(sql) ?? [];
    const isSelecting = verb === 'UPDATE' || verb === 'DELETE FROM';
    const where = sql.slice(sql.lastIndexOf('WHERE'));
    const text = {
      number: this.#texts.size,
      table,
      isInsert: !isSelecting && !sql.includes('DO UPDATE'),
      keys: isSelecting
        ? Array.from(where.matchAll(NUMBERED), ([, number]) => Number(number) - 1)
        : undefined,
    };
    this.#texts.set(sql, text);
    return text;
  }

  #together(parts: readonly Part[]): Statement {
    const parameters: Parameter[] = [];
    const types = parts.map(({ rows }) => {
      const [first = []] = rows;
      if (rows.length === 1) {
        parameters.push(...first);
        return undefined;
      }
      const ofColumns = first.map((_, column) => typeOf(rows, column));
      for (const [column, type] of ofColumns.entries()) {
        parameters.push(listOf(rows, column, type));
      }
      return ofColumns.join();
    });
    const key = parts.map(({ text }, at) => `${text.number} ${types[at] ?? ''}`).join('; ');
    let sql = this.#combined.get(key);
    if (sql === undefined) {
      if (this.#combined.size >= MAX_TEXTS) this.#combined.clear();
      this.#combined.set(key, (sql = textOf(parts, types)));
    }
    return { sql, parameters };
  }
}

function mayChangeOneRow(a: Text, b: Text): boolean {
  return a.table === b.table && !(a.isInsert && b.isInsert);
}

function typeOf(rows: Part['rows'], column: number): 'text' | 'bigint' {
  const value = rows.find((row) => row[column] !== null)?.[column];
  return typeof value === 'bigint' || typeof value === 'number' ? 'bigint' : 'text';
}

function listOf(rows: Part['rows'], column: number, type: 'text' | 'bigint'): string {
  let text = '{';
  for (const row of rows) {
    const value = row[column] ?? null;
    if (text.length > 1) text += ',';
    if (value === null) text += 'NULL';
    else if (type === 'bigint') text += String(value);
    else text += `"${escaped(String(value))}"`;
  }
  return `${text}}`;
}

function escaped(text: string): string {
  if (!text.includes('"') && !text.includes('\\')) return text;
  return text.replaceAll(/["\\]/g, String.raw`\$&`);
}

function textOf(parts: readonly Part[], types: readonly (string | undefined)[]): string {
  let first = 1;
  const texts = parts.map(({ sql, rows }, at) => {
    const from = first;
    first += rows[0]?.length ?? 0;
    const ofColumns = types[at];
    if (ofColumns !== undefined) return manyText(sql, ofColumns.split(','), from);
    return sql.replaceAll(NUMBERED, (_match, number: string) => `$${from - 1 + Number(number)}`);
  });
  const [only = ''] = texts;
  if (texts.length === 1) return only;
  return `WITH ${texts.map((text, at) => `part${at} AS (${text})`).join(', ')} SELECT 1`;
}

function manyText(sql: string, types: readonly string[], first: number): string {
  const lists = types.map((type, at) => `$${first + at}::${type}[]`).join(', ');
  const names = types.map((_, at) => `p${at + 1}`).join(', ');
  const source = `unnest(${lists}) AS v (${names})`;
  const named = sql.replaceAll(NUMBERED, 'v.p$1');
  if (sql.startsWith('INSERT')) {
    assert(ROW_OF_INSERT.test(named), 'an insert has the values of one row');
    return named.replace(ROW_OF_INSERT, (_match, row: string) => `SELECT ${row} FROM ${source}`);
  }
  const where = named.lastIndexOf('WHERE');
  const joined = sql.startsWith('DELETE') ? 'USING' : 'FROM';
  return `${named.slice(0, where)} ${joined} ${source} ${named.slice(where)}`;
}
