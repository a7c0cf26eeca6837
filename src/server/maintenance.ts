/**
 * Runs background jobs each minute. Each process runs its own jobs. The process with the lease also runs the
 * jobs on the database: jobs of features, partitions of the next days, and retention.
 */
import type { ConfigInForce } from '../config/config.ts';
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, dayOf } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Feature } from '../http/route.ts';
import type { FailureLog } from '../observability/failure-log.ts';
import { Leases } from '../db/db.ts';
import type { Stores } from './stores.ts';
import { safeStack } from './unhandled-rejections.ts';

/** Partitions are created some days ahead, because the server can be down over a weekend. */
const DAYS_AHEAD = 7;
/** Rows of yesterday are kept, because running requests can still write them. */
const LEAST_DAYS = 2;
const JOBS_LEASE_MS = MINUTE_MS - 5 * SECOND_MS;
/** On SQLite a run of `days` reads every account. */
const DAYS_EVERY_MS = HOUR_MS;

export interface MaintenanceParts {
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly limitLog: LimitLog;
  readonly failureLog: FailureLog;
  readonly windows: Pick<Windows, 'prune'>;
  readonly features: readonly Pick<Feature, 'perProcessJob' | 'leaderJob'>[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Notified of every job, for the metrics. */
  readonly ran?: (result: 'done' | 'failed') => void;
}

export class Maintenance {
  readonly #parts: MaintenanceParts;
  readonly #leases: Leases;
  #stop: (() => void) | undefined;
  #running: Promise<void> | undefined;
  /** Monotonic time of the next run of `days` in this process. */
  #daysFromMs = -Infinity;

  constructor(parts: MaintenanceParts) {
    this.#parts = parts;
    const { clock, ids, stores } = parts;
    this.#leases = new Leases({ store: stores.store, clock, holder: ids.uuid() });
  }

  /** Creates partitions, then runs the jobs once a minute. */
  async start(): Promise<void> {
    const { clock, stores, limitLog } = this.#parts;
    // They exist for some days already, so a server starts without a new one.
    await this.#run(() => prepareDays(stores, limitLog, clock.nowMs()));
    this.#stop = clock.every(MINUTE_MS, () => {
      this.#running ??= this.#minute().finally(() => {
        this.#running = undefined;
      });
    });
  }

  async stop(): Promise<void> {
    this.#stop?.();
    await this.#running;
  }

  async #minute(): Promise<void> {
    const { features, windows, clock } = this.#parts;
    for (const { perProcessJob } of features) await this.#run(perProcessJob);
    try {
      if (await this.#leases.take('jobs', JOBS_LEASE_MS)) {
        await this.#run(() => windows.prune(clock.nowMs()));
        for (const { leaderJob } of features) await this.#run(leaderJob);
      }
      const nowMs = clock.monotonicMs();
      if (nowMs >= this.#daysFromMs && (await this.#leases.take('days', DAYS_EVERY_MS))) {
        await this.#run(async () => {
          await this.days();
          this.#daysFromMs = nowMs + DAYS_EVERY_MS;
        });
      }
    } catch (error) {
      // The database is unreachable: the next minute retries.
      this.#parts.log.debug({ reason: reasonOf(error) }, 'Background jobs wait for the database');
    }
  }

  async #run(job: (() => Promise<unknown>) | undefined): Promise<void> {
    if (job === undefined) return;
    try {
      await job();
      this.#parts.ran?.('done');
    } catch (error) {
      this.#parts.ran?.('failed');
      // The next minute retries.
      const fields = { reason: reasonOf(error), stack: safeStack(error) };
      this.#parts.log.warn(fields, 'A background job failed');
    }
  }

  /** Creates partitions of the next days and deletes rows after their retention. */
  async days(): Promise<void> {
    const { config, stores, limitLog, failureLog, clock } = this.#parts;
    const { usageDays, postingDays, failureDays, limitLogDays } = config.current.retention;
    await prepareDays(stores, limitLog, clock.nowMs());
    const nowMs = await this.#earlierMs();
    const keptFrom = (days: number): number | undefined => {
      return days === 0 ? undefined : dayOf(nowMs) - Math.max(LEAST_DAYS, days);
    };
    const usageDay = keptFrom(usageDays);
    await stores.ledger.dropOld({ usageDay, postingDay: keptFrom(postingDays) });
    if (failureDays > 0) await failureLog.dropBefore(nowMs - failureDays * DAY_MS);
    const logDay = keptFrom(limitLogDays);
    if (logDay !== undefined) await limitLog.dropDaysBefore(logDay);
  }

  /** The earlier of the times of this process and of the database: a wrong clock must delete no rows. */
  async #earlierMs(): Promise<number> {
    const { stores, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const [row] = await stores.store.query<{ now: bigint }>('SELECT now_ms($1) AS now', [nowMs]);
    return Math.min(nowMs, Number(row?.now ?? nowMs));
  }
}

/** Creates partitions before rows of these days are written, so that no row has to be moved. */
async function prepareDays(stores: Stores, limitLog: LimitLog, nowMs: number): Promise<void> {
  const today = dayOf(nowMs);
  await stores.ledger.prepareDays(today - 1, today + DAYS_AHEAD);
  await limitLog.prepareDays(today - 1, today + DAYS_AHEAD);
}
