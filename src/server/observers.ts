/**
 * Whoever has to know of a request, wired: the count of open ones, the abuse guard, the log line,
 * the metrics and the traces. The order in which they are told of an end is written here.
 */
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { MINUTE_MS } from '../core/clock.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Settlement } from '../billing/ledger/ledger.ts';
import { AbuseGuard, type AbuseGuardParts } from './abuse-guard.ts';
import { logRequest } from './log-request.ts';
import { Monitor, type MonitorParts } from './metrics.ts';
import { ProxyNotice } from './proxy-notice.ts';
import type { Traces } from './traces.ts';
import { Traffic } from './traffic.ts';

export interface ObserversParts
  extends AbuseGuardParts, Omit<MonitorParts, 'traffic' | 'labels' | 'spans'> {
  readonly log: Log;
  readonly traces: Traces;
  /** Whether several processes share the port. */
  readonly isOneOfSeveral: boolean;
}

export class Observers {
  readonly traffic = new Traffic();
  readonly monitor: Monitor;
  readonly #parts: ObserversParts;
  readonly #guard: AbuseGuard;
  readonly #proxyNotice: ProxyNotice;
  readonly #stopPruning: () => void;

  constructor(parts: ObserversParts) {
    const { traces, clock, isOneOfSeveral } = parts;
    this.#parts = parts;
    this.monitor = new Monitor({
      ...parts,
      traffic: this.traffic,
      labels: isOneOfSeveral ? { process: String(process.pid) } : {},
      spans: () => traces.counts,
    });
    this.#guard = new AbuseGuard(parts);
    this.#proxyNotice = new ProxyNotice(parts.log);
    this.#stopPruning = clock.every(MINUTE_MS, () => this.#guard.prune());
  }

  /** Throws while the caller is blocked for its failures. */
  refuse(context: RequestContext, route: Route): void {
    this.#guard.refuse(context, route);
  }

  started(context: RequestContext, route: Route | undefined): void {
    this.traffic.enter();
    this.#proxyNotice.look(context);
    this.#parts.traces.begin(context, route);
  }

  settled(sale: Sale, outcome: Outcome, settlement: Settlement): void {
    this.monitor.settled(sale, outcome, settlement);
    this.#parts.traces.settled(sale, outcome, settlement);
  }

  finished(context: RequestContext, route: Route | undefined, status: number): void {
    const { log, clock, traces } = this.#parts;
    this.traffic.leave();
    if (route?.operational !== true) this.#guard.count(context, status);
    logRequest(log, clock, context, route, status);
    this.monitor.requestEnded(context, route, status);
    traces.end(context, route, status);
  }

  /** Runs a handler so that what it does is found in its trace. */
  within(context: RequestContext, work: () => Promise<void>): Promise<void> {
    return this.#parts.traces.within(context, work);
  }

  /** After the last answer: what is still to be told is told. */
  async close(): Promise<void> {
    const { traces, limitLog, log } = this.#parts;
    this.#stopPruning();
    this.monitor.close();
    await traces.close();
    await limitLog.flush().catch((error: unknown) => {
      // The database is away: log lines cost nobody money.
      log.warn({ reason: reasonOf(error) }, 'The limit log is not written');
    });
  }
}
