/** The one line of the log that each request is: ids, route, status, time, cost; nothing secret. */
import type { Exchange } from '../api/exchange.ts';
import type { Route } from '../api/route.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';

export function logRequest(
  log: Log,
  clock: Clock,
  exchange: Exchange,
  route: Route | undefined,
  status: number,
): void {
  const caller = exchange.callerIfKnown;
  // Health checks and scrapes come every few seconds.
  const level = route?.operational === true ? 'debug' : 'info';
  log[level](
    {
      requestId: exchange.requestId,
      method: exchange.request.method,
      route: route?.path ?? 'unknown',
      status,
      ms: Math.round(clock.monotonicMs() - exchange.startedMs),
      ...(caller === undefined ? {} : { account: caller.accountId, key: caller.keyId }),
      ...exchange.notes,
    },
    'Request',
  );
}
