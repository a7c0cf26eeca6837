/**
 * Background jobs. Each process runs its own; one of all processes, by a lease, runs those on the
 * database: jobs of features each minute, partitions of the next days, and retention.
 */
import type { ConfigInForce } from '../config/config.ts';
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS, dayOf } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Feature } from '../http/route.ts';
import { Leases } from '../db/db.ts';
import type { Stores } from './stores.ts';

/** Partitions are made so many days ahead: a process may be down over a long weekend. */
const DAYS_AHEAD = 7;
/** Running requests write on the day before. */
const LEAST_DAYS = 2;
const JOBS_LEASE_MS = MINUTE_MS - 5 * SECOND_MS;

export interface MaintenanceParts {
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly limitLog: LimitLog;
  readonly windows: Pick<Windows, 'prune'>;
  /** Each may bring a job of this process, and one that one of all processes does. */
  readonly features: readonly Pick<Feature, 'perProcessJob' | 'leaderJob'>[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Told of every job, for the metrics. */
  readonly ran?: (result: 'done' | 'failed') => void;
}

export class Maintenance {
  readonly #parts: MaintenanceParts;
  readonly #leases: Leases;
  #stop: (() => void) | undefined;
  #running: Promise<void> | undefined;

  constructor(parts: MaintenanceParts) {
    this.#parts = parts;
    const { clock, ids, stores } = parts;
    this.#leases = new Leases({ store: stores.store, clock, holder: ids.uuid() });
  }

  /** Prepares the days, then works once a minute. */
  async start(): Promise<void> {
    const { clock, stores, limitLog } = this.#parts;
    await prepareDays(stores, limitLog, clock.nowMs());
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
      if (await this.#leases.take('days', HOUR_MS)) await this.#run(() => this.days());
    } catch (error) {
      // The database is away: the next minute tries again.
      this.#parts.log.debug({ reason: reasonOf(error) }, 'No jobs without the database');
    }
  }

  async #run(job: (() => Promise<unknown>) | undefined): Promise<void> {
    if (job === undefined) return;
    try {
      await job();
      this.#parts.ran?.('done');
    } catch (error) {
      this.#parts.ran?.('failed');
      // The next minute tries again.
      this.#parts.log.warn({ reason: reasonOf(error) }, 'A job of the background failed');
    }
  }

  /** Prepares the days that come and drops what is old enough. */
  async days(): Promise<void> {
    const { config, stores, limitLog, clock } = this.#parts;
    const { usageDays, postingDays, limitLogDays } = config.current.retention;
    const nowMs = clock.nowMs();
    await prepareDays(stores, limitLog, nowMs);
    const keptFrom = (days: number): number | undefined => {
      return days === 0 ? undefined : dayOf(nowMs) - Math.max(LEAST_DAYS, days);
    };
    const usageDay = keptFrom(usageDays);
    await stores.ledger.dropOld({ usageDay, postingDay: keptFrom(postingDays) });
    const logDay = keptFrom(limitLogDays);
    if (logDay !== undefined) await limitLog.dropDaysBefore(logDay);
  }
}

/** Before the first row of a day is written, so that nothing has to be moved. */
async function prepareDays(stores: Stores, limitLog: LimitLog, nowMs: number): Promise<void> {
  const today = dayOf(nowMs);
  await stores.ledger.prepareDays(today - 1, today + DAYS_AHEAD);
  await limitLog.prepareDays(today - 1, today + DAYS_AHEAD);
}
