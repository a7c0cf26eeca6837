/**
 * The newest block that callers see of each network, the same in all processes. It never goes back,
 * unless no process has confirmed it for a minute: the nodes are then on another history.
 *
 * Processes share a PostgreSQL database, and no request waits for it: a process announces a higher
 * head a second before it takes effect, and each process reads the announcements more often
 * than that. Invariant: after one process has returned a head, no process returns a lower one. The
 * clock of the database decides; a request in the uncertainty of a process about that clock waits
 * for a few milliseconds.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { SharedStore } from '../db/db.ts';

/** Longer than `LATE_MS`, a commit that is not flushed to disk, and `READ_VALID_MS`. */
const ANNOUNCE_MS = 1_000;
/** An announcement that has waited this time for its row is not stored: others may see it too late. */
const LATE_MS = 200;
/** An announcement that a process has not read after this time is not in effect yet. */
const READ_VALID_MS = 400;
const READ_EVERY_MS = 200;
/** Reads continue for this time after a request. */
const USED_MS = 5 * SECOND_MS;
/** Reads for which a request waits if the database is slow. */
const MAX_READS = 20;
const CONFIRM_MS = 10 * SECOND_MS;
const UNCONFIRMED_MS = 60 * SECOND_MS;

interface Head {
  readonly number: number;
  /** The head until `effectiveMs`. */
  readonly previous: number;
  readonly effectiveMs: number;
  readonly confirmedMs: number;
}

type HeadRow = Readonly<Record<'number' | 'previous' | 'effective' | 'confirmed' | 'now', bigint>>;

export class ServedHeads {
  readonly #store: SharedStore | undefined;
  readonly #clock: Clock;
  readonly #heads = new Map<string, Head>();
  /** The monotonic times of the last read, between which the database had the time `#databaseMs`. */
  #sentAtMs = -Infinity;
  #receivedAtMs = -Infinity;
  #databaseMs = 0;
  #usedAtMs = -Infinity;
  #reading: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;

  /** Without a store this is the only process, and a head takes effect at once. */
  constructor(store: SharedStore | undefined, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Returns a promise to wait for before `current`; `undefined` if `current` is certain now. */
  prepare(network: string): Promise<void> | undefined {
    if (this.#store === undefined) return undefined;
    this.#usedAtMs = this.#clock.monotonicMs();
    return this.#wait(this.#store, network)?.then(() => this.#settle(network));
  }

  async #settle(network: string): Promise<void> {
    for (let reads = 1; reads < MAX_READS && this.#store !== undefined; reads += 1) {
      const waiting = this.#wait(this.#store, network);
      if (waiting === undefined) return;
      await waiting;
    }
  }

  #wait(store: SharedStore, network: string): Promise<void> | undefined {
    if (this.#clock.monotonicMs() - this.#sentAtMs > READ_VALID_MS) return this.#read(store);
    const { effectiveMs = 0, previous = 0 } = this.#heads.get(network) ?? {};
    const isLater = previous > 0 && this.#latestMs < effectiveMs;
    if (isLater || this.#earliestMs >= effectiveMs) return undefined;
    return this.#clock.sleep(Math.ceil(effectiveMs - this.#earliestMs));
  }

  /** The head in effect; `undefined` if there is none. */
  current(network: string): number | undefined {
    const head = this.#heads.get(network);
    if (head === undefined) return undefined;
    const isInEffect = this.#store === undefined || this.#earliestMs >= head.effectiveMs;
    return (isInEffect ? head.number : head.previous) || undefined;
  }

  /** Announces the head that a majority of the nodes of this process has. */
  async offer(network: string, number: number): Promise<void> {
    const store = this.#store;
    const nowMs = store === undefined ? this.#clock.monotonicMs() : this.#latestMs;
    const { number: before = 0, confirmedMs = -Infinity } = this.#heads.get(network) ?? {};
    if (before > number && nowMs - confirmedMs < UNCONFIRMED_MS) return;
    if (store === undefined) {
      this.#heads.set(network, { number, previous: 0, effectiveMs: 0, confirmedMs: nowMs });
      return;
    }
    // Later than now if the clock of the database was set back.
    if (before === number && Math.abs(nowMs - confirmedMs) < CONFIRM_MS) return;
    try {
      await store.query(ANNOUNCE, [network, number, this.#clock.nowMs()]);
      if (before === 0) await this.#read(store);
    } catch {
      // Without the database no request is served, and the next poll announces again.
    }
  }

  close(): void {
    this.#usedAtMs = -Infinity;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** The earliest and the latest possible time of the database. */
  get #earliestMs(): number {
    return this.#databaseMs + this.#clock.monotonicMs() - this.#receivedAtMs;
  }

  get #latestMs(): number {
    return this.#databaseMs + this.#clock.monotonicMs() - this.#sentAtMs;
  }

  #read(store: SharedStore): Promise<void> {
    this.#reading ??= this.#readHeads(store).finally(() => {
      this.#reading = undefined;
      this.#readLater(store);
    });
    return this.#reading;
  }

  async #readHeads(store: SharedStore): Promise<void> {
    const sentAtMs = this.#clock.monotonicMs();
    try {
      const parameters = [this.#clock.nowMs()];
      const rows = await store.query<HeadRow & { readonly network: string | null }>(
        READ,
        parameters,
      );
      for (const { network, number, previous, effective, confirmed, now } of rows) {
        this.#databaseMs = Number(now);
        if (network === null) continue;
        this.#heads.set(network, {
          number: Number(number),
          previous: Number(previous),
          effectiveMs: Number(effective),
          confirmedMs: Number(confirmed),
        });
      }
      this.#receivedAtMs = this.#clock.monotonicMs();
      this.#sentAtMs = sentAtMs;
    } catch {
      // Without the database no request is served; the next one reads again.
    }
  }

  #readLater(store: SharedStore): void {
    if (this.#clock.monotonicMs() - this.#usedAtMs > USED_MS) return;
    this.#cancelTimer ??= this.#clock.after(READ_EVERY_MS, () => {
      this.#cancelTimer = undefined;
      void this.#read(store);
    });
  }
}

const READ = `SELECT network, number, previous, effective, confirmed, clock.now
  FROM (SELECT now_ms($1) AS now) AS clock LEFT JOIN rpc_head ON TRUE`;

/** An announcement of a clock that was set back: no announcement takes effect that late. */
const IS_AHEAD = `rpc_head.effective > excluded.effective + ${ANNOUNCE_MS}`;

/**
 * The next head is announced when the previous one is in effect, or would never be. One statement, so
 * that no pause of this process can delay its commit.
 */
const ANNOUNCE = `INSERT INTO rpc_head (network, number, previous, effective, confirmed)
  SELECT $1::text, $2::bigint, 0, now_ms($3) + ${ANNOUNCE_MS}, now_ms($3)
  WHERE set_config('synchronous_commit', 'off', TRUE) = 'off'
  ON CONFLICT (network) DO UPDATE SET number = excluded.number,
    previous = CASE WHEN ${IS_AHEAD} THEN rpc_head.previous ELSE rpc_head.number END,
    effective = CASE WHEN rpc_head.number = excluded.number AND NOT ${IS_AHEAD}
      THEN rpc_head.effective ELSE excluded.effective END,
    confirmed = excluded.confirmed
  WHERE (rpc_head.effective <= excluded.confirmed OR ${IS_AHEAD})
    AND (rpc_head.number <= excluded.number
    OR rpc_head.confirmed < excluded.confirmed - ${UNCONFIRMED_MS})
    AND clock_timestamp() < statement_timestamp() + INTERVAL '${LATE_MS} milliseconds'`;
