/**
 * Admission: a request is counted against its limits and its money is set aside. On PostgreSQL the
 * requests of a tick are one statement, one round trip: the windows' part grants buckets, the
 * ledger's part holds only for what was granted. What is tight in either is decided under its lock.
 *
 * With the windows in memory (one process on SQLite) the count comes first and the hold second.
 */
import type { Clock } from '../core/clock.ts';
import { type HoldAnswer, type HoldRequest, type Ledger } from './ledger/ledger.ts';
import type { Reservation, StoredWindows, WindowAnswer, Windows } from './limits/limits.ts';
import type { WindowState, WindowTake } from './limits/limits.ts';
import { Batcher, type Store, runTogether } from '../db/db.ts';

/** The window refuses, the ledger refuses, or the request may run. */
export type AdmissionAnswer =
  | { readonly step: 'window'; readonly refusal: WindowAnswer & { readonly ok: false } }
  | {
      readonly step: 'hold';
      readonly state: WindowState;
      readonly reserved: Reservation;
      readonly hold: HoldAnswer;
    };

export interface AdmissionWish {
  readonly take: WindowTake;
  readonly hold: HoldRequest;
  readonly nowMs: number;
}

export interface Admissions {
  /** Counts and holds; room of a refused hold is given back. Throws when the database is away. */
  admit(wish: AdmissionWish): Promise<AdmissionAnswer>;
}

type Taken = WindowAnswer & { readonly ok: true };

/** Counts first, holds second: two steps, for windows that cost nothing to ask. */
export class SteppedAdmissions implements Admissions {
  readonly #windows: Windows;
  readonly #ledger: Ledger;

  constructor(parts: { readonly windows: Windows; readonly ledger: Ledger }) {
    this.#windows = parts.windows;
    this.#ledger = parts.ledger;
  }

  async admit(wish: AdmissionWish): Promise<AdmissionAnswer> {
    const taken = await this.#windows.take(wish.take, wish.nowMs);
    if (!taken.ok) return { step: 'window', refusal: taken };
    return holdTaken(this.#windows, taken, wish, () => this.#ledger.hold(wish.hold));
  }
}

/** Requests of one statement, at most. */
const MAX_BATCH = 128;
const IN_FLIGHT = 2;

/** Both in one statement, for all requests of a tick. */
export class JoinedAdmissions implements Admissions {
  readonly #store: Store;
  readonly #windows: StoredWindows;
  readonly #ledger: Ledger;
  readonly #clock: Clock;
  readonly #batches: Batcher<AdmissionWish, AdmissionAnswer>;

  constructor(parts: {
    readonly store: Store;
    readonly windows: StoredWindows;
    readonly ledger: Ledger;
    readonly clock: Clock;
  }) {
    this.#store = parts.store;
    this.#windows = parts.windows;
    this.#ledger = parts.ledger;
    this.#clock = parts.clock;
    this.#batches = new Batcher((wishes) => this.#admitBatch(wishes), {
      maxInFlight: IN_FLIGHT,
      maxItems: MAX_BATCH,
    });
  }

  admit(wish: AdmissionWish): Promise<AdmissionAnswer> {
    return this.#batches.add(wish);
  }

  async #admitBatch(
    wishes: readonly AdmissionWish[],
  ): Promise<(AdmissionAnswer | Promise<AdmissionAnswer>)[]> {
    const takes = this.#windows.takeTogether(
      wishes.map((wish) => wish.take),
      this.#clock.nowMs(),
    );
    const requests = wishes.map((wish) => wish.hold);
    const keys = wishes.map((wish) => wish.take.bucket);
    const holds = this.#ledger.holdTogether(requests, { relation: 'window_granted', keys });
    const durable = requests.some((request) => request.lifetime === 'durable');
    const rows = await holds.placing(() => {
      return runTogether(this.#store, [takes.part, holds.part], { durable });
    });
    const taken = takes.read(rows);
    const held = holds.read(rows);
    return wishes.map((wish, index) => this.#answer(wish, taken[index], held[index]));
  }

  #answer(
    wish: AdmissionWish,
    taken: WindowAnswer | undefined,
    hold: HoldAnswer | undefined,
  ): AdmissionAnswer | Promise<AdmissionAnswer> {
    if (taken?.ok === true && hold !== undefined) {
      return { step: 'hold', state: taken.state, reserved: taken.reserved, hold };
    }
    return this.#admitTight(wish, taken);
  }

  async #admitTight(
    wish: AdmissionWish,
    granted: WindowAnswer | undefined,
  ): Promise<AdmissionAnswer> {
    const taken = granted ?? (await this.#windows.takeTight(wish.take, wish.nowMs));
    if (!taken.ok) return { step: 'window', refusal: taken };
    return holdTaken(this.#windows, taken, wish, () => this.#ledger.holdLocked(wish.hold));
  }
}

async function holdTaken(
  windows: Windows,
  taken: Taken,
  wish: AdmissionWish,
  place: () => Promise<HoldAnswer>,
): Promise<AdmissionAnswer> {
  const { state, reserved } = taken;
  try {
    const hold = await place();
    return { step: 'hold', state, reserved, hold };
  } catch (error) {
    // The database is away: the tokens were not used.
    await giveBack(windows, reserved, wish.nowMs);
    throw error;
  }
}

async function giveBack(windows: Windows, reserved: Reservation, nowMs: number): Promise<void> {
  try {
    await windows.correct(reserved, 0, nowMs);
  } catch {
    // Away as well; the minute ends anyway.
  }
}
