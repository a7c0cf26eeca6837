/**
 * The chores of the background. Some are each process's own; those on the database are done by one
 * of all processes: chores of the subjects once a minute, room for the days that come, the end of
 * rows that are old enough. A lease says who; when its holder dies, another takes over.
 */
import { type Config } from '../config/config.ts';
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS, dayOf } from '../kernel/clock.ts';
import type { Ids } from '../kernel/ids.ts';
import { type Log, reasonOf } from '../kernel/log.ts';
import type { LimitLog } from '../limits/limits.ts';
import { Leases } from '../store/store.ts';
import type { Office } from './office.ts';
import type { Shared, Subject } from './subject.ts';
import type { Watch } from './watch.ts';

/** Partitions are made so many days ahead: a process may be down over a long weekend. */
const DAYS_AHEAD = 7;
/** Running requests write on the day before. */
const LEAST_DAYS = 2;
const CHORES_LEASE_MS = MINUTE_MS - 5 * SECOND_MS;

export interface UpkeepParts {
  readonly config: () => Config;
  readonly office: Office;
  readonly limitLog: LimitLog;
  /** Chores of one minute of this process. */
  readonly chores: readonly (() => Promise<unknown>)[];
  /** Chores of one minute that one of all processes does. */
  readonly sharedChores: readonly (() => Promise<unknown>)[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Told of every chore, for the metrics. */
  readonly ran?: (result: 'done' | 'failed') => void;
}

export class Upkeep {
  readonly #parts: UpkeepParts;
  readonly #leases: Leases;
  #stop: (() => void) | undefined;
  #running: Promise<void> | undefined;

  constructor(parts: UpkeepParts) {
    this.#parts = parts;
    const { clock, ids, office } = parts;
    this.#leases = new Leases({ store: office.store, clock, holder: ids.uuid() });
  }

  /** Makes today's room, then works once a minute. */
  async start(): Promise<void> {
    const { clock, office, limitLog } = this.#parts;
    await makeRoom(office, limitLog, clock.nowMs());
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
    for (const chore of this.#parts.chores) await this.#run(chore);
    try {
      if (await this.#leases.take('chores', CHORES_LEASE_MS)) {
        for (const chore of this.#parts.sharedChores) await this.#run(chore);
      }
      if (await this.#leases.take('days', HOUR_MS)) await this.#run(() => this.days());
    } catch (error) {
      // The database is away: the next minute tries again.
      this.#parts.log.debug({ reason: reasonOf(error) }, 'No chores without the database');
    }
  }

  async #run(chore: () => Promise<unknown>): Promise<void> {
    try {
      await chore();
      this.#parts.ran?.('done');
    } catch (error) {
      this.#parts.ran?.('failed');
      // The next minute tries again.
      this.#parts.log.warn({ reason: reasonOf(error) }, 'A chore of the background failed');
    }
  }

  /** Makes room for the days that come and drops what is old enough. */
  async days(): Promise<void> {
    const { config, office, limitLog, clock } = this.#parts;
    const { usageDays, postingDays, limitLogDays } = config().retention;
    const nowMs = clock.nowMs();
    await makeRoom(office, limitLog, nowMs);
    const keptFrom = (days: number): number | undefined => {
      return days === 0 ? undefined : dayOf(nowMs) - Math.max(LEAST_DAYS, days);
    };
    const usageDay = keptFrom(usageDays);
    await office.ledger.dropOld({ usageDay, postingDay: keptFrom(postingDays) });
    const logDay = keptFrom(limitLogDays);
    if (logDay !== undefined) await limitLog.dropDaysBefore(logDay);
  }
}

/** The chores of all subjects, those of the rate windows with them. */
export function upkeepOf(shared: Shared, subjects: readonly Subject[], watch: Watch): Upkeep {
  const { clock, windows } = shared;
  const pruneWindows = () => windows.prune(clock.nowMs());
  return new Upkeep({
    ...shared,
    chores: subjects.flatMap((subject) => subject.everyMinute ?? []),
    sharedChores: [pruneWindows, ...subjects.flatMap((subject) => subject.onceAMinute ?? [])],
    ran: (result) => watch.monitor.choreRan(result),
  });
}

/** Before the first row of a day is written, so that nothing has to be moved. */
async function makeRoom(office: Office, limitLog: LimitLog, nowMs: number): Promise<void> {
  const today = dayOf(nowMs);
  await office.ledger.prepareDays(today - 1, today + DAYS_AHEAD);
  await limitLog.prepareDays(today - 1, today + DAYS_AHEAD);
}
