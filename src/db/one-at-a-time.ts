/** Serializes transactions that count rows and then add one, across processes. */
import type { Dialect, Queryable } from './contract.ts';

/** Allows one transaction of that name at a time; SQLite has a single writer anyway. */
export async function oneAtATime(tx: Queryable, dialect: Dialect, name: string): Promise<void> {
  if (dialect === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(hashtext($1))', [name]);
}
