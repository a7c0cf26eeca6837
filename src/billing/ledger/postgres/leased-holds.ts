/**
 * Holds with a shared database. A process has leases: parts of account balances and caps that rows
 * set aside for it. A request that a lease covers is held in memory at once (`leases.ts`). The
 * settles of a tick share one transaction that the responses wait for (`lease-settles.ts`). A hold
 * that no lease covers, and that of a job, is a row of its own.
 */
import type { Clock } from '../../../core/clock.ts';
import type { Ids } from '../../../core/ids.ts';
import type { Log } from '../../../core/log.ts';
import type { Queryable, SharedStore } from '../../../db/db.ts';
import type { OpenAmounts } from '../../rules.ts';
import type {
  Hold,
  HoldResult,
  HoldFigures,
  HoldRequest,
  Holds,
  SettleRequest,
  Settlement,
  WhileAway,
} from '../records.ts';
import { placeDurable } from '../row-holds.ts';
import { Epoch } from './epochs.ts';
import { LeaseSettles } from './lease-settles.ts';
import { type LeasedHold, Leases } from './leases.ts';
import { SettleJournal } from './settle-journal.ts';

export interface LeasedHoldsParts {
  readonly store: SharedStore;
  readonly journalFolder: string | undefined;
  readonly deadAfterMs: number;
  readonly processId: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export class LeasedHolds implements Holds {
  readonly #parts: LeasedHoldsParts;
  readonly #leases: Leases;
  readonly #settles: LeaseSettles;
  readonly #journal: SettleJournal | undefined;
  readonly #epoch: Epoch;

  constructor(parts: LeasedHoldsParts) {
    const { journalFolder, processId } = parts;
    this.#parts = parts;
    const journal =
      journalFolder === undefined ? undefined : new SettleJournal(journalFolder, processId);
    this.#journal = journal;
    const leases = new Leases({ ...parts, epoch: () => this.#epoch });
    this.#leases = leases;
    this.#settles = new LeaseSettles({ ...parts, leases, journal });
    this.#epoch = new Epoch({
      ...parts,
      journal,
      settle: (entry) => this.#settles.settleJournaled(entry),
      isKnown: () => leases.knownIds(),
      wasClosed: () => leases.forget(),
      round: () => leases.giveIdleBack(),
    });
  }

  place(request: HoldRequest): HoldResult | Promise<HoldResult> {
    return request.lifetime === 'durable'
      ? this.#placeDurable(request)
      : this.#leases.place(request);
  }

  settle(request: SettleRequest, hold: Hold): Promise<Settlement> {
    return this.#settles.settle(request, hold as LeasedHold); // `place` creates no other kind
  }

  settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
    whileAway: WhileAway = 'drop-work',
  ): Promise<Settlement> {
    return this.#settles.settleWith(request, hold as LeasedHold, work, whileAway); // the same
  }

  release(hold: Hold): void {
    this.#leases.release(hold as LeasedHold); // the same
  }

  heldOf(): bigint {
    return 0n;
  }

  openOf(accountId: string, day: number): OpenAmounts {
    return this.#leases.openOf(accountId, day);
  }

  figures(): HoldFigures {
    return this.#leases.figures();
  }

  rowFigures(): HoldFigures {
    return this.#leases.rowFigures();
  }

  get journaled(): number {
    return this.#journal?.size ?? 0;
  }

  get processes(): number {
    return this.#epoch.processes;
  }

  get endedBefore(): readonly string[] {
    return this.#journal?.ended ?? [];
  }

  recall(accountId: string): Promise<void> {
    return this.#leases.recall(accountId);
  }

  changed(tx: Queryable, accountId: string): Promise<void> {
    return tx.run([this.#leases.changed(accountId)]);
  }

  processEnded(processId: string): Promise<void> {
    return this.#epoch.processEnded(processId);
  }

  async start(): Promise<void> {
    await this.#leases.listen();
    await this.#epoch.start();
  }

  async stop(): Promise<void> {
    await this.#settles.stop();
    this.#leases.forget();
    await this.#epoch.stop();
    this.#leases.close();
  }

  async #placeDurable(request: HoldRequest): Promise<HoldResult> {
    const { store, clock } = this.#parts;
    const place = (): Promise<HoldResult> =>
      store.transaction((tx) => placeDurable(tx, request, clock.nowMs()));
    try {
      const result = await place();
      if (result.ok || result.reason !== 'held') return result;
      await this.#leases.recall(request.accountId);
      return await place();
    } catch (error) {
      // The hold may have been committed; if so, no request owns it.
      this.#epoch.addUncertain(request.requestId);
      throw error;
    }
  }
}
