/**
 * The cap on credits in a rolling 24 hours, exact across processes.
 *
 * Invariant: `total` of a caller's window row is the sum of its minutes that are younger than 24
 * hours, current minute included, and never passes the cap. A reservation is one conditional
 * update; the first one of a minute also closes the minute before and lets old minutes go. What a
 * reservation did not use is given back to the minute that it was taken from.
 */
import type { Clock } from '../core/clock.ts';
import { MINUTE_MS } from '../core/clock.ts';
import { assert } from '../core/assert.ts';
import { Batcher } from '../db/db.ts';
import type { Queryable, Store } from '../db/db.ts';

/** Limit of the specification: credits per rolling 24 hours and caller. */
export const CREDITS_PER_DAY = 10_000_000;
const WINDOW_MINUTES = 1_440;
/** Losing the last milliseconds of a limit in a crash costs nobody money. */
const NOT_DURABLE = { durable: false } as const;

export interface CreditReservation {
  readonly caller: string;
  readonly minute: number;
  readonly credits: number;
}

export type CreditOutcome =
  | { readonly ok: true; readonly reservation: CreditReservation }
  | { readonly ok: false; readonly usedCredits: number };

interface WindowRow {
  readonly minute: bigint;
  readonly current: bigint;
  readonly total: bigint;
}

interface Wish {
  readonly caller: string;
  readonly credits: number;
  readonly cap: number;
}

/** Wishes that one transaction decides, at most. */
const MAX_BATCH = 128;

export class CreditCap {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #wishes: Batcher<Wish, CreditOutcome>;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.#wishes = new Batcher((wishes) => this.#decide(wishes), {
      maxItems: MAX_BATCH,
      maxInFlight: store.dialect === 'sqlite' ? 1 : 2,
    });
  }

  /**
   * Takes `credits` from the caller's window when the cap has room for all of them. What is asked
   * in one turn of the event loop is decided in one transaction.
   */
  async reserve(
    caller: string,
    credits: number,
    cap: number = CREDITS_PER_DAY,
  ): Promise<CreditOutcome> {
    return this.#wishes.add({ caller, credits, cap });
  }

  async #decide(wishes: readonly Wish[]): Promise<readonly CreditOutcome[]> {
    const minute = this.#minute();
    const byCaller = new Map<string, Wish[]>();
    for (const wish of wishes) {
      const same = byCaller.get(wish.caller);
      if (same === undefined) byCaller.set(wish.caller, [wish]);
      else same.push(wish);
    }
    // In one order for all processes, so that two transactions cannot wait for each other.
    const callers = [...byCaller].sort(([a], [b]) => (a < b ? -1 : 1));
    return this.#store.transaction(async (tx) => {
      const outcomes = new Map<Wish, CreditOutcome>();
      for (const [caller, same] of callers) await decideCaller(tx, caller, minute, same, outcomes);
      return wishes.map((wish) => {
        const outcome = outcomes.get(wish);
        assert(outcome !== undefined, 'every wish is decided');
        return outcome;
      });
    }, NOT_DURABLE);
  }

  /** Gives back what was reserved beyond `usedCredits`. */
  async correct(reservation: CreditReservation, usedCredits: number): Promise<void> {
    const back = reservation.credits - usedCredits;
    if (back <= 0) return;
    const { caller, minute } = reservation;
    await this.#store.transaction(async (tx) => {
      if (await subtractCurrent(tx, caller, minute, back)) return;
      const closed = await tx.query(
        'UPDATE rpc_credit SET credits = credits - $3 WHERE caller = $1 AND minute = $2 RETURNING credits',
        [caller, minute, back],
      );
      // A minute that has left the window meanwhile took its credits with it.
      if (closed.length === 0) return;
      await tx.query('UPDATE rpc_credit_window SET total = total - $2 WHERE caller = $1', [
        caller,
        back,
      ]);
    }, NOT_DURABLE);
  }

  /** Credits that the caller used in the last 24 hours, reservations included. */
  async used(caller: string): Promise<number> {
    const minute = this.#minute();
    return this.#store.transaction(
      async (tx) => Number((await roll(tx, caller, minute)).total),
      NOT_DURABLE,
    );
  }

  /** Forgets minutes and callers that are out of every window; for the daily round. */
  async prune(): Promise<void> {
    const before = this.#minute() - WINDOW_MINUTES;
    await this.#store.transaction(async (tx) => {
      // The row first, as everywhere: then no reservation can come between.
      const idle = await tx.query<{ caller: string }>(
        'DELETE FROM rpc_credit_window WHERE minute < $1 RETURNING caller',
        [before],
      );
      for (const { caller } of idle)
        await tx.query('DELETE FROM rpc_credit WHERE caller = $1', [caller]);
    }, NOT_DURABLE);
  }

  #minute(): number {
    return Math.floor(this.#clock.nowMs() / MINUTE_MS);
  }
}

/** Decides the wishes of one caller: all at once when all fit, else one after the other. */
async function decideCaller(
  tx: Queryable,
  caller: string,
  minute: number,
  wishes: readonly Wish[],
  outcomes: Map<Wish, CreditOutcome>,
): Promise<void> {
  const sum = wishes.reduce((total, wish) => total + wish.credits, 0);
  const cap = Math.min(...wishes.map((wish) => wish.cap));
  if (await add(tx, caller, minute, sum, cap)) {
    for (const wish of wishes) outcomes.set(wish, granted(wish, minute));
    return;
  }
  const row = await roll(tx, caller, minute);
  // Another process may be a minute ahead of this one; its minute is then ours.
  const current = Number(row.minute);
  let usedCredits = Number(row.total);
  for (const wish of wishes) {
    if (await add(tx, caller, current, wish.credits, wish.cap)) {
      usedCredits += wish.credits;
      outcomes.set(wish, granted(wish, current));
    } else outcomes.set(wish, { ok: false, usedCredits });
  }
}

function granted(wish: Wish, minute: number): CreditOutcome {
  return { ok: true, reservation: { caller: wish.caller, minute, credits: wish.credits } };
}

async function add(
  tx: Queryable,
  caller: string,
  minute: number,
  credits: number,
  cap: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE rpc_credit_window SET total = total + $3, current = current + $3
     WHERE caller = $1 AND minute = $2 AND total + $3 <= $4 RETURNING total`,
    [caller, minute, credits, cap],
  );
  return rows.length > 0;
}

async function subtractCurrent(
  tx: Queryable,
  caller: string,
  minute: number,
  back: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE rpc_credit_window SET total = total - $3, current = current - $3
     WHERE caller = $1 AND minute = $2 RETURNING total`,
    [caller, minute, back],
  );
  return rows.length > 0;
}

/** Brings the caller's window to `minute` and returns it, its row locked until the transaction ends. */
async function roll(tx: Queryable, caller: string, minute: number): Promise<WindowRow> {
  const [row] = await tx.query<WindowRow>(
    `INSERT INTO rpc_credit_window (caller, minute, current, total) VALUES ($1, $2, 0, 0)
     ON CONFLICT (caller) DO UPDATE SET caller = excluded.caller RETURNING minute, current, total`,
    [caller, minute],
  );
  if (row === undefined || Number(row.minute) >= minute) {
    return row ?? { minute: BigInt(minute), current: 0n, total: 0n };
  }
  if (row.current > 0n) {
    await tx.query(
      `INSERT INTO rpc_credit (caller, minute, credits) VALUES ($1, $2, $3)
       ON CONFLICT (caller, minute) DO UPDATE SET credits = rpc_credit.credits + excluded.credits`,
      [caller, row.minute, row.current],
    );
  }
  // A minute leaves only when all of it is older than 24 hours.
  await tx.query('DELETE FROM rpc_credit WHERE caller = $1 AND minute < $2', [
    caller,
    minute - WINDOW_MINUTES,
  ]);
  const [sum] = await tx.query<{ credits: bigint | null }>(
    'SELECT CAST(SUM(credits) AS BIGINT) AS credits FROM rpc_credit WHERE caller = $1',
    [caller],
  );
  const total = sum?.credits ?? 0n;
  await tx.query(
    'UPDATE rpc_credit_window SET minute = $2, current = 0, total = $3 WHERE caller = $1',
    [caller, minute, total],
  );
  return { minute: BigInt(minute), current: 0n, total };
}
