/**
 * Requests in flight of callers, counted for all processes that share a PostgreSQL. A process leases
 * slots of a caller's limit, counts in memory while they last, keeps them while the caller comes
 * back, and asks for more when they do not; slots that others have and do not use are called back
 * before a caller is refused. A lease that is not renewed runs out by the clock of the database, so a
 * process that died keeps nothing for long. A process that is alone counts by itself.
 *
 * It guards against too much at once, not money: while the database is away each process goes by
 * the whole limit.
 */
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Notices, Queryable, SharedStore } from '../../db/db.ts';
import type { Slots } from './in-memory.ts';

/** What is not renewed for so long is nobody's. */
const LEASE_MS = 30 * SECOND_MS;
const RENEW_EVERY_MS = 10 * SECOND_MS;
/** How long others may take to give slots back. */
const RECALL_MS = 100;
const RECALL = 'slots-recall';
const FREED = 'slots-freed';

export interface SharedSlotsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  /** Processes that share the limits. */
  readonly processes: () => number;
  /** Unique among them. */
  readonly holder: string;
}

interface CallerSlots {
  readonly caller: string;
  running: number;
  /** What the database has for this process; the limit itself where it could not be asked. */
  leased: number;
  /** One question a caller at a time. */
  asking: Promise<void> | undefined;
  wasUsed: boolean;
}

export class SharedSlots implements Slots {
  readonly #parts: SharedSlotsParts;
  readonly #callers = new Map<string, CallerSlots>();
  readonly #recalls = new Map<string, () => void>();
  readonly #stopRenewing: () => void;
  #notices: Notices | undefined;

  constructor(parts: SharedSlotsParts) {
    this.#parts = parts;
    const { store, clock } = parts;
    void store
      .listen((word) => this.#heard(word))
      .then((notices) => {
        this.#notices = notices;
      });
    this.#stopRenewing = clock.every(RENEW_EVERY_MS, () => {
      this.#renew().catch(() => undefined); // the database is away: leases run out there
    });
  }

  /** A function that gives the slot back, or `undefined` when `limit` requests are in flight. */
  enter(
    caller: string,
    limit: number,
  ): (() => void) | undefined | Promise<(() => void) | undefined> {
    const slots = this.#callers.get(caller) ?? this.#open(caller);
    slots.wasUsed = true;
    if (this.#parts.processes() === 1 ? slots.running < limit : slots.running < slots.leased) {
      return this.#use(slots);
    }
    if (slots.running >= limit) return undefined;
    return this.#ask(slots, limit);
  }

  /** Gives back everything. Does not throw for a lost database. */
  async close(): Promise<void> {
    this.#stopRenewing();
    this.#notices?.close();
    const { store, holder } = this.#parts;
    await store
      .query('DELETE FROM limits_slots WHERE holder = $1', [holder])
      .catch(() => undefined);
  }

  #open(caller: string): CallerSlots {
    const slots = { caller, running: 0, leased: 0, asking: undefined, wasUsed: true };
    this.#callers.set(caller, slots);
    return slots;
  }

  #use(slots: CallerSlots): () => void {
    slots.running += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      slots.running -= 1;
    };
  }

  async #ask(slots: CallerSlots, limit: number): Promise<(() => void) | undefined> {
    const untilMs = this.#parts.clock.monotonicMs() + RECALL_MS;
    for (let isFirst = true; ; isFirst = false) {
      slots.asking ??= this.#lease(slots, limit).finally(() => {
        slots.asking = undefined;
      });
      await slots.asking;
      if (slots.running < Math.min(slots.leased, limit)) return this.#use(slots);
      if (slots.running >= limit) return undefined;
      if (!isFirst && this.#parts.clock.monotonicMs() >= untilMs) return undefined;
      await this.#callBack(slots.caller);
    }
  }

  async #lease(slots: CallerSlots, limit: number): Promise<void> {
    const { store, holder, processes } = this.#parts;
    const { caller, running } = slots;
    try {
      slots.leased = await store.transaction(
        async (tx) => {
          const elsewhere = await lockOthers(tx, caller, holder);
          const free = limit - elsewhere;
          // One more than run, and a part of what nobody has.
          const spare = Math.max(0, Math.floor((free - running - 1) / (2 * processes())));
          const leased = Math.max(running, Math.min(free, running + 1 + spare));
          await tx.query(SAVE, [caller, holder, leased, LEASE_MS]);
          return leased;
        },
        { durable: false },
      );
    } catch {
      // The database is away: what a request needs of it will say so.
      slots.leased = limit;
    }
  }

  async #callBack(caller: string): Promise<void> {
    const { clock, holder } = this.#parts;
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(RECALL_MS, resolve);
    this.#recalls.set(caller, resolve);
    this.#notices?.say(`${RECALL} ${holder} ${caller}`).catch(resolve);
    await promise;
    cancel();
    this.#recalls.delete(caller);
  }

  #heard(word: string): void {
    const [what, from, caller = ''] = word.split(' ');
    if (from === this.#parts.holder) return;
    if (what === FREED) this.#recalls.get(caller)?.();
    const slots = what === RECALL ? this.#callers.get(caller) : undefined;
    // Who asks waits a moment and no longer.
    if (slots !== undefined) this.#giveBack(slots).catch(() => undefined);
  }

  async #giveBack(slots: CallerSlots): Promise<void> {
    const { store, holder } = this.#parts;
    const { caller } = slots;
    await slots.asking;
    if (slots.leased <= slots.running) return;
    // From here the slots are nobody's: requests that come meanwhile ask.
    slots.leased = slots.running;
    await store.query(
      'UPDATE limits_slots SET slots = $3 WHERE caller = $1 AND holder = $2 AND slots > $3',
      [caller, holder, slots.leased],
    );
    await this.#notices?.say(`${FREED} ${holder} ${caller}`);
  }

  /** Callers who come back keep their slots; those of others are given back. */
  async #renew(): Promise<void> {
    const { store, holder } = this.#parts;
    const kept: string[] = [];
    for (const [caller, slots] of this.#callers) {
      const { wasUsed, running, asking } = slots;
      slots.wasUsed = false;
      if (wasUsed || running > 0 || asking !== undefined) kept.push(caller);
      else this.#callers.delete(caller);
    }
    await store.query(RENEW, [holder, JSON.stringify(kept), LEASE_MS]);
    await store.query(FORGET, [holder, JSON.stringify(kept)]);
  }
}

const NOW_MS = '(extract(epoch FROM clock_timestamp()) * 1000)::bigint';
const SAVE = `INSERT INTO limits_slots (caller, holder, slots, expires_ms)
  VALUES ($1, $2, $3, ${NOW_MS} + $4)
  ON CONFLICT (caller, holder) DO UPDATE SET slots = excluded.slots, expires_ms = excluded.expires_ms`;
const RENEW = `UPDATE limits_slots SET expires_ms = ${NOW_MS} + $3
  WHERE holder = $1 AND caller IN (SELECT json_array_elements_text($2::json))`;
const FORGET = `DELETE FROM limits_slots WHERE expires_ms < ${NOW_MS}
  OR (holder = $1 AND caller NOT IN (SELECT json_array_elements_text($2::json)))`;

/** What others have of a caller's limit; they wait for the end of the transaction. */
async function lockOthers(tx: Queryable, caller: string, holder: string): Promise<number> {
  await tx.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [`slots ${caller}`]);
  const [row] = await tx.query<{ slots: bigint }>(
    `SELECT COALESCE(sum(slots), 0) AS slots FROM limits_slots
     WHERE caller = $1 AND holder <> $2 AND expires_ms >= ${NOW_MS}`,
    [caller, holder],
  );
  return Number(row?.slots ?? 0n);
}
