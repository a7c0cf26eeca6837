/**
 * Notices a proxy in front whose `X-Forwarded-For` is not believed: every caller then has the
 * proxy's address, and what counts by address counts for all of them. Says so once; decides nothing.
 */
import type { RequestContext } from '../http/request-context.ts';
import type { Log } from '../core/log.ts';

export class ProxyNotice {
  readonly #log: Log;
  #isSaid = false;

  constructor(log: Log) {
    this.#log = log;
  }

  look({ request, address }: RequestContext): void {
    if (this.#isSaid) return;
    const { headers, socket } = request;
    const isForwarded = headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined;
    if (!isForwarded || address !== socket.remoteAddress) return;
    this.#isSaid = true;
    this.#log.warn(
      { peer: address },
      'A proxy in front forwards requests and its X-Forwarded-For is not believed, so all its callers count as one address; if the peer is your proxy, set http.trustProxy to true or to its address',
    );
  }
}
