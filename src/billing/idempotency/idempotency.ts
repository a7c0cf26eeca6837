/**
 * Runs the request of an idempotency key at most once. The first request with a key runs. Later
 * requests with the same fingerprint get the stored response, or wait while the first one still
 * runs. A request with another fingerprint is a conflict. This holds across processes and restarts.
 *
 * Invariant: a request with a key is charged only in the transaction that marks its key as spent.
 * `complete` and `spend` update the row of the key only while it contains the token of the request;
 * otherwise they throw, which rolls the charge back. So a key is charged at most once, even after
 * crashes, network failures and expired leases.
 *
 * The lease only avoids duplicate work. Its holder renews it; after it has expired, the next
 * request takes the key over and runs again. With a shared database, the database's clock decides
 * when a lease expires, because a process whose clock is ahead would take over running requests.
 */
import { type Clock, DAY_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { reasonOf } from '../../core/log.ts';
import type { Nano } from '../../core/money.ts';
import { type Queryable, type Store, deleteInBatches } from '../../db/db.ts';
import { AccountStorage, type KeptStorage, ROW_BYTES, addToHour } from './kept-storage.ts';

export { IDEMPOTENCY_MIGRATIONS } from './migrations.ts';
export type { KeptStorage } from './kept-storage.ts';

export interface KeyFence {
  readonly caller: string;
  readonly key: string;
  readonly token: string;
}

/**
 * Why a key is spent without a response: the response was too large, the request broke off, or the
 * response was dropped in favour of newer ones of the account.
 */
export type NotKept = 'too-large' | 'incomplete' | 'dropped';

/** The final values of a key's row; the nullable members are `null` without a response. */
interface KeyEnd {
  readonly state: 'done' | NotKept;
  readonly status: number | null;
  readonly headers: string | null;
  readonly body: Buffer | null;
  readonly bytes: number;
  readonly paidNano: bigint;
}

/** The right to run the request of a key, valid until the key is completed or abandoned. */
export interface IdempotencyToken extends KeyFence {
  readonly accountId: string;
  isSpent: boolean;
  /** Set when another request has taken the key over: this request is not charged. */
  isLost: boolean;
}

export interface StoredResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** A response to store. `body` is `undefined` if it is too large to be stored. */
export type FinishedResponse = Omit<StoredResponse, 'body'> & { readonly body: Buffer | undefined };

export type IdempotencyState =
  | { readonly state: 'new'; readonly token: IdempotencyToken }
  | { readonly state: 'replay'; readonly response: StoredResponse }
  | { readonly state: NotKept }
  | { readonly state: 'conflict' }
  | { readonly state: 'wait' };

export interface AcquireOptions {
  /** The namespace of the key: the account id, prefixed for further key sets of an account. */
  readonly caller: string;
  readonly accountId: string;
  readonly key: string;
  /** Hash of everything that distinguishes the request from others with the same key. */
  readonly fingerprint: string;
  readonly signal?: AbortSignal;
  readonly maxWaitMs?: number;
}

interface Dependencies {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly processId: string;
  /** Storage quota of an account in bytes, before the part that its charges add. */
  readonly keptBytes: () => number;
}

interface EntryRow {
  readonly fingerprint: string;
  readonly state: 'running' | 'done' | NotKept;
  readonly status: bigint | null;
  readonly headers: string | null;
  readonly body: Buffer | null;
}

const KEY_PATTERN = /^[A-Za-z0-9_-]{1,255}$/;
/**
 * How long a lease lasts without renewal, and how often it is renewed. Longer than a database
 * failover takes, because a request that loses its key has worked for nothing. Shorter than
 * `cluster.deadAfterSeconds`, so that detecting a dead process by its missing heartbeat never frees
 * a key earlier than its lease.
 */
const LEASE_MS = 20_000;
const RENEW_MS = 5_000;
/** How often a waiting duplicate checks for the stored response, which any process can write. */
const POLL_MS = 150;
const DEFAULT_WAIT_MS = 60_000;
/** Larger responses are not stored; a retry receives an error instead of running again. */
export const MAX_STORED_BYTES = 16_777_216;
/** Some milliseconds, during which SQLite serves no one else. */
const PRUNE_ROWS = 1_000;
const NOT_DURABLE = { durable: false } as const;
/** Recorded for a response that was not sold: only responses sold for 0 may run again. */
const NOT_SOLD = 1n as Nano; // the smallest amount above 0
const LOST =
  'Another request has taken over this idempotency key; this one was not charged. Send the same request again to get the response of the other';
/** By state, the reason that a retry receives after "ran and was charged once". */
const WHY_NOT_KEPT: Readonly<Record<NotKept, string>> = {
  'too-large': 'its response was larger than 16 MiB and is not kept',
  incomplete: 'its response broke off and is not kept',
  dropped: 'its response was dropped for newer ones, which take all the storage of the account',
};

/** Returns the key, or `undefined` without a header. Throws a Fault 400 if it is malformed. */
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
  readonly #storage: AccountStorage;
  /** By caller and key: running requests, whose keys this process does not take over. */
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
    this.#storage = new AccountStorage(dependencies.keptBytes);
  }

  /**
   * Releases the keys of dead processes, for a server that is the only one on its database: at its
   * start no key can be in use. Otherwise unrenewed leases expire by themselves.
   */
  async releaseAll(): Promise<void> {
    await this.#store.query(`DELETE FROM idempotency_entry WHERE state = 'running'`);
  }

  /** Releases the keys of an ended process; waits for a commit that is still in progress. */
  async processEnded(processId: string): Promise<void> {
    // Uses the index on expiry: only running entries expire this soon.
    await this.#store.query(FREE, [processId, this.#clock.nowMs()]);
  }

  /** Checks the key once: run, replay, reject, or wait and call again. Throws a Fault 429. */
  async begin(wanted: Omit<AcquireOptions, 'signal' | 'maxWaitMs'>): Promise<IdempotencyState> {
    const { caller, accountId, key, fingerprint } = wanted;
    const token = `${this.#processId}:${this.#ids.hex(16)}`;
    // Not durable: a crash that loses this row also loses the request that wrote it.
    const state = await this.#store.transaction<IdempotencyState>(async (tx) => {
      if (!this.#live.has(placeOf(wanted))) {
        const values = [caller, key, fingerprint, token, accountId, this.#clock.nowMs()];
        const taken = await tx.query(TAKE, values);
        if (taken.length > 0) {
          await this.#requireStorage(tx, accountId);
          const held = { caller, accountId, key, token, isSpent: false, isLost: false };
          return { state: 'new', token: held };
        }
      }
      const row = await find(tx, caller, key);
      // The entry was abandoned between the two statements; the next attempt gets it.
      if (row === undefined) return { state: 'wait' };
      if (row.fingerprint !== fingerprint) return { state: 'conflict' };
      if (row.state === 'running') return { state: 'wait' };
      return row.state === 'done'
        ? { state: 'replay', response: responseOf(row) }
        : { state: row.state };
    }, NOT_DURABLE);
    if (state.state === 'new') this.#hold(state.token);
    return state;
  }

  /** Throws a Fault 429 if spent keys alone use all the storage of the account. */
  async #requireStorage(tx: Queryable, accountId: string): Promise<void> {
    const nowMs = this.#clock.nowMs();
    let storage = await this.#storage.of(tx, accountId, nowMs);
    if (storage.bytes <= storage.limitBytes) return;
    // The limit may have been lowered since the responses were stored.
    storage = await this.#storage.fit(tx, accountId, nowMs);
    if (storage.bytes > storage.limitBytes) throw new Fault('IDEMPOTENCY_STORAGE_FULL');
  }

  storageOf(accountId: string): Promise<KeptStorage> {
    return this.#storage.of(this.#store, accountId, this.#clock.nowMs());
  }

  /**
   * Takes the key, and waits for a running duplicate. Throws a Fault: 400 if the key belongs to a
   * different request, 409 if the duplicate outlasts the wait, 410 if its response is not stored,
   * 429 if spent keys use all the storage of the account.
   */
  async acquire(
    options: AcquireOptions,
  ): Promise<Extract<IdempotencyState, { state: 'new' | 'replay' }>> {
    const deadlineMs = this.#clock.monotonicMs() + (options.maxWaitMs ?? DEFAULT_WAIT_MS);
    for (;;) {
      const state = await this.begin(options);
      if (state.state === 'conflict') throw new Fault('IDEMPOTENCY_KEY_REUSED');
      if (state.state === 'replay') await this.#flushed();
      if (state.state === 'new' || state.state === 'replay') return state;
      if (state.state !== 'wait') throw notKept(state.state);
      options.signal?.throwIfAborted();
      if (this.#clock.monotonicMs() >= deadlineMs) throw new Fault('REQUEST_IN_PROGRESS');
      await this.#clock.sleep(POLL_MS);
    }
  }

  /**
   * Runs the request of a key, or returns its stored response. A request that ends without spending
   * its key releases it. A request that has lost its key throws 409, or returns the response of the
   * request that took it over; `hasBegun` reports whether the client has already received part of a
   * response.
   */
  async once(
    options: AcquireOptions & { readonly requestId: string; readonly hasBegun: () => boolean },
    run: (token: IdempotencyToken) => Promise<void>,
  ): Promise<StoredResponse | undefined> {
    const state = await this.acquire(options);
    if (state.state === 'replay') return state.response;
    const { token } = state;
    try {
      await run(token);
    } catch (error) {
      if (!token.isLost || options.hasBegun()) throw error;
      const row = await find(this.#store, options.caller, options.key);
      if (row?.state !== 'done' || row.fingerprint !== options.fingerprint) throw error;
      await this.#flushed();
      return responseOf(row);
    } finally {
      if (token.isSpent || token.isLost) this.#drop(token);
      else await this.#giveBack(token, options.requestId);
    }
    return undefined;
  }

  /**
   * Waits until all that was read is on disk: SQLite shows commits before their flush. A replay of a
   * response whose charge is then lost would be free.
   */
  async #flushed(): Promise<void> {
    if (this.#store.dialect === 'sqlite') await this.#store.transaction(() => Promise.resolve());
  }

  async #giveBack(token: IdempotencyToken, requestId: string): Promise<void> {
    try {
      await this.abandon(token);
    } catch (error) {
      // The key is released when its lease expires; the response of the request is not affected.
      const fields = { requestId, reason: reasonOf(error) };
      this.#log.warn(fields, 'An idempotency key could not be released');
    }
  }

  /**
   * Stores the response for 24 hours, or records that it was too large. Call it in the transaction
   * of the settle: it throws a Fault 409 if another request has the key, which rolls the charge
   * back. Repeating the call after a lost commit reply has no effect. `paidNano` is what the
   * response was sold for; omit it for a response of work that must not run twice.
   */
  async complete(
    token: IdempotencyToken,
    response: FinishedResponse,
    tx: Queryable = this.#store,
    paidNano: Nano = NOT_SOLD,
  ): Promise<void> {
    const { status, headers, body } = response;
    const isTooLarge = body === undefined || body.length > MAX_STORED_BYTES;
    if (isTooLarge) return this.#end(tx, token, withoutResponse('too-large', paidNano));
    const written = JSON.stringify(headers);
    const bytes = ROW_BYTES + written.length + body.length;
    await this.#end(tx, token, { state: 'done', status, headers: written, body, bytes, paidNano });
  }

  /** Like `complete`, without a response: the request was charged and broke off. */
  spend(token: IdempotencyToken, tx: Queryable, paidNano: Nano): Promise<void> {
    return this.#end(tx, token, withoutResponse('incomplete', paidNano));
  }

  async #end(tx: Queryable, token: IdempotencyToken, end: KeyEnd): Promise<void> {
    const nowMs = this.#clock.nowMs();
    const ended = await endKey(tx, nowMs, token, end);
    if (ended === 'spent') return;
    if (ended === 'lost') {
      token.isLost = true;
      throw new Fault('REQUEST_IN_PROGRESS', { message: LOST });
    }
    const { bytes, paidNano } = end;
    await this.#storage.add(
      tx,
      { accountId: token.accountId, bytes, paidNano, expiresMs: ended },
      nowMs,
    );
  }

  /** Releases the key without a response: the next request with it runs. */
  async abandon(token: IdempotencyToken): Promise<void> {
    // Drop it first: if the database is unreachable, the lease is no longer renewed and expires.
    this.#drop(token);
    await this.#store.query(
      `DELETE FROM idempotency_entry WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'`,
      [token.caller, token.key, token.token],
    );
  }

  /** Deletes expired keys in batches; returns their number. */
  async prune(): Promise<number> {
    const pruned = await deleteInBatches(PRUNE_ROWS, () =>
      this.#store.query(PRUNE, [this.#clock.nowMs()]),
    );
    await this.#storage.prune(this.#store, this.#clock.nowMs());
    return pruned;
  }

  async close(): Promise<void> {
    this.#stopRenewing?.();
    this.#stopRenewing = undefined;
    try {
      for (const token of this.#live.values()) await this.abandon(token);
    } catch (error) {
      // The database is unreachable; renewal has stopped, so the leases expire.
      this.#log.warn({ reason: reasonOf(error) }, 'Idempotency keys could not be released');
    }
  }

  #hold(token: IdempotencyToken): void {
    this.#live.set(placeOf(token), token);
    this.#stopRenewing ??= this.#clock.every(RENEW_MS, () => void this.#renewOnce());
  }

  #drop(token: IdempotencyToken): void {
    if (this.#live.get(placeOf(token)) === token) this.#live.delete(placeOf(token));
  }

  /** Runs one renewal at a time: concurrent rounds could take every connection of the process. */
  async #renewOnce(): Promise<void> {
    // If a round becomes due while one runs, it follows that one.
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
        await tx.query(RENEW, [caller, key, token, this.#clock.nowMs()]);
      }
    }, NOT_DURABLE);
  }
}

const TAKE = `INSERT INTO idempotency_entry (caller, entry_key, fingerprint, token, state, account_id,
    expires_ms)
  VALUES ($1, $2, $3, $4, 'running', $5, now_ms($6) + ${LEASE_MS})
  ON CONFLICT (caller, entry_key) DO UPDATE SET
    fingerprint = excluded.fingerprint, token = excluded.token, state = excluded.state,
    account_id = excluded.account_id, expires_ms = excluded.expires_ms, status = NULL,
    headers = NULL, body = NULL, kept_bytes = 0, paid_nano = 0
  WHERE idempotency_entry.expires_ms <= now_ms($6)
  RETURNING token`;
const RENEW = `UPDATE idempotency_entry SET expires_ms = now_ms($4) + ${LEASE_MS}
  WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'`;
const FREE = `DELETE FROM idempotency_entry WHERE expires_ms <= now_ms($2) + ${2 * LEASE_MS}
  AND token LIKE $1 || ':%' AND state = 'running'`;
const PRUNE = `DELETE FROM idempotency_entry WHERE (caller, entry_key) IN
    (SELECT caller, entry_key FROM idempotency_entry WHERE expires_ms <= now_ms($1)
     ORDER BY expires_ms LIMIT ${PRUNE_ROWS})
  AND expires_ms <= now_ms($1) RETURNING caller`;

function placeOf({ caller, key }: Pick<AcquireOptions, 'caller' | 'key'>): string {
  return `${caller}\n${key}`;
}

async function find(tx: Queryable, caller: string, key: string): Promise<EntryRow | undefined> {
  const [row] = await tx.query<EntryRow>(
    'SELECT fingerprint, state, status, headers, body FROM idempotency_entry WHERE caller = $1 AND entry_key = $2',
    [caller, key],
  );
  return row;
}

function notKept(state: NotKept): Fault {
  return new Fault('IDEMPOTENT_ANSWER_NOT_KEPT', {
    message: `The request with this idempotency key ran and was charged once; ${WHY_NOT_KEPT[state]}. Use a new key to run it, and pay for it, again`,
  });
}

function responseOf(row: EntryRow): StoredResponse {
  return {
    status: Number(row.status ?? 200n),
    // Written by `complete` as an object of strings.
    headers: JSON.parse(row.headers ?? '{}') as Record<string, string>,
    body: row.body ?? Buffer.alloc(0),
  };
}

const KEPT_MS = DAY_MS;

const END = `UPDATE idempotency_entry
  SET state = $4, expires_ms = now_ms($10) + ${KEPT_MS}, status = $5, headers = $6, body = $7,
    kept_bytes = $8, paid_nano = $9
  WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'
  RETURNING expires_ms`;

/**
 * Marks a key as spent and returns when its row expires. Returns `spent` if this request has spent
 * it before (the reply to its commit was lost), and `lost` if another request has the key.
 */
async function endKey(
  tx: Queryable,
  nowMs: number,
  { caller, key, token }: KeyFence,
  { state, status, headers, body, bytes, paidNano }: KeyEnd,
): Promise<number | 'spent' | 'lost'> {
  const values = [caller, key, token, state, status, headers, body, bytes, paidNano, nowMs];
  const [row] = await tx.query<{ expires_ms: bigint }>(END, values);
  if (row !== undefined) return Number(row.expires_ms);
  const own = await tx.query(
    `SELECT token FROM idempotency_entry
     WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state <> 'running'`,
    [caller, key, token],
  );
  return own.length > 0 ? 'spent' : 'lost';
}

function withoutResponse(state: NotKept, paidNano: bigint): KeyEnd {
  return { state, status: null, headers: null, body: null, bytes: ROW_BYTES, paidNano };
}

/** Spends the key of a journaled settle; returns `false` if another request has the key. */
export async function spendJournaled(
  tx: Queryable,
  nowMs: number,
  key: KeyFence,
  { accountId, paidNano }: { readonly accountId: string; readonly paidNano: bigint },
): Promise<boolean> {
  const ended = await endKey(tx, nowMs, key, withoutResponse('incomplete', paidNano));
  if (typeof ended === 'number') {
    await addToHour(tx, { accountId, bytes: ROW_BYTES, paidNano, expiresMs: ended });
  }
  return ended !== 'lost';
}
