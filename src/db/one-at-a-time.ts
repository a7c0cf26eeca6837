/** Lets what counts rows and then adds one be right among processes that share a database. */
import type { Dialect, Queryable } from './contract.ts';

/**
 * One transaction of that name at a time, to the end of this one. A statement of PostgreSQL counts
 * what was committed when it began; SQLite has one writer anyway.
 */
export async function oneAtATime(tx: Queryable, dialect: Dialect, name: string): Promise<void> {
  if (dialect === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(hashtext($1))', [name]);
}
