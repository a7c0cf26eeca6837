/** The one line of the log that each request is: ids, route, status, time, cost; nothing secret. */
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';

export function logRequest(
  log: Log,
  clock: Clock,
  context: RequestContext,
  route: Route | undefined,
  status: number,
): void {
  const caller = context.callerIfKnown;
  // Health checks and scrapes come every few seconds.
  const level = route?.operational === true ? 'debug' : 'info';
  log[level](
    {
      requestId: context.requestId,
      method: context.request.method,
      route: route?.path ?? 'unknown',
      status,
      ms: Math.round(clock.monotonicMs() - context.startedMs),
      ...(caller === undefined ? {} : { account: caller.accountId, key: caller.keyId }),
      ...context.notes,
    },
    'Request',
  );
}
