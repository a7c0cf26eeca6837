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
import type { Slots } from './process-limits.ts';

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
  readonly #recalls = new Map<string, { readonly done: Promise<void>; readonly end: () => void }>();
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
    await this.processEnded(this.#parts.holder).catch(() => undefined);
  }

  async processEnded(holder: string): Promise<void> {
    await this.#parts.store.query('DELETE FROM limits_slots WHERE holder = $1', [holder]);
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
    for (let isLast = false; ; isLast = this.#parts.clock.monotonicMs() >= untilMs) {
      while (slots.asking !== undefined) await slots.asking;
      const hasRoom = (): boolean => slots.running < Math.min(slots.leased, limit);
      if (!hasRoom() && slots.running < limit) await this.#alone(slots, this.#lease(slots, limit));
      if (hasRoom()) return this.#use(slots);
      if (isLast || slots.running >= limit) return undefined;
      await this.#callBack(slots.caller);
    }
  }

  /** Nothing else changes what is leased for a caller meanwhile; who waits for it does not fail. */
  #alone(slots: CallerSlots, work: Promise<void>): Promise<void> {
    const done = work.finally(() => {
      slots.asking = undefined;
    });
    slots.asking = done.catch(() => undefined); // whose work it is hears of it
    return done;
  }

  /** Leases one slot more than run, and a part of those that no process has. */
  async #lease(slots: CallerSlots, limit: number): Promise<void> {
    const { store, holder, processes, clock } = this.#parts;
    const { caller, running, leased } = slots;
    const lease = async (tx: Queryable): Promise<number> => {
      const nowMs = clock.nowMs();
      const [, [row]] = await Promise.all([
        tx.query(LOCK, [`slots ${caller}`]),
        tx.query<{ slots: bigint }>(LEASED_ELSEWHERE, [caller, holder, nowMs]),
      ]);
      const free = limit - Number(row?.slots ?? 0n);
      const wanted = running + 1;
      const part = Math.max(0, Math.floor((free - wanted) / (2 * processes())));
      // Slots that were leased before may be in use.
      const granted = Math.max(leased, Math.min(free, wanted + part));
      await tx.query(LEASE, [caller, holder, granted, LEASE_MS, nowMs]);
      return granted;
    };
    try {
      slots.leased = await store.transaction(lease, { durable: false });
    } catch {
      // The database is away: what a request needs of it will fail.
      slots.leased = limit;
    }
  }

  /** One at a time for all who wait. */
  async #callBack(caller: string): Promise<void> {
    const running = this.#recalls.get(caller);
    if (running !== undefined) return running.done;
    const { clock, holder } = this.#parts;
    const { promise: done, resolve: end } = Promise.withResolvers<void>();
    const cancel = clock.after(RECALL_MS, end);
    this.#recalls.set(caller, { done, end });
    this.#notices?.say(`${RECALL} ${holder} ${caller}`).catch(end);
    await done;
    cancel();
    this.#recalls.delete(caller);
  }

  #heard(word: string): void {
    const [what, from, caller = ''] = word.split(' ');
    if (from === this.#parts.holder) return;
    if (what === FREED) this.#recalls.get(caller)?.end();
    const slots = what === RECALL ? this.#callers.get(caller) : undefined;
    // Who asks waits a moment and no longer.
    if (slots !== undefined) this.#giveBack(slots).catch(() => undefined);
  }

  async #giveBack(slots: CallerSlots): Promise<void> {
    while (slots.asking !== undefined) await slots.asking;
    if (slots.leased > slots.running) await this.#alone(slots, this.#free(slots));
    const { holder } = this.#parts;
    await this.#notices?.say(`${FREED} ${holder} ${slots.caller}`);
  }

  /** From here what does not run is nobody's: requests that come meanwhile ask. */
  async #free(slots: CallerSlots): Promise<void> {
    const { store, holder } = this.#parts;
    slots.leased = slots.running;
    const parameters = [slots.caller, holder, slots.leased];
    await store.query(
      'UPDATE limits_slots SET slots = $3 WHERE caller = $1 AND holder = $2',
      parameters,
    );
  }

  /** Callers who come back keep their slots; those of others are given back. */
  async #renew(): Promise<void> {
    const { store, holder, clock } = this.#parts;
    const kept: CallerSlots[] = [];
    const idle: CallerSlots[] = [];
    for (const slots of this.#callers.values()) {
      if (slots.asking !== undefined) continue;
      (slots.wasUsed || slots.running > 0 ? kept : idle).push(slots);
      slots.wasUsed = false;
    }
    const dropped = this.#drop(idle);
    for (const slots of idle) void this.#alone(slots, dropped);
    await dropped;
    const rows = await store.query<{ caller: string; slots: bigint }>(RENEW, [
      holder,
      JSON.stringify(kept.map(({ caller }) => caller)),
      LEASE_MS,
      clock.nowMs(),
    ]);
    const there = new Map(rows.map((row) => [row.caller, Number(row.slots)]));
    for (const slots of kept) {
      // What ran out, or was taken without asking while the database was away, is asked for anew.
      const leased = there.get(slots.caller) ?? 0;
      if (slots.asking === undefined && leased < slots.leased) slots.leased = leased;
    }
    await store.query(FORGET, [clock.nowMs()]);
  }

  async #drop(idle: readonly CallerSlots[]): Promise<void> {
    if (idle.length === 0) return;
    for (const slots of idle) slots.leased = 0;
    const callers = JSON.stringify(idle.map(({ caller }) => caller));
    // The database is away: they run out there.
    await this.#parts.store.query(DROP, [this.#parts.holder, callers]).catch(() => undefined);
    for (const { caller, running, wasUsed } of idle) {
      if (running === 0 && !wasUsed) this.#callers.delete(caller);
    }
  }
}

/** Of a caller that no process has a lease of there is no row to lock. */
const LOCK = 'SELECT pg_advisory_xact_lock(hashtextextended($1, 0))';
const LEASED_ELSEWHERE = `SELECT COALESCE(sum(slots), 0) AS slots FROM limits_slots
  WHERE caller = $1 AND holder <> $2 AND expires_ms >= now_ms($3)`;
const LEASE = `INSERT INTO limits_slots (caller, holder, slots, expires_ms)
  VALUES ($1, $2, $3, now_ms($5) + $4)
  ON CONFLICT (caller, holder) DO UPDATE SET slots = excluded.slots, expires_ms = excluded.expires_ms`;
const RENEW = `UPDATE limits_slots SET expires_ms = now_ms($4) + $3
  WHERE holder = $1 AND caller IN (SELECT json_array_elements_text($2::json))
  RETURNING caller, slots`;
const DROP = `DELETE FROM limits_slots
  WHERE holder = $1 AND caller IN (SELECT json_array_elements_text($2::json))`;
const FORGET = `DELETE FROM limits_slots WHERE expires_ms < now_ms($1)`;
