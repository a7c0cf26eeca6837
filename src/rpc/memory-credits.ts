/**
 * The credit cap of a single process with a database file: windows are counted in memory, so that a
 * request does not wait, and written later. A crash loses the counts since the last write, which
 * costs no money. The rows have the format of `credit-cap.ts`.
 *
 * Invariant: a window in memory equals its row plus all later counts. While a row is read, or
 * advanced to the next minute, calls for its caller wait.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import {
  type Credits,
  type CreditOutcome,
  type CreditReservation,
  NOT_DURABLE,
  pruneWindows,
  roll,
  takeFromClosed,
} from './credit-cap.ts';

const WRITE_AFTER_MS = 100;
/** Callers in memory; above it, written windows are dropped and read again when needed. */
const MAX_WINDOWS = 10_000;

interface Window {
  readonly caller: string;
  minute: number;
  current: number;
  total: number;
  isWritten: boolean;
}

export class MemoryCredits implements Credits {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #windows = new Map<string, Window>();
  readonly #opening = new Map<string, Promise<Window>>();
  #unwritten: Window[] = [];
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
    return this.#take(window, credits, cap);
  }

  correct(reservation: CreditReservation, usedCredits: number): void | Promise<void> {
    const { caller, minute, credits } = reservation;
    const back = credits - usedCredits;
    if (back <= 0) return;
    const window = this.#current(caller);
    if (window?.minute !== minute) return this.#giveBack(caller, minute, back);
    window.current -= back;
    this.#add(window, -back);
  }

  used(caller: string): number | Promise<number> {
    return this.#current(caller)?.total ?? this.#open(caller).then(({ total }) => total);
  }

  async prune(): Promise<void> {
    await this.#write();
    const minute = this.#minute();
    for (const caller of await pruneWindows(this.#store, minute)) {
      const window = this.#windows.get(caller);
      // A window used in the meantime has a later minute.
      if (window !== undefined && window.minute < minute) this.#forget(window);
    }
  }

  async close(): Promise<void> {
    await this.#write();
  }

  #take(window: Window, credits: number, cap: number): CreditOutcome {
    const { caller, minute, total } = window;
    if (total + credits > cap) return { ok: false, usedCredits: total };
    window.current += credits;
    this.#add(window, credits);
    return { ok: true, reservation: { caller, minute, credits } };
  }

  #add(window: Window, credits: number): void {
    window.total += credits;
    if (!window.isWritten) return;
    window.isWritten = false;
    this.#unwritten.push(window);
    this.#stopWaiting ??= this.#clock.after(WRITE_AFTER_MS, () => {
      // Counts of a failed write are written with the next ones.
      this.#write().catch(() => undefined);
    });
  }

  #minute(): number {
    return Math.floor(this.#clock.nowMs() / MINUTE_MS);
  }

  /** The window of a caller in the current minute; `undefined` if it has to be read first. */
  #current(caller: string): Window | undefined {
    const window = this.#windows.get(caller);
    if (window === undefined || window.minute < this.#minute()) return undefined;
    return this.#opening.size > 0 && this.#opening.has(caller) ? undefined : window;
  }

  #open(caller: string): Promise<Window> {
    const opening = this.#opening.get(caller);
    if (opening !== undefined) return opening;
    const opened = this.#roll(caller).finally(() => this.#opening.delete(caller));
    this.#opening.set(caller, opened);
    return opened;
  }

  async #roll(caller: string): Promise<Window> {
    // The row must contain all counts of the minute that it closes.
    await this.#write();
    const row = await this.#store.transaction(
      (tx) => roll(tx, caller, this.#minute()),
      NOT_DURABLE,
    );
    const known = this.#windows.get(caller);
    const read = {
      minute: Number(row.minute),
      current: Number(row.current),
      total: Number(row.total),
    };
    if (known !== undefined) return Object.assign(known, read);
    if (this.#windows.size >= MAX_WINDOWS) {
      for (const other of this.#windows.values()) if (other.isWritten) this.#forget(other);
    }
    const window = { caller, isWritten: true, ...read };
    this.#windows.set(caller, window);
    return window;
  }

  #forget(window: Window): void {
    this.#windows.delete(window.caller);
    // Code that still uses this object then updates no row.
    window.minute = -1;
  }

  /** Returns credits to a minute that has ended according to this process. */
  async #giveBack(caller: string, minute: number, back: number): Promise<void> {
    let window = this.#current(caller);
    for (; window === undefined; window = this.#current(caller)) await this.#open(caller);
    if (window.minute === minute) window.current -= back;
    this.#add(window, -back);
    if (window.minute === minute) return;
    const isInWindow = await this.#store.transaction(
      (tx) => takeFromClosed(tx, caller, minute, back),
      NOT_DURABLE,
    );
    // An expired minute has already removed its credits from the total.
    if (!isInWindow) this.#add(window, back);
  }

  #write(): Promise<void> {
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    const written = this.#writing.catch(() => undefined).then(() => this.#writeAll());
    this.#writing = written;
    return written;
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
      for (const window of windows) if (window.isWritten) this.#add(window, 0);
      throw error;
    }
  }
}

const WRITE =
  'UPDATE rpc_credit_window SET current = $3, total = $4 WHERE caller = $1 AND minute = $2';
