/**
 * Slightly stale reads from replicas of the primary, for usage overviews that read many rows.
 * Failing replicas are skipped; the primary is used if all fail.
 */
import type { Parameter, Queryable, Store } from '../contract.ts';
import { isDatabaseError } from '../failures.ts';

export class ReplicaReader {
  readonly #primary: Pick<Store, 'readerFor'>;
  readonly #replicas: readonly Store[];
  #next = 0;

  constructor(primary: Pick<Store, 'readerFor'>, replicas: readonly Store[]) {
    this.#primary = primary;
    this.#replicas = replicas;
  }

  of(caller: string): Queryable {
    const primary = this.#primary.readerFor(caller);
    return {
      query: <R>(sql: string, parameters?: readonly Parameter[]) =>
        this.#query<R>(caller, primary, sql, parameters),
      run: (statements) => primary.run(statements),
    };
  }

  async close(): Promise<void> {
    for (const replica of this.#replicas) await replica.close();
  }

  async #query<R>(
    caller: string,
    primary: Queryable,
    sql: string,
    parameters?: readonly Parameter[],
  ): Promise<readonly R[]> {
    const count = this.#replicas.length;
    for (let tried = 0; tried < count; tried += 1) {
      this.#next = (this.#next + 1) % count;
      const replica = this.#replicas[this.#next];
      if (replica === undefined || replica.unavailable() !== undefined) continue;
      try {
        return await replica.readerFor(caller).query<R>(sql, parameters);
      } catch (error) {
        // The replica is unreachable, or cancelled the query because of changes on the primary.
        if (!isDatabaseError(error)) throw error;
      }
    }
    return primary.query<R>(sql, parameters);
  }
}
