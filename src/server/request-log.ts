/**
 * The one line of the log that each request is: ids, route, status, time, cost; nothing secret.
 *
 * It also notices a proxy in front whose `X-Forwarded-For` is not believed: every caller then has the
 * proxy's address, and what counts by address counts for all of them. It says so once.
 */
import type { RequestObserver } from '../http/http.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Log } from '../core/log.ts';

export class RequestLog implements RequestObserver {
  readonly #log: Log;
  #hasNoticed = false;

  constructor(log: Log) {
    this.#log = log;
  }

  begun({ request, address }: RequestContext): void {
    if (this.#hasNoticed) return;
    const { headers, socket } = request;
    const isForwarded = headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined;
    if (!isForwarded || address !== socket.remoteAddress) return;
    this.#hasNoticed = true;
    this.#log.warn(
      { peer: address },
      'A proxy in front forwards requests and its X-Forwarded-For is not believed, so all its callers count as one address; if the peer is your proxy, set http.trustProxy to true or to its address',
    );
  }

  ended(context: RequestContext, tookMs: number): void {
    const { route, callerIfKnown: caller } = context;
    const fields = {
      requestId: context.requestId,
      method: context.request.method,
      route: route?.path ?? 'unknown',
      status: context.statusCode,
      ms: Math.round(tookMs),
      account: caller?.accountId,
      key: caller?.keyId,
      ...context.notes,
    };
    // Health checks and scrapes come every few seconds.
    if (route?.operational === true) this.#log.debug(fields, 'Request');
    else this.#log.info(fields, 'Request');
  }
}
