/**
 * Settles what was held out of leases: those of a tick in one statement that the answers wait for.
 * What finds its lease gone is settled late, under a lock, by what the usage records say. While the
 * database is away settles wait in a local journal.
 *
 * A settle that spends an idempotency key is one transaction with the row of the key. It cannot be
 * confirmed without the database, because another process may have taken the key over: a complete
 * response waits for the database and is not charged if that stays away, and a response that broke off,
 * whose caller was told so, is charged from the journal only if the request still has its key.
 */
import { assert } from '../../../core/assert.ts';
import { type Clock, SECOND_MS } from '../../../core/clock.ts';
import { type Log, reasonOf } from '../../../core/log.ts';
import { ZERO, formatUsd } from '../../../core/money.ts';
import {
  Batcher,
  type Queryable,
  type SharedStore,
  StoreUnavailable,
  isDatabaseError,
  isUniqueViolation,
} from '../../../db/db.ts';
import { type KeyFence, spendJournaled } from '../../idempotency/idempotency.ts';
import type { SettleRequest, Settlement, WhileAway } from '../records.ts';
import { ABOVE_HOLD, expectedSettlement, settleRows } from '../settle.ts';
import type { LeasedHold } from './lease.ts';
import type { Leases } from './leases.ts';
import type { JournaledSettle, SettleJournal } from './settle-journal.ts';
import type { LeaseSettle } from './settle-item.ts';
import { settleFromLeases } from './settle-statement.ts';

/** Settles of one statement, at most, and statements on their way. */
const SETTLES = { maxInFlight: 2, maxItems: 256 };
const LEAST_BESIDE = 48;
/** Settles that wait when a statement comes back; fewer go on at once. */
const PAUSE_FROM = 4;
const LATE_SETTLES = { maxInFlight: 1, maxItems: 64 };
/**
 * How long a settle waits for a database that is away: as long as a failover takes, and shorter than
 * clients wait for a response.
 */
const AWAY_WAIT_MS = 30 * SECOND_MS;
const AWAY_POLL_MS = 250;

export interface LeaseSettlesParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly leases: Leases;
  /** Missing when settles fail while the database is away. */
  readonly journal: SettleJournal | undefined;
}

interface Settling extends LeaseSettle {
  /** Missing for what another process had journaled. */
  readonly held: LeasedHold | undefined;
}

export class LeaseSettles {
  readonly #parts: LeaseSettlesParts;
  /** Holds whose settles wait in the journal. */
  readonly #journaled = new Map<string, LeasedHold>();
  readonly #settles: Batcher<Settling, Settlement>;
  readonly #lateSettles: Batcher<SettleRequest, Settlement>;

  constructor(parts: LeaseSettlesParts) {
    this.#parts = parts;
    this.#settles = new Batcher((settles) => this.#settleBatch(settles), {
      ...SETTLES,
      gather: { clock: parts.clock, leastBeside: LEAST_BESIDE, pauseFrom: PAUSE_FROM },
      // The row of an account is locked until a settle of it is on disk.
      keyOf: ({ request }) => request.usage.accountId,
    });
    this.#lateSettles = new Batcher((requests) => settleEach(parts, requests), LATE_SETTLES);
  }

  /** While the database is away the settle goes to the journal, and the answer is the expected one. */
  settle(request: SettleRequest, held: LeasedHold): Promise<Settlement> {
    if (held.settled !== undefined) return repeated(held.settled);
    held.settled = this.#settleOrNote(request, held);
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

  async #settleOrNote(request: SettleRequest, held: LeasedHold): Promise<Settlement> {
    try {
      const settlement = await this.#settles.add({ ...this.#settleOf(request, held), held });
      return settlement;
    } catch (error) {
      const { journal } = this.#parts;
      if (journal === undefined || !isDatabaseError(error)) {
        // It may be tried again.
        held.settled = undefined;
        throw error;
      }
      return this.#note(journal, request, held);
    }
  }

  /** From here the journal stands for the hold. */
  async #note(
    journal: SettleJournal,
    request: SettleRequest,
    held: LeasedHold,
    key?: KeyFence,
  ): Promise<Settlement> {
    const { requestId } = held;
    this.#journaled.set(requestId, held);
    try {
      await journal.add({ ...this.#settleOf(request, held), key });
    } catch (error) {
      this.#journaled.delete(requestId);
      held.settled = undefined;
      throw error;
    }
    return expectedSettlement(held, request.costNano);
  }

  async #settleInOne(
    request: SettleRequest,
    held: LeasedHold,
    work: Work,
    whileAway: WhileAway,
  ): Promise<Settlement> {
    const { clock, journal, leases } = this.#parts;
    const settle = this.#settleOf(request, held);
    const untilMs = clock.monotonicMs() + AWAY_WAIT_MS;
    for (let isAgain = false; ; isAgain = true) {
      try {
        const settlement = await this.#settleAtOnce(settle, held, work);
        // The reply to an earlier commit was lost: that one was this settle.
        return isAgain ? { ...settlement, fresh: true } : settlement;
      } catch (error) {
        const isAway = error instanceof StoreUnavailable;
        if (isAway) {
          leases.doubt(held);
          if (whileAway === 'drop-work') return this.#settleOrNote(request, held);
          if (typeof whileAway === 'object' && journal !== undefined) {
            return this.#note(journal, request, held, whileAway);
          }
        }
        if (!isAway || whileAway !== 'wait' || clock.monotonicMs() >= untilMs) {
          held.settled = undefined;
          throw error;
        }
        await clock.sleep(AWAY_POLL_MS);
      }
    }
  }

  /** In one transaction with the work. */
  async #settleAtOnce(
    settle: LeaseSettle,
    held: LeasedHold | undefined,
    work: Work,
  ): Promise<Settlement> {
    const { store, clock, leases } = this.#parts;
    const { request } = settle;
    let isFromLease = false;
    const settlement = await store.transaction(async (tx) => {
      const fresh = await settleFromLeases(tx, [settle], clock.nowMs());
      const early = fresh.get(request.usage.requestId);
      isFromLease = early !== undefined;
      const [settled = early] =
        early === undefined ? await settleRows(tx, this.#parts, [request]) : [];
      assert(settled !== undefined, 'each settle has its answer');
      await work(tx, settled);
      return settled;
    });
    if (held !== undefined) leases.ended(held, settlement, isFromLease);
    return settlement;
  }

  /** What of the cost is daily credit, and that it is not above the hold. */
  #settleOf(request: SettleRequest, held: LeasedHold): LeaseSettle {
    const { costNano } = request;
    const { grantedNano, dailyNano, lease, requestId, allowanceId, budgetIds } = held;
    let taken: bigint = costNano;
    if (costNano > grantedNano) {
      taken = grantedNano;
      const fields = { requestId, cost: formatUsd(costNano) };
      this.#parts.log.error({ ...fields, taken: formatUsd(grantedNano) }, ABOVE_HOLD);
    }
    const diem = taken < dailyNano ? taken : dailyNano;
    return {
      request,
      leaseId: lease?.id ?? requestId,
      allowanceId,
      budgetIds,
      isLast: lease === undefined,
      usdNano: taken - diem,
      dailyNano: diem,
      reservedNano: grantedNano,
    };
  }

  async #settleBatch(
    settles: readonly Settling[],
  ): Promise<readonly (Settlement | Promise<Settlement>)[]> {
    const first = new Map(settles.map((one) => [one.request.usage.requestId, one]));
    const once = first.size === settles.length ? settles : [...first.values()];
    const settled = await this.#settleTogether(once);
    return settles.map((one) => {
      const { requestId } = one.request.usage;
      const settlement = first.get(requestId) === one ? settled.get(requestId) : undefined;
      if (settlement === undefined) return this.#settleLateOne(one);
      if (one.held !== undefined) this.#parts.leases.ended(one.held, settlement, true);
      return settlement;
    });
  }

  async #settleTogether(settles: readonly Settling[]): Promise<ReadonlyMap<string, Settlement>> {
    const { store, clock, log } = this.#parts;
    try {
      return await settleFromLeases(store, settles, clock.nowMs());
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        for (const { held } of settles) if (held !== undefined) this.#parts.leases.doubt(held);
        throw error;
      }
      if (settles.length === 1) throw error;
      // One record that the database refuses must not stop its neighbours, nor one that it has.
      if (!isUniqueViolation(error)) {
        log.error({ reason: reasonOf(error) }, 'A batch of settles failed; they go one by one');
      }
    }
    const settled = new Map<string, Settlement>();
    for (const one of settles) {
      const alone = await this.#settleTogether([one]).catch((error: unknown) => {
        log.error(
          { requestId: one.request.usage.requestId, reason: reasonOf(error) },
          'Not settled',
        );
        return undefined;
      });
      for (const [id, settlement] of alone ?? []) settled.set(id, settlement);
    }
    return settled;
  }

  /** Its lease is gone, or it was settled before: the usage record decides. */
  async #settleLateOne({ request, held }: Settling): Promise<Settlement> {
    const settlement = await this.#lateSettles.add(request);
    if (held !== undefined) {
      this.#parts.leases.doubt(held);
      this.#parts.leases.ended(held, settlement, false);
    }
    if (!settlement.fresh) return settlement;
    const { requestId } = request.usage;
    const taken = formatUsd(settlement.usdNano + settlement.diemNano);
    const fields = { requestId, cost: formatUsd(request.costNano), taken };
    const isShort = settlement.usdNano + settlement.diemNano < request.costNano;
    if (isShort) this.#parts.log.error(fields, LATE_AND_SHORT);
    else this.#parts.log.warn(fields, LATE);
    return settlement;
  }

  /** What waited in the journal of this process, or of one that has ended. */
  async settleJournaled({ request, key, ...entry }: JournaledSettle): Promise<void> {
    const { requestId } = request.usage;
    const held = this.#journaled.get(requestId);
    const { leaseId } = entry;
    if (leaseId === undefined) await this.#lateSettles.add(request);
    else if (key === undefined) await this.#settles.add({ request, ...entry, leaseId, held });
    else await this.#settleFenced({ request, ...entry, leaseId }, held, key);
    this.#journaled.delete(requestId);
  }

  /** Charges what was journaled with an idempotency key, if the request still has that. */
  async #settleFenced(
    settle: LeaseSettle,
    held: LeasedHold | undefined,
    key: KeyFence,
  ): Promise<void> {
    const { store, clock, leases, log } = this.#parts;
    const { requestId, accountId } = settle.request.usage;
    try {
      await this.#settleAtOnce(settle, held, async (tx, { usdNano, diemNano }) => {
        const context = { dialect: store.dialect, nowMs: clock.nowMs() };
        const charged = { accountId, paidNano: usdNano + diemNano };
        if (!(await spendJournaled(tx, context, key, charged))) throw new KeyLost();
      });
    } catch (error) {
      if (!(error instanceof KeyLost)) throw error;
      // The request that has the key is charged.
      if (held !== undefined) leases.end(held, ZERO);
      log.warn({ requestId }, 'Not charged: another request has taken over its idempotency key');
    }
  }
}

type Work = (tx: Queryable, settlement: Settlement) => Promise<void>;

/** Undoes a settle whose key another request has. */
class KeyLost extends Error {}

const LATE = 'Settled after the lease of its process was closed: out of what was available';
const LATE_AND_SHORT =
  'Settled after the lease of its process was closed, and less was available than it cost';

/** In one transaction; when that fails for one of them, each in its own. */
async function settleEach(
  parts: LeaseSettlesParts,
  requests: readonly SettleRequest[],
): Promise<readonly (Settlement | Error)[]> {
  const together = (some: readonly SettleRequest[]) =>
    parts.store.transaction((tx) => settleRows(tx, parts, some));
  try {
    return await together(requests);
  } catch (error) {
    if (error instanceof StoreUnavailable || requests.length === 1) throw error;
    const outcomes = await Promise.allSettled(requests.map((one) => together([one])));
    return outcomes.map((outcome) => {
      if (outcome.status === 'rejected') return asError(outcome.reason);
      return outcome.value[0] ?? new Error('A settle gave no answer');
    });
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

/** A second settle charges nothing and repeats the first. */
async function repeated(settled: Promise<Settlement>): Promise<Settlement> {
  return { ...(await settled), fresh: false };
}
