/**
 * Reads that may be a moment old, from replicas that follow the primary: overviews of usage, which
 * read many rows. A replica that fails is passed over; the primary answers when none does.
 */
import type { Parameter, Queryable, Statement, Store } from '../contract.ts';
import { isDatabaseError } from '../failures.ts';

export class ReplicaReader implements Queryable {
  readonly #primary: Queryable;
  readonly #replicas: readonly Store[];
  #next = 0;

  constructor(primary: Queryable, replicas: readonly Store[]) {
    this.#primary = primary;
    this.#replicas = replicas;
  }

  async query<R>(sql: string, parameters?: readonly Parameter[]): Promise<readonly R[]> {
    const count = this.#replicas.length;
    for (let tried = 0; tried < count; tried += 1) {
      this.#next = (this.#next + 1) % count;
      const replica = this.#replicas[this.#next];
      if (replica === undefined || replica.unavailable() !== undefined) continue;
      try {
        return await replica.query<R>(sql, parameters);
      } catch (error) {
        // It is away, or has broken the query off because the primary changed what it reads.
        if (!isDatabaseError(error)) throw error;
      }
    }
    return this.#primary.query<R>(sql, parameters);
  }

  run(statements: readonly Statement[]): Promise<void> {
    return this.#primary.run(statements);
  }
}
