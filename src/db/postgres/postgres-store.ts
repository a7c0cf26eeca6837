/**
 * The store on PostgreSQL or a compatible server: a small connection pool, prepared statements by
 * text, and transactions at READ COMMITTED with explicit row locks, retried on serialization
 * failures and deadlocks.
 *
 * When the database is unreachable, calls fail at once instead of queueing: after a connection
 * failure the store throws `StoreUnavailable` until a probe reaches one of the servers in the URL.
 * Every wait is bounded: for a connection, a reply, a lock.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { migrateWith } from '../migrate.ts';
import type {
  Migration,
  Notices,
  Parameter,
  Queryable,
  SharedStore,
  Statement,
  WriteOptions,
} from '../contract.ts';
import {
  ReadTooLong,
  StoreUnavailable,
  isConnectionFailure,
  isLostStatement,
  isLockTimeout,
  isOverload,
  isPoolWait,
  isSerializationFailure,
  isStatementTimeout,
} from '../failures.ts';
import type { JobQueue } from '../../core/job-queue.ts';
import { MAX_READ_MS, lineOf, readTurns } from '../read-turns.ts';
import { Bulk } from './bulk.ts';
import { NOTIFY, PostgresNotices } from './notices.ts';
import { ReplicaReader } from './replica-reader.ts';
import { TurnSocket } from './turn-socket.ts';
import { getTypeParser } from './type-parsers.ts';

/** After this time without a reply the connection is lost: a partition sends no reset. */
export const REPLY_TIMEOUT_MS = 5 * SECOND_MS;
/**
 * Statement timeout as a share of the reply timeout. It is lower, so that the cancellation arrives
 * in time even over a slow network, and waiting for a lock does not count as a lost connection. A
 * short reply timeout uses the larger share.
 */
const STATEMENT_SHARE = 1 / 2;
const SHORT_STATEMENT_SHARE = 0.8;
const SHORT_STATEMENT_MS = SECOND_MS;
/** Minimum time limit of probes and of statements outside the pool. */
const PROBE_TIMEOUT_MS = 2 * SECOND_MS;
const PROBE_EVERY_MS = 500;
/** Maximum number of concurrent probes: in a network partition none of them returns. */
const PROBES_AT_ONCE = 8;
const KEEP_ALIVE_AFTER_MS = 5 * SECOND_MS;
const MAX_ATTEMPTS = 8;
const RETRY_BASE_MS = 5;
/** Calls that wait for a connection, per connection; further ones are rejected at once. */
const WAITING_PER_CONNECTION = 1_024;
/** Connections to each replica, as a share of those to the primary. */
const REPLICA_SHARE = 1 / 2;
/** Connections for overview reads, as a share of those to the primary. */
const OVERVIEW_SHARE = 1 / 4;
const MIGRATION_TIMEOUT_MS = 600 * SECOND_MS;

export interface PostgresOptions {
  readonly url: string;
  /** The same servers without a pooler, in the same order; default: `url`. */
  readonly directUrl?: string;
  readonly replicaUrls?: readonly string[];
  /** A replica counts as reachable when it can be read. */
  readonly isReplica?: boolean;
  readonly maxConnections: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly replyTimeoutMs?: number;
}

export class PostgresStore implements SharedStore {
  readonly dialect = 'postgres';
  readonly #replicas: ReplicaReader | undefined;
  readonly #turns: JobQueue;
  readonly #options: PostgresOptions;
  readonly #servers: readonly string[];
  readonly #replyTimeoutMs: number;
  readonly #statements = new Map<string, { readonly name: string; readonly text: string }>();
  readonly #bulk = new Bulk();
  readonly #directServers: readonly string[];
  #losses = 0;
  #server = 0;
  #notices: PostgresNotices | undefined;
  #pool: pg.Pool;
  #down: string | undefined;
  /** Those of the present outage that were logged. */
  readonly #reasons = new Set<string>();
  #stopProbe: (() => void) | undefined;
  #closed = false;
  /** `false` once a pooler has lost a prepared statement. */
  #isPrepared = true;

  constructor(options: PostgresOptions) {
    this.#options = options;
    this.#servers = serversOf(options.url);
    this.#directServers = serversOf(options.directUrl ?? options.url);
    this.#replyTimeoutMs = options.replyTimeoutMs ?? REPLY_TIMEOUT_MS;
    this.#pool = this.#openPool(this.#servers[0] ?? options.url);
    const { replicaUrls = [], maxConnections } = options;
    const share = options.isReplica === true ? 1 : OVERVIEW_SHARE;
    this.#turns = readTurns(Math.ceil(maxConnections * share));
    const replicas = replicaUrls.map((url) => {
      const connections = Math.ceil(maxConnections * REPLICA_SHARE);
      const parts = { ...options, url, replicaUrls: [], maxConnections: connections };
      return new PostgresStore({ ...parts, isReplica: true });
    });
    const primary = { readerFor: (caller: string) => this.#overviewsOf(caller) };
    this.#replicas = replicas.length === 0 ? undefined : new ReplicaReader(primary, replicas);
  }

  readerFor(caller: string): Queryable {
    return this.#replicas?.of(caller) ?? this.#overviewsOf(caller);
  }

  /** Overview reads take seconds, so they are limited to some of the connections. */
  #overviewsOf(caller: string): Queryable {
    return {
      query: (sql, parameters) =>
        this.#turns.run(() => this.#readLong(sql, parameters), undefined, lineOf(caller)),
      run: (statements) => this.run(statements),
    };
  }

  async #readLong<R>(sql: string, parameters?: readonly Parameter[]): Promise<readonly R[]> {
    try {
      const timeoutMs = MAX_READ_MS / STATEMENT_SHARE;
      return await this.transaction((tx) => tx.query<R>(sql, parameters), { timeoutMs });
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || !isStatementTimeout(error.cause)) throw error;
      throw new ReadTooLong(MAX_READ_MS, { cause: error });
    }
  }

  async query<R>(sql: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    return this.#attempt((client) => this.#run<R>(client, sql, parameters, this.#replyTimeoutMs));
  }

  run(statements: readonly Statement[]): Promise<void> {
    return this.transaction((tx) => tx.run(statements));
  }

  async transaction<T>(
    body: (tx: Queryable) => Promise<T>,
    options: WriteOptions = {},
  ): Promise<T> {
    const timeoutMs = options.timeoutMs ?? this.#replyTimeoutMs;
    return this.#attempt(async (client) => {
      const sent: Promise<unknown>[] = [];
      const send = <R>(reply: Promise<R>): Promise<R> => {
        reply.catch(() => undefined); // reported below
        sent.push(reply);
        return reply;
      };
      const query = <R>(sql: string, parameters: readonly Parameter[] = []) =>
        send(this.#run<R>(client, sql, parameters, timeoutMs));
      try {
        void send(client.query(this.#beginning(options)));
        const value = await body({
          query,
          run: async (statements) => {
            for (const { sql, parameters } of this.#bulk.of(statements))
              void query(sql, parameters);
          },
        });
        await send(client.query('COMMIT'));
        await Promise.all(sent);
        return value;
      } catch (error) {
        // Statements after the failed one fail because of it.
        await Promise.all(sent);
        throw error;
      }
    }, options);
  }

  async migrate(migrations: readonly Migration[]): Promise<void> {
    if (this.#servers.length > 1) this.#use(await this.#findWritable());
    await this.transaction(
      async (tx) => {
        await tx.query('SELECT pg_advisory_xact_lock(8402)');
        await tx.query('CREATE TABLE IF NOT EXISTS store_migration (id TEXT PRIMARY KEY)');
      },
      { timeoutMs: MIGRATION_TIMEOUT_MS },
    );
    await migrateWith(this, migrations, MIGRATION_TIMEOUT_MS, this.#options);
  }

  listen(received: (message: string) => void): Promise<Notices> {
    const { clock, ids, log } = this.#options;
    this.#notices ??= new PostgresNotices({
      connect: () => this.#openClient(this.#directServers[this.#server] ?? this.#options.url),
      send: (message) => this.query(NOTIFY, [message]),
      patienceMs: this.#patienceMs,
      clock,
      ids,
      log,
    });
    return this.#notices.listen(received);
  }

  notification(message: string): Statement {
    return { sql: NOTIFY, parameters: [message] };
  }

  get losses(): number {
    return this.#losses;
  }

  unavailable(): string | undefined {
    return this.#down;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#stopProbe?.();
    await this.#notices?.close();
    await this.#replicas?.close();
    if (!this.#pool.ended) await this.#pool.end();
  }

  #openPool(url: string): pg.Pool {
    const pool = new pg.Pool({
      ...this.#connection(url),
      max: this.#options.maxConnections,
      // Also bounds the wait for a free connection.
      connectionTimeoutMillis: this.#replyTimeoutMs,
      query_timeout: this.#replyTimeoutMs,
      // Pipelines statements of a transaction that do not depend on earlier rows.
      pipeline: true,
      stream: () => new TurnSocket(),
    });
    // Errors of idle connections appear here; the next call detects them by itself.
    pool.on('error', (error) => {
      this.#lost(error, pool, true);
    });
    // A connection can fail between two statements of a transaction. Without a listener the error
    // would end the process; the next statement on it fails.
    pool.on('connect', (client) => client.on('error', () => undefined));
    return pool;
  }

  #connection(url: string): pg.ClientConfig {
    return {
      connectionString: url,
      statement_timeout: this.#statementTimeoutMs(this.#replyTimeoutMs),
      // A process that is disconnected inside a transaction must not keep its locks.
      idle_in_transaction_session_timeout: this.#replyTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
      application_name: 'farebox',
      types: { getTypeParser },
    };
  }

  #openClient(url: string): pg.Client {
    return new pg.Client({
      ...this.#connection(url),
      connectionTimeoutMillis: this.#patienceMs,
      query_timeout: this.#patienceMs,
    });
  }

  get #patienceMs(): number {
    return Math.max(PROBE_TIMEOUT_MS, this.#replyTimeoutMs);
  }

  #statementTimeoutMs(timeoutMs: number): number {
    const short = Math.min(SHORT_STATEMENT_SHARE * timeoutMs, SHORT_STATEMENT_MS);
    return Math.ceil(Math.max(STATEMENT_SHARE * timeoutMs, short));
  }

  /** Returns BEGIN and all settings as one message, to save round trips. */
  #beginning(options: WriteOptions): string {
    const parts = [options.isSnapshot === true ? 'BEGIN ISOLATION LEVEL REPEATABLE READ' : 'BEGIN'];
    if (options.durable === false) parts.push('SET LOCAL synchronous_commit = off');
    if (options.timeoutMs !== undefined) {
      parts.push(`SET LOCAL statement_timeout = ${this.#statementTimeoutMs(options.timeoutMs)}`);
      parts.push(`SET LOCAL idle_in_transaction_session_timeout = ${options.timeoutMs}`);
    }
    return parts.join('; ');
  }

  async #run<R>(
    client: pg.PoolClient,
    sql: string,
    parameters: readonly Parameter[],
    timeoutMs: number,
  ): Promise<readonly R[]> {
    // `pg` reads this time limit for one statement, but its types lack it.
    const config: pg.QueryConfig & { query_timeout: number } = {
      ...this.#statementOf(sql),
      values: [...parameters],
      query_timeout: timeoutMs,
    };
    const result = await client.query(config);
    return result.rows as R[]; // the caller names its row
  }

  /** Returns a prepared statement per text; its name is a digest, so that poolers can share it. */
  #statementOf(sql: string): { readonly text: string; readonly name?: string } {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      const name = createHash('sha256').update(sql).digest('hex').slice(0, 32);
      statement = { name, text: sql.replaceAll(NOW, OWN_NOW) };
      this.#statements.set(sql, statement);
    }
    return this.#isPrepared ? statement : { text: statement.text };
  }

  async #attempt<T>(
    work: (client: pg.PoolClient) => Promise<T>,
    { limitsLockWait = false }: WriteOptions = {},
  ): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      if (this.#down !== undefined) throw new StoreUnavailable(this.#down);
      try {
        return await this.#withClient(work);
      } catch (error) {
        if (isOverload(error)) throw new StoreUnavailable(reasonOf(error), { cause: error });
        if (this.#isPrepared && isLostStatement(error)) {
          this.#isPrepared = false;
          this.#options.log.warn(
            { reason: reasonOf(error) },
            'A pooler in front of the database does not keep prepared statements, so each statement is planned again; PgBouncer 1.21 and later keeps them with max_prepared_statements',
          );
          continue;
        }
        if (limitsLockWait && isLockTimeout(error)) throw error;
        if (!isSerializationFailure(error) || attempt >= MAX_ATTEMPTS) throw error;
        const spread = this.#options.ids.fraction();
        await this.#options.clock.sleep(RETRY_BASE_MS * 2 ** attempt * spread);
      }
    }
  }

  async #withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const pool = this.#pool;
    if (pool.waitingCount >= this.#options.maxConnections * WAITING_PER_CONNECTION) {
      throw new StoreUnavailable('Too many calls are queued for the database');
    }
    let client: pg.PoolClient;
    try {
      client = await pool.connect();
    } catch (error) {
      if (isPoolWait(error)) {
        const reason = 'No connection to the database became free in time';
        throw new StoreUnavailable(reason, { cause: error });
      }
      // The server rejects a further connection; those that are open still work.
      if (pool.totalCount > 0 && !isConnectionFailure(error)) {
        throw new StoreUnavailable(reasonOf(error), { cause: error });
      }
      throw this.#lost(error, pool, false);
    }
    try {
      const value = await work(client);
      client.release();
      return value;
    } catch (error) {
      const failure = isConnectionFailure(error) ? this.#lost(error, pool, true) : error;
      await giveBack(client, failure instanceof StoreUnavailable);
      throw failure;
    }
  }

  /** Marks the database as lost, unless the pool was already replaced. */
  #lost(error: unknown, pool: pg.Pool, wasOpen: boolean): StoreUnavailable {
    if (pool === this.#pool && this.#down === undefined && !this.#closed) {
      this.#reasons.clear();
      this.#report(reasonOf(error));
      this.#losses += 1;
      this.#stopProbe = this.#options.clock.every(PROBE_EVERY_MS, () => void this.#probe());
      // Maybe only this connection was lost.
      if (wasOpen) void this.#probe();
    }
    return new StoreUnavailable(reasonOf(error), { cause: error });
  }

  /** Logs each reason of an outage once: the first one does not explain why it lasts. */
  #report(reason: string): void {
    this.#down = reason;
    if (this.#reasons.has(reason)) return;
    this.#reasons.add(reason);
    this.#options.log.error({ reason }, 'The database is unreachable');
  }

  #probes = 0;

  async #probe(): Promise<void> {
    if (this.#probes === PROBES_AT_ONCE) return;
    this.#probes += 1;
    try {
      const writable = await this.#findWritable();
      // Another probe was first.
      if (this.#down === undefined) return;
      this.#use(writable);
      this.#down = undefined;
      this.#stopProbe?.();
      this.#options.log.info({}, 'The database is reachable again');
    } catch (error) {
      // Still unreachable, maybe for another reason: the next probe tries again.
      if (this.#down !== undefined && !this.#closed) this.#report(reasonOf(error));
    } finally {
      this.#probes -= 1;
    }
  }

  async #findWritable(): Promise<string> {
    try {
      return await Promise.any(this.#servers.map((url) => this.#checkWritable(url)));
    } catch (error) {
      // `any` rejects with the errors of all servers.
      const reasons = (error as AggregateError).errors.map(reasonOf);
      const reason = `No server of the database accepts writes: ${reasons.join('; ')}`;
      throw new StoreUnavailable(reason, { cause: error });
    }
  }

  #use(writable: string): void {
    if (this.#closed) return;
    this.#server = this.#servers.indexOf(writable);
    const old = this.#pool;
    // Connections from before the loss may hang in a network partition: reuse none.
    this.#pool = this.#openPool(writable);
    old.end().catch(() => undefined); // each of its connections fails by its own time limit
  }

  async #checkWritable(url: string): Promise<string> {
    const client = this.#openClient(url);
    client.on('error', () => undefined); // the query below fails with the same reason
    try {
      await client.connect();
      const result = await client.query(
        `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS fixed`,
      );
      // A standby that is not promoted yet, or a demoted primary, is not writable.
      const { fixed } = result.rows[0] as { fixed: boolean }; // one row
      if (fixed && this.#options.isReplica !== true) throw new Error('Read-only');
      return url;
    } finally {
      client.end().catch(() => undefined); // closing cleanly is optional
    }
  }
}

/** Rolls back and releases the connection; closes it if it is broken. */
async function giveBack(client: pg.PoolClient, isBroken: boolean): Promise<void> {
  if (isBroken) {
    client.release(true);
    return;
  }
  try {
    await client.query('ROLLBACK');
    client.release();
  } catch {
    // The connection failed during the rollback; the server rolls back by itself.
    client.release(true);
  }
}

const NOW = /now_ms\((\$\d+)\)/g;
/** The parameter is unused, but must have a type. */
const OWN_NOW = 'coalesce((extract(epoch FROM statement_timestamp()) * 1000)::bigint, $1::bigint)';

const ADDRESS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)([/?].*)?$/;

/**
 * Returns one URL for each server of a database URL, in order; at least one.
 * `postgres://user@first:5432,second:5432/name` lists a primary and its standbys.
 */
export function serversOf(url: string): readonly string[] {
  const [, head, hosts, tail] = ADDRESS.exec(url) ?? [];
  if (head === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${head}${host}${tail ?? ''}`);
}
