/**
 * Requests in flight per caller, for all processes that share a PostgreSQL. A process leases slots
 * of a caller's limit, counts in memory while they suffice, keeps them while the caller returns,
 * and leases more if needed. An unrenewed lease expires by the clock of the database, so a dead
 * process blocks slots only briefly. A single process does not lease.
 *
 * This limit protects against overload, not money: while the database is unreachable, each process
 * applies the whole limit by itself.
 */
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import {
  LeasedParts,
  type Part,
  type PartCall,
  type PartResult,
  type SharedStore,
  shareDivisor,
} from '../../db/db.ts';
import type { Slots } from './process-limits.ts';

const LEASE_MS = 30 * SECOND_MS;
const RENEW_EVERY_MS = 10 * SECOND_MS;

export interface SharedSlotsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly processes: () => number;
  readonly holder: string;
}

type Leave = () => void;

interface CallerSlots extends Part<CallerSlots, number, Leave | undefined> {
  running: number;
  /** Slots that this process leases; the whole limit while the database is unreachable. */
  leased: number;
  wasUsed: boolean;
}

/** Requests are the limits of the caller. */
interface SlotsCall extends PartCall<CallerSlots, number, Leave | undefined> {
  readonly limit: number;
  readonly leased: number;
  readonly wanted: number;
  readonly isContested: boolean;
}

interface GrantedSlots {
  readonly leased: number;
  readonly elsewhere: number;
}

export class SharedSlots implements Slots {
  readonly #parts: SharedSlotsParts;
  readonly #callers = new Map<string, CallerSlots>();
  readonly #leases: LeasedParts<CallerSlots, number, Leave | undefined, SlotsCall, GrantedSlots>;
  readonly #stopRenewing: () => void;

  constructor(parts: SharedSlotsParts) {
    this.#parts = parts;
    this.#leases = new LeasedParts({
      ...parts,
      holder: () => parts.holder,
      prefix: 'slots-',
      maxCalls: 2,
      maxCounters: 128,
      maxRequests: 512,
      callOf: (part, waiting) => {
        const wanted = part.running + waiting.length;
        const isContested = this.#leases.isContested(part.counter);
        // Unused slots are returned in memory first, so that concurrent requests lease again.
        if (isContested || waiting.length === 0) part.leased = Math.min(part.leased, wanted);
        const limit = waiting.at(-1)?.request ?? 0;
        return { part, waiting, limit, leased: part.leased, wanted, isContested };
      },
      grant: (calls) => this.#grant(calls),
      granted: (call, grant) => this.#granted(call, grant),
      failed: () => undefined,
      hasUnused: ({ leased, running }) => leased > running,
      repliesFor: (counter) => counter !== undefined,
    });
    void this.#leases.recalls.listen();
    this.#stopRenewing = parts.clock.every(RENEW_EVERY_MS, () => {
      this.#renew().catch(() => undefined); // the database is unreachable: its leases expire
    });
  }

  enter(caller: string, limit: number): Leave | undefined | Promise<Leave | undefined> {
    const slots = this.#callers.get(caller) ?? this.#open(caller);
    slots.wasUsed = true;
    if (this.#parts.processes() === 1 ? slots.running < limit : slots.running < slots.leased) {
      return use(slots);
    }
    return slots.running >= limit ? undefined : this.#leases.request(slots, limit);
  }

  /** Releases everything. Does not throw if the database is unreachable. */
  async close(): Promise<void> {
    this.#stopRenewing();
    this.#leases.recalls.close();
    await this.processEnded(this.#parts.holder).catch(() => undefined);
  }

  async processEnded(holder: string): Promise<void> {
    await this.#parts.store.query('DELETE FROM limits_slots WHERE holder = $1', [holder]);
  }

  #open(caller: string): CallerSlots {
    const slots = this.#leases.open(caller, { running: 0, leased: 0, wasUsed: true });
    this.#callers.set(caller, slots);
    return slots;
  }

  async #grant(calls: readonly SlotsCall[]): Promise<readonly GrantedSlots[]> {
    const { store, holder, processes, clock } = this.#parts;
    const callers = JSON.stringify(calls.map(({ part }) => part.counter.name));
    try {
      return await store.transaction(
        async (tx) => {
          const nowMs = clock.nowMs();
          const [, rows] = await Promise.all([
            tx.query(LOCK, [callers]),
            tx.query<{ caller: string; slots: bigint }>(ELSEWHERE, [callers, holder, nowMs]),
          ]);
          const used = new Map(rows.map((row) => [row.caller, Number(row.slots)]));
          const granted = calls.map(({ part, limit, leased, wanted, isContested }) => {
            const elsewhere = used.get(part.counter.name) ?? 0;
            const free = limit - elsewhere;
            const share = isContested ? 0 : Math.floor((free - wanted) / shareDivisor(processes()));
            // Earlier leased slots may be in use.
            const most = Math.min(free, wanted + Math.max(0, share));
            return { leased: Math.max(leased, most), elsewhere };
          });
          const leases = calls.map(({ part }, at) => [part.counter.name, granted[at]?.leased ?? 0]);
          await tx.query(LEASE, [JSON.stringify(leases), holder, LEASE_MS, nowMs]);
          return granted;
        },
        { durable: false },
      );
    } catch {
      // The database is unreachable; whatever else the requests need of it will fail.
      return calls.map(({ leased, limit }) => ({ leased: Math.max(leased, limit), elsewhere: 0 }));
    }
  }

  #granted(
    { part: slots, waiting }: SlotsCall,
    { leased, elsewhere }: GrantedSlots,
  ): readonly PartResult<Leave | undefined>[] {
    slots.leased = leased;
    return waiting.map(({ request: limit }) => {
      if (slots.running < Math.min(leased, limit)) return { result: use(slots) };
      const isRecalled = elsewhere > 0 && slots.running < limit;
      return { result: undefined, heldBy: isRecalled ? 'unknown' : undefined };
    });
  }

  async #renew(): Promise<void> {
    const { store, holder, clock } = this.#parts;
    const kept: CallerSlots[] = [];
    for (const [caller, slots] of this.#callers) {
      if (slots.wasUsed || slots.running > 0) kept.push(slots);
      else if (slots.leased > 0) this.#leases.add(slots);
      else if (this.#leases.close(slots)) this.#callers.delete(caller);
      slots.wasUsed = false;
    }
    const callers = JSON.stringify(kept.map(({ counter }) => counter.name));
    const values = [holder, callers, LEASE_MS, clock.nowMs()];
    const rows = await store.query<{ caller: string; slots: bigint }>(RENEW, values);
    const there = new Map(rows.map((row) => [row.caller, Number(row.slots)]));
    for (const slots of kept) {
      // Leases that expired while the database was unreachable have to be requested again.
      const leased = there.get(slots.counter.name) ?? 0;
      if (!slots.counter.isBusy && leased < slots.leased) slots.leased = leased;
    }
    await store.query(FORGET, [clock.nowMs()]);
  }
}

function use(slots: CallerSlots): Leave {
  slots.running += 1;
  let left = false;
  return () => {
    if (left) return;
    left = true;
    slots.running -= 1;
  };
}

const OF_CALLERS = 'caller IN (SELECT json_array_elements_text($1::json))';
/** Advisory locks, because a caller without any lease has no row to lock. */
const LOCK = `SELECT pg_advisory_xact_lock(hashtextextended('slots ' || caller, 0))
  FROM (SELECT json_array_elements_text($1::json) AS caller ORDER BY 1) AS callers`;
const ELSEWHERE = `SELECT caller, sum(slots) AS slots FROM limits_slots
  WHERE ${OF_CALLERS} AND holder <> $2 AND expires_ms >= now_ms($3) GROUP BY caller`;
const LEASE = `INSERT INTO limits_slots (caller, holder, slots, expires_ms)
  SELECT value ->> 0, $2, (value ->> 1)::bigint, now_ms($4) + $3
  FROM json_array_elements($1::json)
  ON CONFLICT (caller, holder) DO UPDATE SET slots = excluded.slots, expires_ms = excluded.expires_ms`;
const RENEW = `UPDATE limits_slots SET expires_ms = now_ms($4) + $3
  WHERE holder = $1 AND caller IN (SELECT json_array_elements_text($2::json))
  RETURNING caller, slots`;
const FORGET = `DELETE FROM limits_slots WHERE expires_ms < now_ms($1)`;
