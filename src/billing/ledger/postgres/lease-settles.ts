/**
 * Settles holds that come out of leases. The settles of a tick share one transaction, which the
 * responses wait for. While the database is unreachable, settles wait in a local journal.
 *
 * A settle that spends an idempotency key is one transaction with the row of the key. It needs the
 * database, because another process may have taken the key over. A complete response therefore
 * waits for the database, and is not charged if the database stays unreachable; if the connection
 * was lost during the settle, that is uncertain, and the caller gets no response. A response that
 * broke off has reached its caller; it is charged from the journal, but only if the request still
 * has its key.
 */
import { assert } from '../../../core/assert.ts';
import { type Clock, SECOND_MS } from '../../../core/clock.ts';
import { type Log, reasonOf } from '../../../core/log.ts';
import { formatUsd } from '../../../core/money.ts';
import {
  Batcher,
  CommitUncertain,
  type Queryable,
  type SharedStore,
  StoreUnavailable,
  isDatabaseError,
  isUniqueViolation,
} from '../../../db/db.ts';
import { type KeyFence, spendJournaled } from '../../idempotency/idempotency.ts';
import { divideCost } from '../../rules.ts';
import type { SettleRequest, Settlement, WhileAway } from '../records.ts';
import {
  type RowSettle,
  type RowSettlement,
  expectedSettlement,
  repeated,
  settleRows,
} from '../settle.ts';
import type { LeasedHold, Leases } from './leases.ts';
import type { JournaledSettle, SettleJournal } from './settle-journal.ts';

const SETTLES = { maxInFlight: 2, maxItems: 256 };
const LEAST_BESIDE = 48;
/** If at least this many settles wait, the next transaction is delayed to collect more. */
const PAUSE_FROM = 4;
/** How long a settle waits for a failover: shorter than client timeouts. */
const AWAY_WAIT_MS = 30 * SECOND_MS;
const AWAY_POLL_MS = 250;

export interface LeaseSettlesParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly leases: Leases;
  /** Without a journal, settles fail while the database is unreachable. */
  readonly journal: SettleJournal | undefined;
}

interface Settling extends RowSettle {
  /** `undefined` for a settle from the journal of another process. */
  readonly held: LeasedHold | undefined;
}

export class LeaseSettles {
  readonly #parts: LeaseSettlesParts;
  readonly #journaled = new Map<string, LeasedHold>();
  readonly #settles: Batcher<Settling, Settlement>;
  /** Number of settles that wait for the database. */
  #waits = 0;
  #isStopping = false;

  constructor(parts: LeaseSettlesParts) {
    this.#parts = parts;
    this.#settles = new Batcher((settles) => this.#settleBatch(settles), {
      ...SETTLES,
      gather: { clock: parts.clock, leastBeside: LEAST_BESIDE, pauseFrom: PAUSE_FROM },
      // The row of an account stays locked until its settle is on disk.
      keyOf: ({ request }) => request.usage.accountId,
    });
  }

  /** Ends the waits for the database. Their requests fail, and can still release their holds. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#waits > 0) await this.#parts.clock.sleep(2 * AWAY_POLL_MS);
  }

  settle(request: SettleRequest, held: LeasedHold): Promise<Settlement> {
    if (held.settled !== undefined) return repeated(held.settled);
    held.settled = this.#settleOrJournal(request, held);
    return held.settled;
  }

  settleWith(
    request: SettleRequest,
    held: LeasedHold,
    work: Work,
    whileAway: WhileAway,
  ): Promise<Settlement> {
    if (held.settled !== undefined) return repeated(held.settled);
    held.settled = this.#settleInOne(request, held, work, whileAway);
    return held.settled;
  }

  async #settleOrJournal(request: SettleRequest, held: LeasedHold): Promise<Settlement> {
    try {
      return await this.#settles.add(settlingOf(request, held));
    } catch (error) {
      const { journal } = this.#parts;
      if (journal === undefined || !isDatabaseError(error)) {
        // Allow another attempt.
        held.settled = undefined;
        throw error;
      }
      const journaled = await this.#addToJournal(journal, request, held);
      if (journaled !== undefined) return journaled;
      // It may have been committed, so it is repeated in the database rather than rejected.
      const settlement = await this.#settleInOne(request, held, NO_WORK, 'wait');
      return { ...settlement, fresh: true };
    }
  }

  /**
   * Writes the settle to the journal, which replaces the hold from then on. Returns `undefined` if
   * the journal or its disk is full.
   */
  async #addToJournal(
    journal: SettleJournal,
    request: SettleRequest,
    held: LeasedHold,
    key?: KeyFence,
  ): Promise<Settlement | undefined> {
    const { requestId } = request.usage;
    this.#journaled.set(requestId, held);
    try {
      const { capIds, lease } = settlingOf(request, held);
      // Takes the amounts reported now, and no more.
      const taken = lease && { ...lease, ...amountsOf(request, held) };
      await journal.add({ request, capIds, lease: taken, key });
    } catch (error) {
      // The settle waits for the database instead.
      this.#journaled.delete(requestId);
      const fields = { requestId, reason: reasonOf(error) };
      this.#parts.log.error(fields, 'A settle could not be written to the journal');
      return undefined;
    }
    return expectedSettlement(held, request.costNano);
  }

  async #settleInOne(
    request: SettleRequest,
    held: LeasedHold,
    work: Work,
    whileAway: WhileAway,
  ): Promise<Settlement> {
    const { clock, journal, store } = this.#parts;
    const settling = settlingOf(request, held);
    const untilMs = clock.monotonicMs() + AWAY_WAIT_MS;
    let mayWait = whileAway === 'wait';
    let wasSent = false;
    for (let isAgain = false; ; isAgain = true) {
      wasSent ||= store.unavailable() === undefined;
      try {
        const [settlement] = await this.#settleTogether([settling], true, work);
        assert(settlement !== undefined, 'each settle has its result');
        // The reply to an earlier commit was lost; that commit was this settle.
        return isAgain ? { ...settlement, fresh: true } : settlement;
      } catch (error) {
        const isAway = error instanceof StoreUnavailable;
        if (isAway && whileAway === 'drop-work') return this.#settleOrJournal(request, held);
        if (isAway && !mayWait && typeof whileAway === 'object' && journal !== undefined) {
          const journaled = await this.#addToJournal(journal, request, held, whileAway);
          if (journaled !== undefined) return journaled;
          mayWait = true;
        }
        if (!isAway || !mayWait || this.#isStopping || clock.monotonicMs() >= untilMs) {
          held.settled = undefined;
          // The reply to a commit may be lost.
          throw isAway && wasSent ? new CommitUncertain(error.message, { cause: error }) : error;
        }
        this.#waits += 1;
        await clock.sleep(AWAY_POLL_MS);
        this.#waits -= 1;
      }
    }
  }

  async #settleBatch(settles: readonly Settling[]): Promise<readonly (Settlement | Error)[]> {
    try {
      return await this.#settleTogether(settles, false);
    } catch (error) {
      const isRepeat = isUniqueViolation(error);
      if (error instanceof StoreUnavailable || (settles.length === 1 && !isRepeat)) throw error;
      // A record that the database rejects, or already has, must not fail the others.
      if (!isRepeat) {
        const { log } = this.#parts;
        log.error({ reason: reasonOf(error) }, 'A batch of settles failed; each is retried alone');
      }
    }
    const results: (Settlement | Error)[] = [];
    for (const one of settles) {
      try {
        results.push(...(await this.#settleTogether([one], true)));
      } catch (error) {
        results.push(error instanceof Error ? error : new Error(reasonOf(error)));
      }
    }
    return results;
  }

  /** Settles in one transaction, with the further work if any; `isChecked` as in `settleRows`. */
  async #settleTogether(
    settles: readonly Settling[],
    isChecked: boolean,
    work?: Work,
  ): Promise<Settlement[]> {
    const { store, leases } = this.#parts;
    let done: readonly RowSettlement[];
    try {
      done = await store.transaction(async (tx) => {
        const settled = await settleRows(tx, this.#parts, settles, isChecked);
        for (const { settlement } of settled) await work?.(tx, settlement);
        return settled;
      });
    } catch (error) {
      if (error instanceof StoreUnavailable)
        for (const { held } of settles) leases.retireLease(held);
      throw error;
    }
    return done.map(({ settlement, isFromHold, isExceeded }, at) => {
      const { request, held } = settles[at] as Settling; // each settle has a result
      // A recall leaves what open holds may still use in the lease.
      if (!isFromHold || isExceeded) leases.retireLease(held);
      if (!isFromHold && settlement.fresh) this.#logLate(request, settlement);
      if (held !== undefined) leases.ended(held, settlement, isFromHold);
      return settlement;
    });
  }

  #logLate({ costNano, usage }: SettleRequest, { usdNano, diemNano }: Settlement): void {
    const { log } = this.#parts;
    const { requestId } = usage;
    const taken = formatUsd(usdNano + diemNano);
    const fields = { requestId, cost: formatUsd(costNano), taken };
    if (usdNano + diemNano < costNano) log.error(fields, LATE_AND_SHORT);
    else log.warn(fields, LATE);
  }

  async settleJournaled({ key, ...settle }: JournaledSettle): Promise<void> {
    const { requestId } = settle.request.usage;
    const settling = { ...settle, held: this.#journaled.get(requestId) };
    if (key === undefined) await this.#settles.add(settling);
    else await this.#settleFenced(settling, key);
    this.#journaled.delete(requestId);
  }

  /** Charges a journaled settle with an idempotency key, if the request still has the key. */
  async #settleFenced(settling: Settling, key: KeyFence): Promise<void> {
    const { clock, leases, log } = this.#parts;
    const { requestId, accountId } = settling.request.usage;
    try {
      await this.#settleTogether([settling], true, async (tx, { usdNano, diemNano }) => {
        const charged = { accountId, paidNano: usdNano + diemNano };
        if (!(await spendJournaled(tx, clock.nowMs(), key, charged))) throw new KeyLost();
      });
    } catch (error) {
      if (!(error instanceof KeyLost)) throw error;
      // The request that now has the key is charged instead.
      if (settling.held !== undefined) leases.release(settling.held);
      log.warn({ requestId }, 'Not charged: another request has taken over its idempotency key');
    }
  }
}

function settlingOf(request: SettleRequest, held: LeasedHold): Settling {
  const { capIds, lease, usdNano, dailyNano, grantedNano: reservedNano } = held;
  if (lease === undefined) return { request, held, capIds };
  return { request, held, capIds, lease: { id: lease.id, usdNano, dailyNano, reservedNano } };
}

function amountsOf({ costNano }: SettleRequest, held: LeasedHold) {
  const { usdNano, diemNano: dailyNano } = divideCost(costNano, held);
  return { usdNano, dailyNano };
}

type Work = (tx: Queryable, settlement: Settlement) => Promise<void>;

const NO_WORK: Work = () => Promise.resolve();

/** Rolls back a settle whose key belongs to another request. */
class KeyLost extends Error {}

const LATE = 'Settled after the lease of its process was closed: charged to the available balance';
const LATE_AND_SHORT =
  'Settled after the lease of its process was closed: the available balance did not cover the cost';
