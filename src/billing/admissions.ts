/**
 * Admission where limits and money are rows that processes share: the requests of a tick are one
 * statement, one round trip. The windows' part grants buckets, the ledger's part holds only for what
 * was granted; what neither can decide is decided under its lock.
 */
import { assert } from '../core/assert.ts';
import type { Clock } from '../core/clock.ts';
import type { HoldAnswer, HoldRequest, StoredHolds } from './ledger/ledger.ts';
import type { StoredWindows, WindowAnswer, WindowTake } from './limits/limits.ts';
import { Batcher, type Store, runTogether } from '../db/db.ts';

export interface AdmissionRequest {
  readonly take: WindowTake;
  readonly hold: HoldRequest;
  readonly nowMs: number;
}

/** What the window says, and when it grants, what the ledger says, unless that is yet to be asked. */
export interface AdmissionAnswer {
  readonly taken: WindowAnswer;
  readonly hold: HoldAnswer | undefined;
}

/** Requests of one statement, at most, and statements on their way. */
const BATCHES = { maxItems: 128, maxInFlight: 2 };

export class JoinedAdmissions {
  readonly #store: Store;
  readonly #windows: StoredWindows;
  readonly #holds: StoredHolds;
  readonly #clock: Clock;
  readonly #batches: Batcher<AdmissionRequest, AdmissionAnswer>;

  constructor(parts: {
    readonly store: Store;
    readonly windows: StoredWindows;
    readonly holds: StoredHolds;
    readonly clock: Clock;
  }) {
    this.#store = parts.store;
    this.#windows = parts.windows;
    this.#holds = parts.holds;
    this.#clock = parts.clock;
    this.#batches = new Batcher((requests) => this.#admitBatch(requests), BATCHES);
  }

  /** Throws when the database is away. */
  async admit(request: AdmissionRequest): Promise<AdmissionAnswer> {
    let taken: WindowAnswer | undefined;
    const hold = await this.#holds.track(request.hold, async () => {
      const answer = await this.#batches.add(request);
      taken = answer.taken;
      return answer.hold;
    });
    assert(taken !== undefined, 'each request has its answer');
    return { taken, hold };
  }

  async #admitBatch(
    requests: readonly AdmissionRequest[],
  ): Promise<(AdmissionAnswer | Promise<AdmissionAnswer>)[]> {
    const takes = this.#windows.takeTogether(
      requests.map(({ take }) => take),
      this.#clock.nowMs(),
    );
    const wanted = requests.map(({ hold }) => hold);
    const gate = { relation: 'window_granted', keys: takes.keys };
    const holds = this.#holds.placeTogether(wanted, gate);
    const rows = await runTogether(this.#store, [takes.part, holds.part], { durable: false });
    const taken = takes.read(rows);
    const held = holds.read(rows);
    return requests.map((request, at) => this.#answer(request, taken[at], held[at]));
  }

  async #answer(
    { take, hold, nowMs }: AdmissionRequest,
    granted: WindowAnswer | undefined,
    held: HoldAnswer | undefined,
  ): Promise<AdmissionAnswer> {
    const taken = granted ?? (await this.#windows.takeLocked(take, nowMs));
    if (!taken.ok || held !== undefined) return { taken, hold: held };
    return { taken, hold: await this.#placeLocked(hold, taken, nowMs) };
  }

  async #placeLocked(
    hold: HoldRequest,
    { reserved }: WindowAnswer & { readonly ok: true },
    nowMs: number,
  ): Promise<HoldAnswer> {
    try {
      return await this.#holds.placeLocked(hold);
    } catch (error) {
      // The database is away: the tokens were not used. If that is away as well, the minute ends.
      await this.#windows.correct(reserved, 0, nowMs).catch(() => undefined);
      throw error;
    }
  }
}
