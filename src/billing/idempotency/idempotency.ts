/**
 * One answer for one idempotency key: the first request with a key runs, later ones with the same
 * fingerprint get its stored answer, ones that come meanwhile wait, and another fingerprint is a
 * conflict. Holds across processes and restarts.
 *
 * Invariant: a request with a key is charged in the transaction that marks its key as spent, and in no
 * other one. `complete` and `spend` update the row of the key only while it has the token of the
 * request, and throw otherwise, which undoes the charge. So one key is charged once, whatever became
 * of the processes, of the network or of the lease.
 *
 * The lease only saves work: a holder renews it, and once it has expired the next request takes the
 * key over and runs again. In a shared database its clock decides, and not that of a process: one that
 * is ahead would take over what still runs.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { reasonOf } from '../../core/log.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import { AccountStorage, type KeptStorage, ROW_BYTES } from './kept-storage.ts';
import { type KeyEnd, type KeyFence, type NotKept, endKey, withoutResponse } from './key-fence.ts';

export { IDEMPOTENCY_MIGRATIONS } from './migrations.ts';
export type { KeptStorage } from './kept-storage.ts';
export { type KeyFence, type NotKept, spendJournaled } from './key-fence.ts';

/** The right to run the request of a key, until it is completed or abandoned. */
export interface IdempotencyToken extends KeyFence {
  readonly accountId: string;
  /** Set when the transaction that spends the key has been committed. */
  isSpent: boolean;
  /** Set when another request was found to have the key: this one is not charged. */
  isLost: boolean;
}

export interface StoredResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** An answer that is to be kept; without a body it is known to be too large for that. */
export type FinishedResponse = Omit<StoredResponse, 'body'> & { readonly body: Buffer | undefined };

export type IdempotencyState =
  | { readonly state: 'new'; readonly token: IdempotencyToken }
  | { readonly state: 'replay'; readonly answer: StoredResponse }
  | { readonly state: NotKept }
  | { readonly state: 'conflict' }
  | { readonly state: 'wait' };

export interface AcquireOptions {
  /** Keys of one caller are its own: the account, after the name of another set of keys of it. */
  readonly caller: string;
  /** Whose storage a kept response takes. */
  readonly accountId: string;
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
  /** What the kept responses of an account may take, before what it was charged for them adds to it. */
  readonly keptBytes: () => number;
}

interface EntryRow {
  readonly fingerprint: string;
  readonly state: 'running' | 'done' | NotKept;
  readonly status: bigint | null;
  readonly headers: string | null;
  readonly body: Buffer | null;
}

/** Limit of the specification. */
const KEY_PATTERN = /^[A-Za-z0-9_-]{1,255}$/;
/**
 * How long a holder that stopped renewing still holds, and how often it renews. Longer than a database
 * needs to come back, since a request that has lost its key worked for nothing; and shorter than the time until a process counts as dead (`cluster.deadAfterSeconds`), so that its
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
/** Counted for what was not sold: only a response that was sold for nothing may be made again. */
const NOT_SOLD = 1n as Nano; // the least amount
const LOST =
  'Another request has taken over this idempotency key; this one was not charged. Send the same request again to get the response of the other';
/** By state, what a retry is told after "ran and was charged once". */
const WHY_NOT_KEPT: Readonly<Record<NotKept, string>> = {
  'too-large': 'its response was larger than 16 MiB and is not kept',
  incomplete: 'its response broke off and is not kept',
  dropped: 'its response was dropped for newer ones, which take all the storage of the account',
};

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
  readonly #storage: AccountStorage;
  /** By caller and key: what this process runs is not taken over in it, also after a pause. */
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
    await this.#store.query(FREE, [processId, this.#clock.nowMs()]);
  }

  /** Requests the key once: run, replay, reject, or wait and request it again. Throws a Fault 429. */
  async begin(wanted: Omit<AcquireOptions, 'signal' | 'maxWaitMs'>): Promise<IdempotencyState> {
    const { caller, accountId, key, fingerprint } = wanted;
    const token = `${this.#processId}:${this.#ids.hex(16)}`;
    // A crash that loses this row loses the request that wrote it as well.
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
      // It was abandoned between the two statements: the next request gets it.
      if (row === undefined) return { state: 'wait' };
      if (row.fingerprint !== fingerprint) return { state: 'conflict' };
      if (row.state === 'running') return { state: 'wait' };
      return row.state === 'done'
        ? { state: 'replay', answer: answerOf(row) }
        : { state: row.state };
    }, NOT_DURABLE);
    if (state.state === 'new') this.#hold(state.token);
    return state;
  }

  /** Throws a Fault 429 if the spent keys alone take all the storage of the account. */
  async #requireStorage(tx: Queryable, accountId: string): Promise<void> {
    const nowMs = this.#clock.nowMs();
    let storage = await this.#storage.of(tx, accountId, nowMs);
    if (storage.bytes <= storage.limitBytes) return;
    // The limit may have been lowered since.
    storage = await this.#storage.fit(tx, accountId, nowMs);
    if (storage.bytes > storage.limitBytes) throw new Fault('IDEMPOTENCY_STORAGE_FULL');
  }

  /** What the kept responses of an account take, and what they may take. */
  storageOf(accountId: string): Promise<KeptStorage> {
    return this.#storage.of(this.#store, accountId, this.#clock.nowMs());
  }

  /**
   * Asks for the key and waits for a running duplicate. Throws a Fault: 400 when the key belongs
   * to another request, 409 when the duplicate outlasts the wait, 410 when the response is not kept,
   * 429 when spent keys take all the storage of the account.
   */
  async acquire(
    options: AcquireOptions,
  ): Promise<Extract<IdempotencyState, { state: 'new' | 'replay' }>> {
    const deadlineMs = this.#clock.monotonicMs() + (options.maxWaitMs ?? DEFAULT_WAIT_MS);
    for (;;) {
      const state = await this.begin(options);
      if (state.state === 'conflict') throw new Fault('IDEMPOTENCY_KEY_REUSED');
      if (state.state === 'new' || state.state === 'replay') return state;
      if (state.state !== 'wait') throw notKept(state.state);
      options.signal?.throwIfAborted();
      if (this.#clock.monotonicMs() >= deadlineMs) throw new Fault('REQUEST_IN_PROGRESS');
      await this.#clock.sleep(POLL_MS);
    }
  }

  /**
   * Runs the request of a key, or returns the response that is stored for it. A request that has not
   * spent its key when it ends gives it back. One that has lost its key throws 409, or returns the
   * response of the request that has it; `hasBegun` says that it cannot send another one any more.
   */
  async once(
    options: AcquireOptions & { readonly requestId: string; readonly hasBegun: () => boolean },
    run: (token: IdempotencyToken) => Promise<void>,
  ): Promise<StoredResponse | undefined> {
    const state = await this.acquire(options);
    if (state.state === 'replay') return state.answer;
    const { token } = state;
    try {
      await run(token);
    } catch (error) {
      if (!token.isLost || options.hasBegun()) throw error;
      const row = await find(this.#store, options.caller, options.key);
      if (row?.state !== 'done' || row.fingerprint !== options.fingerprint) throw error;
      return answerOf(row);
    } finally {
      if (token.isSpent || token.isLost) this.#drop(token);
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
   * Stores the response for 24 hours, or that there was one too large to be stored. Pass the transaction
   * of the settle: throws a Fault 409 if another request has the key, which undoes the charge. Storing
   * again after a lost reply of the database does nothing. `paidNano` is what the response was sold for;
   * without it the response is of something that must not happen twice.
   */
  async complete(
    token: IdempotencyToken,
    answer: FinishedResponse,
    tx: Queryable = this.#store,
    paidNano: Nano = NOT_SOLD,
  ): Promise<void> {
    const { status, headers, body } = answer;
    const isTooLarge = body === undefined || body.length > MAX_STORED_BYTES;
    if (isTooLarge) return this.#end(tx, token, withoutResponse('too-large', paidNano));
    const written = JSON.stringify(headers);
    const bytes = ROW_BYTES + written.length + body.length;
    await this.#end(tx, token, { state: 'done', status, headers: written, body, bytes, paidNano });
  }

  /** Marks the key as spent without a response: the request was charged and broke off. As `complete`. */
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

  /** Gives the key back without an answer: the next request with it runs. */
  async abandon(token: IdempotencyToken): Promise<void> {
    // First: when the database is away, the lease is not renewed and runs out.
    this.#drop(token);
    await this.#store.query(
      `DELETE FROM idempotency_entry WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'`,
      [token.caller, token.key, token.token],
    );
  }

  /** Removes entries that have run out, oldest first; for the periodic round. */
  async prune(): Promise<number> {
    const rows = await this.#store.query(PRUNE, [this.#clock.nowMs()]);
    await this.#storage.prune(this.#store, this.#clock.nowMs());
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
    this.#live.set(placeOf(token), token);
    this.#stopRenewing ??= this.#clock.every(RENEW_MS, () => void this.#renewOnce());
  }

  #drop(token: IdempotencyToken): void {
    if (this.#live.get(placeOf(token)) === token) this.#live.delete(placeOf(token));
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

function answerOf(row: EntryRow): StoredResponse {
  return {
    status: Number(row.status ?? 200n),
    // Written by `complete` as an object of strings.
    headers: JSON.parse(row.headers ?? '{}') as Record<string, string>,
    body: row.body ?? Buffer.alloc(0),
  };
}
