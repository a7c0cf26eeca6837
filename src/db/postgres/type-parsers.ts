/** How values of PostgreSQL, which all arrive as text, are parsed. */
import pg from 'pg';

const INT8 = 20;
const INT4 = 23;
const NUMERIC = 1700;

/** Parses all integers, sums included, as bigint. */
export function getTypeParser(oid: number): (value: string) => unknown {
  if (oid === INT8 || oid === INT4 || oid === NUMERIC) return (text) => BigInt(text);
  return TEXT_PARSERS(oid, 'text');
}

/** The declared type accepts known ids only; the function accepts any. */
const TEXT_PARSERS: (oid: number, format: 'text') => (value: string) => unknown =
  pg.types.getTypeParser;
