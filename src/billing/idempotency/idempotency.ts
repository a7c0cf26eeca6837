/**
 * One answer for one idempotency key: the first request with a key runs, later ones with the same
 * fingerprint get its stored answer, ones that come meanwhile wait, and another fingerprint is a
 * conflict. Holds across processes and restarts.
 *
 * Invariant: at most one live holder of (caller, key). A holder proves that it lives by renewing
 * its lease; when its process dies the lease runs out and the next request takes the key over. In a
 * shared database its clock says so, and no process's own: one that is ahead would take what runs.
 * What is stored (only answers that a retry must not repeat) is the flow's decision.
 */
import type { Clock } from '../../core/clock.ts';
import { DAY_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { reasonOf } from '../../core/log.ts';
import { type Dialect, type Queryable, SHARED_NOW_MS, type Store } from '../../db/db.ts';

export { IDEMPOTENCY_MIGRATIONS } from './migrations.ts';

/** The right to run the request of a key, until it is completed or abandoned. */
export interface IdempotencyToken {
  readonly caller: string;
  readonly key: string;
  readonly token: string;
  /** Set when its answer is kept: no other request runs under the key. */
  isSpent: boolean;
}

export interface StoredAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** An answer that is to be kept; without a body it is known to be too large for that. */
export type FinishedAnswer = Omit<StoredAnswer, 'body'> & { readonly body: Buffer | undefined };

export type IdempotencyState =
  | { readonly state: 'new'; readonly token: IdempotencyToken }
  | { readonly state: 'replay'; readonly answer: StoredAnswer }
  | { readonly state: 'too-large' }
  | { readonly state: 'conflict' }
  | { readonly state: 'wait' };

export interface AcquireOptions {
  readonly caller: string;
  readonly key: string;
  /** What the key is bound to: a hash over everything that makes the request another one. */
  readonly fingerprint: string;
  readonly signal?: AbortSignal;
  /** Longest wait for a running duplicate. */
  readonly maxWaitMs?: number;
}

interface Dependencies {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Begins each token of this process. */
  readonly processId: string;
}

interface EntryRow {
  readonly fingerprint: string;
  readonly state: string;
  readonly status: bigint | null;
  readonly headers: string | null;
  readonly body: Buffer | null;
}

/** Limit of the specification. */
const KEY_PATTERN = /^[A-Za-z0-9_-]{1,255}$/;
const KEPT_MS = DAY_MS;
/**
 * How long a holder that stopped renewing still holds, and how often it renews. Longer than a database
 * needs to come back, since a request that goes on and has lost its key runs twice and is charged twice;
 * and shorter than the time until a process counts as dead (`cluster.deadAfterSeconds`), so that its
 * death, which others only infer from its silence, would free no key sooner.
 */
const LEASE_MS = 20_000;
const RENEW_MS = 5_000;
/** How often a waiting duplicate looks for the answer: this process or another one stores it. */
const POLL_MS = 150;
const DEFAULT_WAIT_MS = 60_000;
/** Larger answers are not kept: their key is spent, and a retry hears so instead of running again. */
export const MAX_STORED_BYTES = 16_777_216;
/** Rows that one round of pruning removes at most. */
const PRUNE_ROWS = 5_000;
const NOT_DURABLE = { durable: false } as const;

/** The key of a header, or undefined when there is none; throws a Fault 400 when it is malformed. */
export function parseIdempotencyKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (!KEY_PATTERN.test(header)) throw new Fault('INVALID_IDEMPOTENCY_KEY');
  return header;
}

export class Idempotency {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #log: Log;
  readonly #processId: string;
  readonly #sql: Statements;
  readonly #live = new Map<string, IdempotencyToken>();
  #stopRenewing: (() => void) | undefined;
  #renewing = false;
  #renewAgain = false;

  constructor(dependencies: Dependencies) {
    this.#store = dependencies.store;
    this.#clock = dependencies.clock;
    this.#ids = dependencies.ids;
    this.#log = dependencies.log;
    this.#processId = dependencies.processId;
    this.#sql = STATEMENTS[dependencies.store.dialect];
  }

  /**
   * Gives the keys back that a process which died held. Beside a file there is one process, so what
   * runs there when it starts runs nowhere; in a shared database a lease that is not renewed runs out.
   */
  async start(): Promise<void> {
    if (this.#store.dialect !== 'sqlite') return;
    await this.#store.query(`DELETE FROM idempotency_entry WHERE state = 'running'`);
  }

  /**
   * Gives the keys back at once that a process held which has ended for sure. An answer that it was
   * still committing is waited for, and kept.
   */
  async processEnded(processId: string): Promise<void> {
    // By the index of expiry: only what runs expires so soon.
    await this.#store.query(this.#sql.free, [processId, ...this.#now()]);
  }

  /** Asks for the key once: run, replay, refuse, or wait and ask again. */
  async begin(caller: string, key: string, fingerprint: string): Promise<IdempotencyState> {
    const token = `${this.#processId}:${this.#ids.hex(16)}`;
    // A crash that loses this row loses the request that wrote it as well.
    const state = await this.#store.transaction<IdempotencyState>(async (tx) => {
      const taken = await tx.query(this.#sql.take, [
        caller,
        key,
        fingerprint,
        token,
        ...this.#now(),
      ]);
      if (taken.length > 0) return { state: 'new', token: { caller, key, token, isSpent: false } };
      const [row] = await tx.query<EntryRow>(
        'SELECT fingerprint, state, status, headers, body FROM idempotency_entry WHERE caller = $1 AND entry_key = $2',
        [caller, key],
      );
      // It was abandoned between the two statements: the next question gets it.
      if (row === undefined) return { state: 'wait' };
      if (row.fingerprint !== fingerprint) return { state: 'conflict' };
      if (row.state === 'too-large') return { state: 'too-large' };
      return row.state === 'done' ? { state: 'replay', answer: answerOf(row) } : { state: 'wait' };
    }, NOT_DURABLE);
    if (state.state === 'new') this.#hold(state.token);
    return state;
  }

  /**
   * Asks for the key and waits for a running duplicate. Throws a Fault: 400 when the key belongs
   * to another request, 409 when the duplicate outlasts the wait, 410 when the answer was too large
   * to be kept.
   */
  async acquire(
    options: AcquireOptions,
  ): Promise<Extract<IdempotencyState, { state: 'new' | 'replay' }>> {
    const deadlineMs = this.#clock.monotonicMs() + (options.maxWaitMs ?? DEFAULT_WAIT_MS);
    for (;;) {
      const state = await this.begin(options.caller, options.key, options.fingerprint);
      if (state.state === 'conflict') throw new Fault('IDEMPOTENCY_KEY_REUSED');
      if (state.state === 'too-large') throw new Fault('IDEMPOTENT_ANSWER_NOT_KEPT');
      if (state.state !== 'wait') return state;
      options.signal?.throwIfAborted();
      if (this.#clock.monotonicMs() >= deadlineMs) throw new Fault('REQUEST_IN_PROGRESS');
      await this.#clock.sleep(POLL_MS);
    }
  }

  /**
   * Runs the request of a key, or gives the answer that is stored for it. A request that has not
   * spent its key when it ends gives it back.
   */
  async once(
    options: AcquireOptions & { readonly requestId: string },
    run: (token: IdempotencyToken) => Promise<void>,
  ): Promise<StoredAnswer | undefined> {
    const state = await this.acquire(options);
    if (state.state === 'replay') return state.answer;
    const { token } = state;
    try {
      await run(token);
    } finally {
      if (token.isSpent) this.#live.delete(token.token);
      else await this.#giveBack(token, options.requestId);
    }
    return undefined;
  }

  async #giveBack(token: IdempotencyToken, requestId: string): Promise<void> {
    try {
      await this.abandon(token);
    } catch (error) {
      // The key comes back by itself when its lease runs out; the request has its own answer.
      const fields = { requestId, reason: reasonOf(error) };
      this.#log.warn(fields, 'An idempotency key could not be given back');
    }
  }

  /**
   * Stores the answer for 24 hours, or that there was one too large to be stored. Give the
   * transaction of the settle, so that a crash cannot come between charge and answer. False when
   * the lease was lost.
   */
  async complete(
    token: IdempotencyToken,
    answer: FinishedAnswer,
    tx: Queryable = this.#store,
  ): Promise<boolean> {
    const { status, headers, body } = answer;
    const isTooLarge = body === undefined || body.length > MAX_STORED_BYTES;
    const rows = await tx.query(this.#sql.complete, [
      token.caller,
      token.key,
      token.token,
      status,
      JSON.stringify(headers),
      isTooLarge ? null : body,
      isTooLarge ? 'too-large' : 'done',
      ...this.#now(),
    ]);
    return rows.length > 0;
  }

  /** Gives the key back without an answer: the next request with it runs. */
  async abandon(token: IdempotencyToken): Promise<void> {
    // First: when the database is away, the lease is not renewed and runs out.
    this.#live.delete(token.token);
    await this.#store.query(
      `DELETE FROM idempotency_entry WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'`,
      [token.caller, token.key, token.token],
    );
  }

  /** Removes entries that have run out, oldest first; for the periodic round. */
  async prune(): Promise<number> {
    const rows = await this.#store.query(this.#sql.prune, this.#now());
    return rows.length;
  }

  /** Stops renewing and gives back what is still held, for an orderly end of the process. */
  async close(): Promise<void> {
    this.#stopRenewing?.();
    this.#stopRenewing = undefined;
    try {
      for (const token of this.#live.values()) await this.abandon(token);
    } catch (error) {
      // The database is away: no renewal runs any more, so all their leases run out.
      this.#log.warn({ reason: reasonOf(error) }, 'Idempotency keys could not be given back');
    }
  }

  #hold(token: IdempotencyToken): void {
    this.#live.set(token.token, token);
    this.#stopRenewing ??= this.#clock.every(RENEW_MS, () => void this.#renewOnce());
  }

  /** One round at a time: rounds that pile up would take every connection of the process. */
  async #renewOnce(): Promise<void> {
    // A round that falls due while one runs follows it: none is left out.
    this.#renewAgain = this.#renewing;
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      await this.#renew();
    } catch (error) {
      // The lease outlives several missed rounds; the next one tries again.
      this.#log.warn({ reason: reasonOf(error) }, 'Idempotency leases could not be renewed');
    } finally {
      this.#renewing = false;
      if (this.#renewAgain) void this.#renewOnce();
    }
  }

  async #renew(): Promise<void> {
    const live = [...this.#live.values()];
    if (live.length === 0) {
      this.#stopRenewing?.();
      this.#stopRenewing = undefined;
      return;
    }
    await this.#store.transaction(async (tx) => {
      for (const { caller, key, token } of live) {
        await tx.query(this.#sql.renew, [caller, key, token, ...this.#now()]);
      }
    }, NOT_DURABLE);
  }

  /** The last parameter of a statement; a shared database has its own clock. */
  #now(): readonly number[] {
    return this.#store.dialect === 'sqlite' ? [this.#clock.nowMs()] : [];
  }
}

type Statements = ReturnType<typeof statementsOf>;

/** `now` says the time, where that is the parameter of this place. */
function statementsOf(now: (place: number) => string) {
  return {
    take: `INSERT INTO idempotency_entry (caller, entry_key, fingerprint, token, state, expires_ms)
      VALUES ($1, $2, $3, $4, 'running', ${now(5)} + ${LEASE_MS})
      ON CONFLICT (caller, entry_key) DO UPDATE SET
        fingerprint = excluded.fingerprint, token = excluded.token, state = excluded.state,
        expires_ms = excluded.expires_ms, status = NULL, headers = NULL, body = NULL
      WHERE idempotency_entry.expires_ms <= ${now(5)}
      RETURNING token`,
    renew: `UPDATE idempotency_entry SET expires_ms = ${now(4)} + ${LEASE_MS}
      WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'`,
    complete: `UPDATE idempotency_entry
      SET state = $7, expires_ms = ${now(8)} + ${KEPT_MS}, status = $4, headers = $5, body = $6
      WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running' RETURNING token`,
    free: `DELETE FROM idempotency_entry WHERE expires_ms <= ${now(2)} + ${2 * LEASE_MS}
      AND token LIKE $1 || ':%' AND state = 'running'`,
    prune: `DELETE FROM idempotency_entry WHERE (caller, entry_key) IN
        (SELECT caller, entry_key FROM idempotency_entry WHERE expires_ms <= ${now(1)}
         ORDER BY expires_ms LIMIT ${PRUNE_ROWS})
      AND expires_ms <= ${now(1)} RETURNING caller`,
  };
}

const STATEMENTS: Readonly<Record<Dialect, Statements>> = {
  sqlite: statementsOf((place) => `$${place}`),
  postgres: statementsOf(() => SHARED_NOW_MS),
};

function answerOf(row: EntryRow): StoredAnswer {
  return {
    status: Number(row.status ?? 200n),
    // Written by `complete` as an object of strings.
    headers: JSON.parse(row.headers ?? '{}') as Record<string, string>,
    body: row.body ?? Buffer.alloc(0),
  };
}
