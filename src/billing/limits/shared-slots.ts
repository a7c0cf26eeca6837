/**
 * Requests in flight per caller, for all processes that share a PostgreSQL. A process leases slots
 * of a caller's limit, counts in memory while they suffice, keeps them while the caller returns,
 * and leases more if needed. Before a caller is rejected, unused slots of other processes are
 * recalled. An unrenewed lease expires by the clock of the database, so a dead process blocks slots
 * only briefly. A single process does not lease.
 *
 * This limit protects against overload, not money: while the database is unreachable, each process
 * applies the whole limit by itself.
 */
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Notices, Queryable, SharedStore } from '../../db/db.ts';
import type { Slots } from './process-limits.ts';

/** A lease that is not renewed for this long expires. */
const LEASE_MS = 30 * SECOND_MS;
const RENEW_EVERY_MS = 10 * SECOND_MS;
const RECALL_MS = 100;
const RECALL = 'slots-recall';
const FREED = 'slots-freed';

export interface SharedSlotsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly processes: () => number;
  readonly holder: string;
}

interface CallerSlots {
  readonly caller: string;
  running: number;
  /** Slots that this process leases; the whole limit while the database is unreachable. */
  leased: number;
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
      this.#renew().catch(() => undefined); // the database is unreachable: its leases expire
    });
  }

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

  /** Releases everything. Does not throw if the database is unreachable. */
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

  /** Makes concurrent calls for a caller wait for `work`; they do not receive its error. */
  #alone(slots: CallerSlots, work: Promise<void>): Promise<void> {
    const done = work.finally(() => {
      slots.asking = undefined;
    });
    slots.asking = done.catch(() => undefined); // reported to the caller of the work
    return done;
  }

  /** Leases one slot more than are running, and a share of the free ones. */
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
      // Earlier leased slots may be in use.
      const granted = Math.max(leased, Math.min(free, wanted + part));
      await tx.query(LEASE, [caller, holder, granted, LEASE_MS, nowMs]);
      return granted;
    };
    try {
      slots.leased = await store.transaction(lease, { durable: false });
    } catch {
      // The database is unreachable; whatever else the request needs of it will fail.
      slots.leased = limit;
    }
  }

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
    // The recalling process waits only for its time limit.
    if (slots !== undefined) this.#giveBack(slots).catch(() => undefined);
  }

  async #giveBack(slots: CallerSlots): Promise<void> {
    while (slots.asking !== undefined) await slots.asking;
    if (slots.leased > slots.running) await this.#alone(slots, this.#free(slots));
    const { holder } = this.#parts;
    await this.#notices?.say(`${FREED} ${holder} ${slots.caller}`);
  }

  /** Releases unused slots first in memory, so that concurrent requests lease again. */
  async #free(slots: CallerSlots): Promise<void> {
    const { store, holder } = this.#parts;
    slots.leased = slots.running;
    const parameters = [slots.caller, holder, slots.leased];
    await store.query(
      'UPDATE limits_slots SET slots = $3 WHERE caller = $1 AND holder = $2',
      parameters,
    );
  }

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
      // Leases that expired while the database was unreachable have to be requested again.
      const leased = there.get(slots.caller) ?? 0;
      if (slots.asking === undefined && leased < slots.leased) slots.leased = leased;
    }
    await store.query(FORGET, [clock.nowMs()]);
  }

  async #drop(idle: readonly CallerSlots[]): Promise<void> {
    if (idle.length === 0) return;
    for (const slots of idle) slots.leased = 0;
    const callers = JSON.stringify(idle.map(({ caller }) => caller));
    // The database is unreachable: the leases expire there.
    await this.#parts.store.query(DROP, [this.#parts.holder, callers]).catch(() => undefined);
    for (const { caller, running, wasUsed } of idle) {
      if (running === 0 && !wasUsed) this.#callers.delete(caller);
    }
  }
}

/** An advisory lock, because a caller without any lease has no row to lock. */
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
