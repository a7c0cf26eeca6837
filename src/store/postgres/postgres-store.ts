/**
 * The store on PostgreSQL, or on anything that speaks its protocol: a small pool of connections,
 * prepared statements by text, transactions at READ COMMITTED with explicit row locks, retried
 * on serialization failures and deadlocks.
 *
 * When the database is away, calls fail at once instead of queueing: after a failed connection
 * the store answers `StoreUnavailable` until a probe gets through.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Clock } from '../../kernel/clock.ts';
import type { Ids } from '../../kernel/ids.ts';
import { type Log, reasonOf } from '../../kernel/log.ts';
import { migrateWith } from '../migrate.ts';
import type { Migration, Parameter, Queryable, Store, WriteOptions } from '../contract.ts';
import { StoreUnavailable, isConnectionFailure, isSerializationFailure } from '../failures.ts';

const CONNECT_TIMEOUT_MS = 3_000;
/** A statement longer than this is broken off by the server. */
const STATEMENT_TIMEOUT_MS = 15_000;
/** A reply that takes longer means that the connection is gone (a cut network sends no reset). */
const REPLY_TIMEOUT_MS = 20_000;
const MAX_ATTEMPTS = 8;
const RETRY_BASE_MS = 5;
const PROBE_EVERY_MS = 500;

export interface PostgresOptions {
  readonly url: string;
  readonly maxConnections: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** How long a reply may take; tests shorten it. */
  readonly replyTimeoutMs?: number;
}

export class PostgresStore implements Store {
  readonly dialect = 'postgres';
  readonly #options: PostgresOptions;
  readonly #pool: pg.Pool;
  readonly #names = new Map<string, string>();
  #down: string | undefined;
  #stopProbe: (() => void) | undefined;

  constructor(options: PostgresOptions) {
    this.#options = options;
    this.#pool = new pg.Pool({
      connectionString: options.url,
      max: options.maxConnections,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      query_timeout: options.replyTimeoutMs ?? REPLY_TIMEOUT_MS,
      keepAlive: true,
      application_name: 'farebox',
      types: { getTypeParser },
    });
    // An idle connection that breaks says so here; the next call finds out by itself.
    this.#pool.on('error', (error) => this.#lost(error));
  }

  async query<R>(sql: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    return this.#attempt(async () => this.#run<R>(this.#pool, sql, parameters));
  }

  async transaction<T>(
    body: (tx: Queryable) => Promise<T>,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.#attempt(async () => {
      const client = await this.#pool.connect();
      try {
        await client.query('BEGIN');
        if (options.durable === false) await client.query('SET LOCAL synchronous_commit = off');
        const value = await body({
          query: (sql, parameters = []) => this.#run(client, sql, parameters),
        });
        await client.query('COMMIT');
        client.release();
        return value;
      } catch (error) {
        await endFailed(client, error);
        throw error;
      }
    });
  }

  async migrate(migrations: readonly Migration[]): Promise<void> {
    await this.transaction(async (tx) => {
      await tx.query('SELECT pg_advisory_xact_lock(8402)');
      await tx.query('CREATE TABLE IF NOT EXISTS store_migration (id TEXT PRIMARY KEY)');
    });
    await migrateWith(this, migrations);
  }

  unavailable(): string | undefined {
    return this.#down;
  }

  async close(): Promise<void> {
    this.#stopProbe?.();
    if (!this.#pool.ended) await this.#pool.end();
  }

  async #run<R>(
    client: pg.Pool | pg.PoolClient,
    sql: string,
    parameters: readonly Parameter[],
  ): Promise<readonly R[]> {
    const values = parameters.map(bind);
    const result = await client.query({ name: this.#nameOf(sql), text: sql, values });
    return result.rows as R[]; // the caller names its row
  }

  /** One prepared statement a text; the name is its digest, so that poolers can share it. */
  #nameOf(sql: string): string {
    let name = this.#names.get(sql);
    if (name === undefined) {
      name = createHash('sha256').update(sql).digest('hex').slice(0, 32);
      this.#names.set(sql, name);
    }
    return name;
  }

  async #attempt<T>(work: () => Promise<T>): Promise<T> {
    if (this.#down !== undefined) throw new StoreUnavailable(this.#down);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await work();
      } catch (error) {
        if (isConnectionFailure(error)) throw this.#lost(error);
        if (!isSerializationFailure(error) || attempt >= MAX_ATTEMPTS) throw error;
        const spread = this.#options.ids.fraction();
        await this.#options.clock.sleep(RETRY_BASE_MS * 2 ** attempt * spread);
      }
    }
  }

  #lost(error: unknown): StoreUnavailable {
    const reason = reasonOf(error);
    if (this.#down === undefined) {
      this.#down = reason;
      this.#options.log.error({ reason }, 'Database lost');
      this.#stopProbe = this.#options.clock.every(PROBE_EVERY_MS, () => void this.#probe());
    }
    return new StoreUnavailable(reason, { cause: error });
  }

  #probing = false;

  async #probe(): Promise<void> {
    if (this.#probing) return;
    this.#probing = true;
    try {
      // A standby that is not promoted yet, or a read-only node, is not "back".
      const result = await this.#pool.query('SELECT pg_is_in_recovery() AS standby');
      if ((result.rows[0] as { standby: boolean }).standby) return; // one row by the statement
      this.#down = undefined;
      this.#stopProbe?.();
      this.#options.log.info({}, 'Database back');
    } catch {
      // Still away: the next probe tries again.
    } finally {
      this.#probing = false;
    }
  }
}

async function endFailed(client: pg.PoolClient, error: unknown): Promise<void> {
  if (isConnectionFailure(error)) {
    client.release(true);
    return;
  }
  try {
    await client.query('ROLLBACK');
    client.release();
  } catch {
    // The connection broke while rolling back; the server undoes the work by itself.
    client.release(true);
  }
}

function bind(parameter: Parameter): unknown {
  if (typeof parameter === 'boolean') return parameter ? 1n : 0n;
  return parameter;
}

const INT8 = 20;
const INT4 = 23;
const NUMERIC = 1700;

/** All integers, sums included, arrive as bigint. Everything is asked for as text. */
function getTypeParser(oid: number): (value: string) => unknown {
  if (oid === INT8 || oid === INT4 || oid === NUMERIC) return (text) => BigInt(text);
  return TEXT_PARSERS(oid, 'text');
}

/** The declared signature takes an enum of the known ids only; any id is looked up. */
const TEXT_PARSERS: (oid: number, format: 'text') => (value: string) => unknown =
  pg.types.getTypeParser;
