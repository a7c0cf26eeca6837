/**
 * Holds of a database that processes share: each is a row of the epoch of its process. What is
 * asked in one turn of the event loop travels as one statement; what that could not decide is
 * decided under a lock. Settles wait in a local journal while the database is away.
 */
import { assert } from '../../../core/assert.ts';
import type { Clock } from '../../../core/clock.ts';
import type { Log } from '../../../core/log.ts';
import { ZERO, formatUsd } from '../../../core/money.ts';
import {
  Batcher,
  type Queryable,
  type Store,
  StoreUnavailable,
  isDatabaseError,
  runTogether,
} from '../../../db/db.ts';
import { placeHolds } from '../place-holds.ts';
import type {
  Hold,
  HoldAnswer,
  HoldFigures,
  HoldRequest,
  Holds,
  SettleRequest,
  Settlement,
} from '../records.ts';
import { ABOVE_HOLD, expectedSettlement, settleRows } from '../settle.ts';
import { type HoldGate, type HoldTogether, holdTogether } from './fast-holds.ts';
import { Epoch, type OpenRequest } from './epochs.ts';
import { type FastSettle, settleFast } from './fast-settles.ts';
import { SettleJournal } from './settle-journal.ts';

/** Requests in one batch to the database, at most, and batches on their way. */
const BATCHES = { maxInFlight: 2, maxItems: 128 };

export interface StoredHoldsParts {
  readonly store: Store;
  readonly epochId: string;
  /** Folder for settles while the database is away; without one they fail. */
  readonly journalFolder: string | undefined;
  /** How long an epoch may stay unrenewed. */
  readonly deadAfterMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** A hold, with the place of its request among those that have one. */
interface StoredHold extends Hold {
  readonly open: OpenRequest;
}

export class StoredHolds implements Holds {
  readonly #parts: StoredHoldsParts;
  readonly #holds: Batcher<HoldRequest, HoldAnswer>;
  readonly #lockedHolds: Batcher<HoldRequest, HoldAnswer>;
  readonly #settles: Batcher<SettleRequest, Settlement>;
  readonly #lockedSettles: Batcher<SettleRequest, Settlement>;
  readonly #journal: SettleJournal | undefined;
  readonly #epoch: Epoch;

  constructor(parts: StoredHoldsParts) {
    const { journalFolder } = parts;
    this.#parts = parts;
    this.#journal = journalFolder === undefined ? undefined : new SettleJournal(journalFolder);
    this.#epoch = new Epoch({
      ...parts,
      journal: this.#journal,
      settle: (request) => this.#settles.add(request),
    });
    this.#holds = new Batcher((requests) => this.#placeBatch(requests), BATCHES);
    this.#lockedHolds = new Batcher((requests) => this.#placeLocked(requests), BATCHES);
    this.#settles = new Batcher((requests) => this.#settleBatch(requests), BATCHES);
    this.#lockedSettles = new Batcher((requests) => this.#settleLocked(requests), BATCHES);
  }

  async place(request: HoldRequest): Promise<HoldAnswer> {
    const answer = await this.track(request, () => this.#holds.add(request));
    assert(answer !== undefined, 'each request has its answer');
    return answer;
  }

  /** Knows of a hold from before it can be in the database; nothing is held without an answer. */
  async track(
    { requestId, lifetime }: HoldRequest,
    place: () => Promise<HoldAnswer | undefined>,
  ): Promise<HoldAnswer | undefined> {
    // A durable hold is none of the epoch's.
    const open = lifetime === 'durable' ? undefined : this.#epoch.opened(requestId);
    try {
      const answer = await place();
      if (open === undefined) return answer;
      if (answer?.ok === true) {
        const hold: StoredHold = { ...answer.hold, open };
        return { ok: true, hold };
      }
      this.#epoch.ended(open);
      return answer;
    } catch (error) {
      // Whether it was placed is not known: if so, it belongs to nobody.
      if (open === undefined) this.#epoch.doubt(requestId);
      else this.#epoch.ended(open);
      throw error;
    }
  }

  /** Places under a lock at once, inside `track`, where `placeTogether` had no answer. */
  placeLocked(request: HoldRequest): Promise<HoldAnswer> {
    return this.#lockedHolds.add(request);
  }

  /** Holds as a part of a statement that others share; run it inside `track`. */
  placeTogether(requests: readonly HoldRequest[], gate?: HoldGate): HoldTogether {
    const { epochId, clock } = this.#parts;
    return holdTogether(requests, { epochId, nowMs: clock.nowMs() }, gate);
  }

  /** While the database is away the settle goes to the journal, and the answer is the expected one. */
  async settle(request: SettleRequest, hold: Hold): Promise<Settlement> {
    try {
      return await this.#settles.add(request);
    } catch (error) {
      const journal = this.#journal;
      if (journal === undefined || !isDatabaseError(error)) throw error;
      await journal.add(request);
      return expectedSettlement(hold, request.costNano);
    } finally {
      // From here the journal stands for the hold, or nobody does and it is given back.
      this.#epoch.ended((hold as StoredHold).open); // `place` makes no other
    }
  }

  /** While the database is away the settle goes to the journal without the work. */
  async settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    try {
      return await this.#parts.store.transaction(async (tx) => {
        const [settlement] = await settleRows(tx, this.#parts, [request]);
        if (settlement === undefined) throw new Error('A settle gave no answer');
        await work(tx, settlement);
        return settlement;
      });
    } catch (error) {
      if (error instanceof StoreUnavailable) return await this.settle(request, hold);
      throw error;
    } finally {
      this.#epoch.ended((hold as StoredHold).open); // `place` makes no other
    }
  }

  release(): void {
    // No request stands for it any more, so its epoch gives it back.
  }

  heldOf(): bigint {
    return 0n;
  }

  heldDailyOf(): bigint {
    return 0n;
  }

  figures(): HoldFigures {
    return { count: 0, amountNano: ZERO };
  }

  get journaled(): number {
    return this.#journal?.size ?? 0;
  }

  start(): Promise<void> {
    return this.#epoch.start();
  }

  stop(): Promise<void> {
    return this.#epoch.stop();
  }

  async #placeBatch(
    requests: readonly HoldRequest[],
  ): Promise<readonly (HoldAnswer | Promise<HoldAnswer>)[]> {
    const { part, read } = this.placeTogether(requests);
    const durable = requests.some(isDurable);
    const fast = read(await runTogether(this.#parts.store, [part], { durable }));
    // What needs a lock waits for it alone; the others do not wait for it.
    return requests.map((request, index) => fast[index] ?? this.placeLocked(request));
  }

  #placeLocked(requests: readonly HoldRequest[]): Promise<readonly HoldAnswer[]> {
    const { store, epochId, clock } = this.#parts;
    const context = { dialect: store.dialect, epochId, nowMs: clock.nowMs() };
    const durable = requests.some(isDurable);
    return store.transaction((tx) => placeHolds(tx, context, requests), { durable });
  }

  async #settleBatch(
    requests: readonly SettleRequest[],
  ): Promise<readonly (Settlement | Promise<Settlement>)[]> {
    const once = withoutRepeats(requests);
    const fast = await this.#settleFast(once);
    const first = new Set(once);
    return requests.map((request) => {
      const settled = first.has(request) ? fast.get(request.usage.requestId) : undefined;
      return settled?.settlement ?? this.#lockedSettles.add(request);
    });
  }

  async #settleFast(requests: readonly SettleRequest[]): Promise<ReadonlyMap<string, FastSettle>> {
    const { store, clock, log } = this.#parts;
    try {
      const fast = await settleFast(store, requests, clock.nowMs());
      for (const { usage, costNano } of requests) {
        const held = fast.get(usage.requestId)?.heldNano;
        if (held === undefined || costNano <= held) continue;
        const fields = { requestId: usage.requestId, cost: formatUsd(costNano) };
        log.error({ ...fields, taken: formatUsd(held) }, ABOVE_HOLD);
      }
      return fast;
    } catch (error) {
      if (error instanceof StoreUnavailable) throw error;
      // One record that the database refuses must not stop its neighbours.
      log.error({ reason: String(error) }, 'A batch of settles failed; they go one by one');
      return new Map();
    }
  }

  /** In one transaction; when that fails for one of them, each in its own. */
  async #settleLocked(
    requests: readonly SettleRequest[],
  ): Promise<readonly (Settlement | Error)[]> {
    try {
      return await this.#settleTogether(requests);
    } catch (error) {
      if (error instanceof StoreUnavailable || requests.length === 1) throw error;
      const outcomes = await Promise.allSettled(requests.map((one) => this.#settleTogether([one])));
      return outcomes.map((outcome) => {
        if (outcome.status === 'rejected') return asError(outcome.reason);
        return outcome.value[0] ?? new Error('A settle gave no answer');
      });
    }
  }

  #settleTogether(requests: readonly SettleRequest[]): Promise<Settlement[]> {
    return this.#parts.store.transaction((tx) => settleRows(tx, this.#parts, requests));
  }
}

function isDurable({ lifetime }: HoldRequest): boolean {
  return lifetime === 'durable';
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

/** The first settle of each request: a repeat in the same tick is settled after it. */
function withoutRepeats(requests: readonly SettleRequest[]): SettleRequest[] {
  const seen = new Set<string>();
  return requests.filter(({ usage }) => {
    if (seen.has(usage.requestId)) return false;
    seen.add(usage.requestId);
    return true;
  });
}
