/**
 * The cap on RPC credits in a rolling 24 hours, in the database (`SharedCredits`, exact across
 * processes) or in the memory of the only process (`MemoryCredits`).
 *
 * Invariant: `total` of a caller's window row is the sum of its minutes of the last 24 hours,
 * including the current one, and never exceeds the cap. The first reservation of a minute also
 * closes the previous minute and drops expired ones. Unused credits of a reservation are returned
 * to the minute from which they were taken.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { Batcher, type Queryable, type Store } from '../db/db.ts';

const WINDOW_MINUTES = 1_440;
/** Clocks of processes differ by less; a later minute is one of a clock that was set back. */
const MAX_AHEAD_MINUTES = 60;
/** A crash may lose the last milliseconds of a limit, which costs no money. */
const NOT_DURABLE = { durable: false } as const;
const MAX_BATCH = 128;
const WRITE_AFTER_MS = 100;
/** Callers in memory; above it, written windows are dropped and read again when needed. */
const MAX_WINDOWS = 10_000;

export interface CreditReservation {
  readonly caller: string;
  readonly minute: number;
  readonly credits: number;
}

type CreditOutcome =
  | { readonly ok: true; readonly reservation: CreditReservation }
  | { readonly ok: false; readonly usedCredits: number };

interface CreditRequest {
  readonly caller: string;
  readonly credits: number;
  readonly cap: number;
}

export interface Credits {
  /** Reserves `credits` in the caller's window if the cap allows all of them. */
  reserve(caller: string, credits: number, cap: number): CreditOutcome | Promise<CreditOutcome>;
  /** Returns the credits of a reservation that exceed `usedCredits`. */
  correct(reservation: CreditReservation, usedCredits: number): void | Promise<void>;
  /** Credits that the caller used in the last 24 hours, reservations included. */
  used(caller: string): number | Promise<number>;
  /** Deletes the windows of callers without credits in the last 24 hours. */
  prune(): Promise<void>;
  close(): Promise<void>;
}

export class SharedCredits implements Credits {
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
    const minute = minuteOf(this.#clock);
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
    const unused = reservation.credits - usedCredits;
    if (unused <= 0) return;
    await this.#store.transaction((tx) => giveBack(tx, reservation, unused), NOT_DURABLE);
  }

  async used(caller: string): Promise<number> {
    const minute = minuteOf(this.#clock);
    const row = await this.#store.transaction((tx) => roll(tx, caller, minute), NOT_DURABLE);
    return row.total;
  }

  async prune(): Promise<void> {
    await pruneWindows(this.#store, minuteOf(this.#clock));
  }

  async close(): Promise<void> {
    // Every count is already written.
  }
}

interface MemoryWindow extends Window {
  readonly caller: string;
  isWritten: boolean;
}

/**
 * Counts in memory, so that a request does not wait, and writes the same rows later. A crash loses
 * the counts since the last write.
 *
 * Invariant: a window in memory equals its row plus all later counts. While a row is read, or
 * advanced to the next minute, calls for its caller wait.
 */
export class MemoryCredits implements Credits {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #windows = new Map<string, MemoryWindow>();
  readonly #opening = new Map<string, Promise<MemoryWindow>>();
  #unwritten: MemoryWindow[] = [];
  #stopWaiting: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  reserve(caller: string, credits: number, cap: number): CreditOutcome | Promise<CreditOutcome> {
    const window = this.#current(caller);
    if (window === undefined) {
      // Start again: a concurrent call may have dropped the window.
      return this.#open(caller).then(() => this.reserve(caller, credits, cap));
    }
    const { minute, total } = window;
    if (total + credits > cap) return { ok: false, usedCredits: total };
    this.#add(window, credits);
    return { ok: true, reservation: { caller, minute, credits } };
  }

  correct(reservation: CreditReservation, usedCredits: number): void | Promise<void> {
    const { caller, minute, credits } = reservation;
    const unused = credits - usedCredits;
    if (unused <= 0) return;
    const window = this.#current(caller);
    if (window?.minute === minute) return this.#add(window, -unused);
    // The minute has ended: correct the row and read it again.
    const opening = this.#opening.get(caller);
    if (opening !== undefined) return opening.then(() => this.correct(reservation, usedCredits));
    return this.#open(caller, (tx) => giveBack(tx, reservation, unused)).then(() => undefined);
  }

  used(caller: string): number | Promise<number> {
    return this.#current(caller)?.total ?? this.#open(caller).then(({ total }) => total);
  }

  async prune(): Promise<void> {
    await this.#write();
    const minute = minuteOf(this.#clock);
    for (const caller of await pruneWindows(this.#store, minute)) {
      const window = this.#windows.get(caller);
      // A window used in the meantime has a later minute.
      if (window !== undefined && window.minute < minute) this.#forget(window);
    }
  }

  async close(): Promise<void> {
    await this.#write();
  }

  #add(window: MemoryWindow, credits: number): void {
    window.current += credits;
    window.total += credits;
    if (window.isWritten) this.#writeLater(window);
  }

  #writeLater(window: MemoryWindow): void {
    window.isWritten = false;
    this.#unwritten.push(window);
    this.#stopWaiting ??= this.#clock.after(WRITE_AFTER_MS, () => {
      // Counts of a failed write are written with the next ones.
      this.#write().catch(() => undefined);
    });
  }

  /** The window of a caller in the current minute; `undefined` if it has to be read first. */
  #current(caller: string): MemoryWindow | undefined {
    const window = this.#windows.get(caller);
    const aheadMinutes = (window?.minute ?? 0) - minuteOf(this.#clock);
    if (aheadMinutes < 0 || aheadMinutes > MAX_AHEAD_MINUTES) return undefined;
    return this.#opening.size > 0 && this.#opening.has(caller) ? undefined : window;
  }

  /** Reads the window of a caller after an optional change of its rows. */
  #open(caller: string, change?: (tx: Queryable) => Promise<void>): Promise<MemoryWindow> {
    const opening = this.#opening.get(caller);
    if (opening !== undefined) return opening;
    const opened = this.#read(caller, change).finally(() => this.#opening.delete(caller));
    this.#opening.set(caller, opened);
    return opened;
  }

  async #read(
    caller: string,
    change: ((tx: Queryable) => Promise<void>) | undefined,
  ): Promise<MemoryWindow> {
    // The row must contain all counts of the minute that it closes.
    await this.#write();
    const row = await this.#store.transaction(async (tx) => {
      await change?.(tx);
      return await roll(tx, caller, minuteOf(this.#clock));
    }, NOT_DURABLE);
    const known = this.#windows.get(caller);
    if (known !== undefined) return Object.assign(known, row);
    if (this.#windows.size >= MAX_WINDOWS) {
      for (const other of this.#windows.values()) if (other.isWritten) this.#forget(other);
    }
    const window = { caller, isWritten: true, ...row };
    this.#windows.set(caller, window);
    return window;
  }

  #forget(window: MemoryWindow): void {
    this.#windows.delete(window.caller);
    // Code that still uses this object then updates no row.
    window.minute = -1;
  }

  #write(): Promise<void> {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    this.#writing = this.#writing.catch(() => undefined).then(() => this.#writeAll());
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    const windows = this.#unwritten;
    if (windows.length === 0) return;
    this.#unwritten = [];
    const statements = windows.map((window) => {
      window.isWritten = true;
      const { caller, minute, current, total } = window;
      return { sql: WRITE, parameters: [caller, minute, current, total] };
    });
    try {
      await this.#store.transaction((tx) => tx.run(statements), NOT_DURABLE);
    } catch (error) {
      for (const window of windows) if (window.isWritten) this.#writeLater(window);
      throw error;
    }
  }
}

const WRITE =
  'UPDATE rpc_credit_window SET current = $3, total = $4 WHERE caller = $1 AND minute = $2';

interface Window {
  minute: number;
  current: number;
  total: number;
}

function minuteOf(clock: Clock): number {
  return Math.floor(clock.nowMs() / MINUTE_MS);
}

/** Deletes windows that have expired by `minute`; returns their callers. */
async function pruneWindows(store: Store, minute: number): Promise<readonly string[]> {
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

/** Decides the requests of one caller: all at once if all fit, else one after the other. */
async function decideCaller(
  tx: Queryable,
  caller: string,
  minute: number,
  requests: readonly CreditRequest[],
  outcomes: Map<CreditRequest, CreditOutcome>,
): Promise<void> {
  const sum = requests.reduce((total, { credits }) => total + credits, 0);
  const leastCap = Math.min(...requests.map(({ cap }) => cap));
  const haveAll = await add(tx, caller, minute, sum, leastCap);
  const row = haveAll ? undefined : await roll(tx, caller, minute);
  // Another process may already be in the next minute; use its minute.
  const current = row?.minute ?? minute;
  let usedCredits = row?.total ?? 0;
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

/** Subtracts credits from the minute in which they were reserved. */
async function giveBack(
  tx: Queryable,
  { caller, minute }: CreditReservation,
  credits: number,
): Promise<void> {
  if (await add(tx, caller, minute, -credits, Number.MAX_SAFE_INTEGER)) return;
  const closed = await tx.query(
    'UPDATE rpc_credit SET credits = credits - $3 WHERE caller = $1 AND minute = $2 RETURNING credits',
    [caller, minute, credits],
  );
  // An expired minute has already removed its credits from the total.
  if (closed.length === 0) return;
  await tx.query('UPDATE rpc_credit_window SET total = total - $2 WHERE caller = $1', [
    caller,
    credits,
  ]);
}

/** Advances the caller's window to `minute`; its row stays locked until the transaction ends. */
async function roll(tx: Queryable, caller: string, minute: number): Promise<Window> {
  const [row] = await tx.query<Readonly<Record<keyof Window, bigint>>>(
    `INSERT INTO rpc_credit_window (caller, minute, current, total) VALUES ($1, $2, 0, 0)
     ON CONFLICT (caller) DO UPDATE SET caller = excluded.caller RETURNING minute, current, total`,
    [caller, minute],
  );
  if (row === undefined) return { minute, current: 0, total: 0 };
  if (row.minute > minute + MAX_AHEAD_MINUTES) return await setBack(tx, caller, minute);
  if (row.minute >= minute) {
    return { minute: Number(row.minute), current: Number(row.current), total: Number(row.total) };
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
  const total = Number(sum?.credits ?? 0n);
  await tx.query(
    'UPDATE rpc_credit_window SET minute = $2, current = 0, total = $3 WHERE caller = $1',
    [caller, minute, total],
  );
  return { minute, current: 0, total };
}

/** Counts the credits of later minutes in `minute`, because they would expire too late. */
async function setBack(tx: Queryable, caller: string, minute: number): Promise<Window> {
  await tx.query('DELETE FROM rpc_credit WHERE caller = $1 AND minute >= $2', [caller, minute]);
  const [row] = await tx.query<Readonly<Record<'current' | 'total', bigint>>>(
    `UPDATE rpc_credit_window SET minute = $2, current = total - COALESCE(
       (SELECT CAST(SUM(credits) AS BIGINT) FROM rpc_credit WHERE caller = $1), 0)
     WHERE caller = $1 RETURNING current, total`,
    [caller, minute],
  );
  return { minute, current: Number(row?.current ?? 0n), total: Number(row?.total ?? 0n) };
}
