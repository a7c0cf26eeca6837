/**
 * One statement made of parts that know nothing of each other: a folder gives its common table
 * expressions and the rows that it wants back; together they are one round trip and one commit.
 *
 * Parts run under READ COMMITTED like any statement: rows are locked in the order in which the
 * parts name each other, so every composition names them in the same order.
 */
import type { Parameter, Store } from './contract.ts';

/** What a part gives back: `part` tells whose row it is, the figures mean what the part says. */
export interface ComposedRow {
  readonly part: string;
  readonly id: string;
  readonly a: bigint;
  readonly b: bigint;
  readonly c: bigint;
}

export interface StatementPart {
  /** Common table expressions without `WITH`; `$` stands for the part's one parameter. */
  readonly expressions: string;
  /** A SELECT of `part`, `id` (text), `a`, `b` and `c` (bigint). */
  readonly rows: string;
  readonly parameter: Parameter;
}

/** A crash may undo it: the commit does not wait for the disk. */
const NOT_DURABLE = `SELECT 'settings' AS part, set_config('synchronous_commit', 'off', true) AS id,
  0::bigint AS a, 0::bigint AS b, 0::bigint AS c`;

/** Runs the parts as one statement, on PostgreSQL. */
export function runTogether(
  store: Store,
  parts: readonly StatementPart[],
  options: { readonly durable: boolean },
): Promise<readonly ComposedRow[]> {
  const expressions = parts.map((part, index) => {
    return part.expressions.replaceAll(/\$(?!\d)/g, () => `$${index + 1}`);
  });
  const rows = parts.map((part) => part.rows);
  if (!options.durable) rows.unshift(NOT_DURABLE);
  return store.query<ComposedRow>(
    `WITH ${expressions.join(',\n')}\n${rows.join('\nUNION ALL\n')}`,
    parts.map((part) => part.parameter),
  );
}
