/**
 * The life of this process in the ledger: renews its epoch, closes the epochs of dead processes,
 * gives back holds of its own that no request stands for any more (their placing was confirmed by
 * nobody), and writes journaled settles to the database when it is back.
 */
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Store } from '../../db/db.ts';
import {
  EpochWatch,
  RENEWALS_PER_LIFE,
  closeEpoch,
  holdsOf,
  lostEpochs,
  otherEpochs,
  releaseHolds,
  renewEpoch,
} from './epochs.ts';
import type { OpenHolds } from './open-holds.ts';
import type { SettleRequest } from './records.ts';
import type { SettleJournal } from './settle-journal.ts';

/**
 * Of the time after which a process is dead: a younger hold may still be on its way back to the
 * request that placed it.
 */
const ORPHAN_SHARE = 1 / 3;
/** Journals of ended processes are looked for once in so many renewals. */
const ADOPT_EVERY = 12;

export interface EpochKeeperParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly epochId: string;
  readonly deadAfterMs: number;
  readonly open: OpenHolds;
  readonly journal: SettleJournal | undefined;
  readonly settle: (request: SettleRequest) => Promise<unknown>;
}

export class EpochKeeper {
  readonly #parts: EpochKeeperParts;
  readonly #watch: EpochWatch;
  #stopRenewing: (() => void) | undefined;
  #renewing: Promise<void> | undefined;
  #renewals = 0;

  constructor(parts: EpochKeeperParts) {
    this.#parts = parts;
    this.#watch = new EpochWatch(parts.clock, parts.deadAfterMs);
  }

  /** `alone` says that no other process can be alive: every other epoch is closed at once. */
  async start(alone: boolean): Promise<void> {
    const { store, clock, epochId, journal, deadAfterMs } = this.#parts;
    await journal?.open();
    await renewEpoch(store, epochId, clock.nowMs());
    await this.replayJournal();
    await this.#adoptJournals();
    if (alone) {
      for (const { id } of await otherEpochs(store, epochId)) await this.#close(id);
      for (const id of await lostEpochs(store, Number.MAX_SAFE_INTEGER)) await this.#close(id);
    }
    const everyMs = Math.ceil(deadAfterMs / RENEWALS_PER_LIFE);
    this.#stopRenewing = clock.every(everyMs, () => this.#tick());
  }

  /** Ends the epoch; what cannot be written stays in the journal for the next process. */
  async stop(): Promise<void> {
    const { store, clock, epochId, journal, log } = this.#parts;
    this.#stopRenewing?.();
    await this.#renewing;
    try {
      await this.replayJournal();
      await closeEpoch(store, epochId, clock.nowMs());
    } catch (error) {
      // The database is away: the others close this epoch, the next process reads the journal.
      log.warn({ reason: String(error), journaled: journal?.size ?? 0 }, 'Epoch not closed');
    }
    await journal?.close();
  }

  /** Writes the journaled settles to the database; does nothing when there are none. */
  async replayJournal(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    if (journal === undefined || journal.size === 0) return;
    const { done, failed } = await journal.replay(settle);
    if (done > 0) log.info({ replayed: done }, 'Settles of the journal are in the database');
    if (failed.length === 0) return;
    log.error({ failed: failed.length, reason: String(failed[0]) }, 'Settles stay in the journal');
  }

  #tick(): void {
    // A renewal that hangs must not be joined by a second one.
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
  }

  async #renew(): Promise<void> {
    const { store, clock, epochId, log } = this.#parts;
    try {
      await renewEpoch(store, epochId, clock.nowMs());
      await this.replayJournal();
      await this.#closeDead();
      await this.#releaseOrphans();
      this.#renewals += 1;
      if (this.#renewals % ADOPT_EVERY === 0) await this.#adoptJournals();
    } catch (error) {
      // The next renewal tries again; the store has logged what is wrong with the database.
      log.debug({ reason: String(error) }, 'Epoch not renewed');
    }
  }

  async #closeDead(): Promise<void> {
    const { store, clock, epochId, deadAfterMs } = this.#parts;
    for (const id of this.#watch.look(await otherEpochs(store, epochId))) await this.#close(id);
    for (const id of await lostEpochs(store, clock.nowMs() - 2 * deadAfterMs)) {
      if (id !== epochId) await this.#close(id);
    }
  }

  async #close(id: string): Promise<void> {
    const { store, clock, log } = this.#parts;
    const released = await closeEpoch(store, id, clock.nowMs());
    log.info({ epoch: id, released }, 'Closed the epoch of an ended process');
  }

  /** Holds whose placing got no answer are in the database and in no request. */
  async #releaseOrphans(): Promise<void> {
    const { store, clock, epochId, open, journal, log, deadAfterMs } = this.#parts;
    const nowMs = clock.nowMs();
    const beforeMs = nowMs - deadAfterMs * ORPHAN_SHARE;
    const placed = await holdsOf(store, epochId, beforeMs);
    const doubtful = open.takeDoubtful(beforeMs);
    const orphans = [...placed, ...doubtful].filter((id) => {
      return !open.has(id) && journal?.has(id) !== true;
    });
    if (orphans.length === 0) return;
    const released = await releaseHolds(store, orphans, nowMs);
    if (released > 0) log.warn({ released }, 'Gave back holds that no request stands for');
  }

  async #adoptJournals(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    const adopted = (await journal?.adopt(settle)) ?? 0;
    if (adopted > 0) log.info({ adopted }, 'Settled what an ended process had journaled');
  }
}
