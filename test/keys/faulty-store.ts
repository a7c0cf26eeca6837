/**
 * The connection of one process to its database, with faults: the process is suspended,
 * disconnected or killed. Otherwise it is the real store.
 */
import {
  type Queryable,
  type SharedStore,
  type Statement,
  StoreUnavailable,
} from '../../src/db/db.ts';

type Query = Queryable['query'];

export class FaultyWay {
  readonly store: SharedStore;
  #isCut = false;
  #isKilled = false;
  #resumed: PromiseWithResolvers<void> | undefined;
  /** Number of next commits whose replies are lost. */
  #repliesToLose = 0;

  constructor(real: SharedStore) {
    this.store = new Proxy(real, {
      get: (target, name) => {
        if (name === 'query') return this.#querying(target);
        if (name === 'transaction') return this.#transacting(target);
        if (name === 'run') {
          return (statements: readonly Statement[]) =>
            this.store.transaction((tx) => tx.run(statements));
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  get isPaused(): boolean {
    return this.#resumed !== undefined;
  }

  get isKilled(): boolean {
    return this.#isKilled;
  }

  pause(): void {
    this.#resumed ??= Promise.withResolvers<void>();
  }

  resume(): void {
    this.#resumed?.resolve();
    this.#resumed = undefined;
  }

  cut(): void {
    this.#isCut = true;
  }

  mend(): void {
    this.#isCut = false;
  }

  /** Disconnects the process: open transactions are rolled back. */
  kill(): void {
    this.#isKilled = true;
    this.resume();
  }

  loseReply(): void {
    this.#repliesToLose += 1;
  }

  /** A suspended process continues here when it is resumed. */
  async standing(): Promise<void> {
    await this.#resumed?.promise;
  }

  #check(): void {
    if (this.#isKilled) throw new StoreUnavailable('The process was killed');
    if (this.#isCut) throw new StoreUnavailable('The network is cut');
  }

  async #answered<T>(value: T, isCommit: boolean): Promise<T> {
    await this.standing();
    this.#check();
    if (!isCommit || this.#repliesToLose === 0) return value;
    this.#repliesToLose -= 1;
    throw new StoreUnavailable('The reply was lost');
  }

  #querying(real: SharedStore): Query {
    return async (sql, parameters) => {
      await this.standing();
      this.#check();
      return this.#answered(await real.query(sql, parameters), false);
    };
  }

  #transacting(real: SharedStore): SharedStore['transaction'] {
    return async (body, options) => {
      await this.standing();
      this.#check();
      try {
        const value = await real.transaction((tx) => body(this.#inside(tx)), options);
        return await this.#answered(value, true);
      } catch (error) {
        // The database has rolled back the transaction of a suspended process.
        await this.standing();
        throw error;
      }
    };
  }

  #inside(tx: Queryable): Queryable {
    const check = (): void => {
      this.#check();
      // The process was suspended longer than the idle timeout of transactions.
      if (this.isPaused) throw new StoreUnavailable('The session was ended: idle in transaction');
    };
    return {
      query: async (sql, parameters) => {
        check();
        const rows = await tx.query(sql, parameters);
        check();
        return rows as never; // the caller names the type of its row
      },
      run: async (statements) => {
        check();
        await tx.run(statements);
        check();
      },
    };
  }
}
