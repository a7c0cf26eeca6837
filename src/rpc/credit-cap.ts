/**
 * The cap on credits in a rolling 24 hours, exact across processes.
 *
 * Invariant: `total` of a caller's window row is the sum of its minutes of the last 24 hours,
 * including the current one, and never exceeds the cap. A reservation is one conditional update;
 * the first one of a minute also closes the previous minute and drops expired ones. Unused credits
 * of a reservation are returned to the minute from which they were taken.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { Batcher, type Queryable, type Store } from '../db/db.ts';

const WINDOW_MINUTES = 1_440;
/** A crash may lose the last milliseconds of a limit, which costs no money. */
export const NOT_DURABLE = { durable: false } as const;

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

interface CreditRequest {
  readonly caller: string;
  readonly credits: number;
  readonly cap: number;
}

export interface Credits {
  /** Reserves `credits` in the caller's window if the cap allows all of them. */
  reserve(caller: string, credits: number, cap: number): CreditOutcome | Promise<CreditOutcome>;
  correct(reservation: CreditReservation, usedCredits: number): void | Promise<void>;
  /** Credits that the caller used in the last 24 hours, reservations included. */
  used(caller: string): number | Promise<number>;
  prune(): Promise<void>;
  close(): Promise<void>;
}

const MAX_BATCH = 128;

export class CreditCap implements Credits {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #requests: Batcher<CreditRequest, CreditOutcome>;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.#requests = new Batcher((requests) => this.#decide(requests), {
      maxItems: MAX_BATCH,
      maxInFlight: store.dialect === 'sqlite' ? 1 : 2,
    });
  }

  /** Requests of one turn of the event loop are decided in one transaction. */
  reserve(caller: string, credits: number, cap: number): Promise<CreditOutcome> {
    return this.#requests.add({ caller, credits, cap });
  }

  async #decide(requests: readonly CreditRequest[]): Promise<readonly CreditOutcome[]> {
    const minute = this.#minute();
    const byCaller = Map.groupBy(requests, ({ caller }) => caller);
    const outcomes = new Map<CreditRequest, CreditOutcome>();
    await this.#store.transaction(async (tx) => {
      // In the same order in all processes, so that two transactions cannot deadlock.
      for (const caller of [...byCaller.keys()].sort())
        await decideCaller(tx, caller, minute, byCaller.get(caller) ?? [], outcomes);
    }, NOT_DURABLE);
    return requests.flatMap((request) => outcomes.get(request) ?? []);
  }

  async correct(reservation: CreditReservation, usedCredits: number): Promise<void> {
    const back = reservation.credits - usedCredits;
    if (back <= 0) return;
    const { caller, minute } = reservation;
    await this.#store.transaction(async (tx) => {
      if (await add(tx, caller, minute, -back, Number.MAX_SAFE_INTEGER)) return;
      // An expired minute has already removed its credits from the total.
      if (!(await takeFromClosed(tx, caller, minute, back))) return;
      await tx.query('UPDATE rpc_credit_window SET total = total - $2 WHERE caller = $1', [
        caller,
        back,
      ]);
    }, NOT_DURABLE);
  }

  async used(caller: string): Promise<number> {
    const minute = this.#minute();
    return this.#store.transaction(
      async (tx) => Number((await roll(tx, caller, minute)).total),
      NOT_DURABLE,
    );
  }

  async prune(): Promise<void> {
    await pruneWindows(this.#store, this.#minute());
  }

  async close(): Promise<void> {
    // Nothing to do: every count is written at once.
  }

  #minute(): number {
    return Math.floor(this.#clock.nowMs() / MINUTE_MS);
  }
}

/** Deletes windows that have expired by `minute`; returns their callers. */
export async function pruneWindows(store: Store, minute: number): Promise<readonly string[]> {
  return store.transaction(async (tx) => {
    // Lock the window row first, as everywhere, so that no reservation runs in between.
    const idle = await tx.query<{ caller: string }>(
      'DELETE FROM rpc_credit_window WHERE minute < $1 RETURNING caller',
      [minute - WINDOW_MINUTES],
    );
    for (const { caller } of idle)
      await tx.query('DELETE FROM rpc_credit WHERE caller = $1', [caller]);
    return idle.map(({ caller }) => caller);
  }, NOT_DURABLE);
}

/** Subtracts credits from a closed minute; returns `false` if the minute has expired. */
export async function takeFromClosed(
  tx: Queryable,
  caller: string,
  minute: number,
  credits: number,
): Promise<boolean> {
  const closed = await tx.query(
    'UPDATE rpc_credit SET credits = credits - $3 WHERE caller = $1 AND minute = $2 RETURNING credits',
    [caller, minute, credits],
  );
  return closed.length > 0;
}

/** Decides the requests of one caller: all at once if all fit, else one after the other. */
async function decideCaller(
  tx: Queryable,
  caller: string,
  minute: number,
  requests: readonly CreditRequest[],
  outcomes: Map<CreditRequest, CreditOutcome>,
): Promise<void> {
  let sum = 0;
  let least = Infinity;
  for (const { credits, cap } of requests) {
    sum += credits;
    least = Math.min(least, cap);
  }
  const haveAll = await add(tx, caller, minute, sum, least);
  const row = haveAll ? undefined : await roll(tx, caller, minute);
  // Another process may already be in the next minute; use its minute.
  const current = row === undefined ? minute : Number(row.minute);
  let usedCredits = Number(row?.total ?? 0n);
  for (const request of requests) {
    const { credits, cap } = request;
    if (haveAll || (await add(tx, caller, current, credits, cap))) {
      usedCredits += credits;
      outcomes.set(request, { ok: true, reservation: { caller, minute: current, credits } });
    } else outcomes.set(request, { ok: false, usedCredits });
  }
}

/** Adds to the current minute if it is still current and the total stays within the cap. */
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

/** Advances the caller's window to `minute`; its row stays locked until the transaction ends. */
export async function roll(tx: Queryable, caller: string, minute: number): Promise<WindowRow> {
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
  // A minute expires only when all of it is older than 24 hours.
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
