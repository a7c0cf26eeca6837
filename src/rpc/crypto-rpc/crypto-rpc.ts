/** `POST /crypto/rpc/{network}` and `GET /crypto/rpc/networks`. */
import { type ProxyRpcResponse, type ProxyRpcParts, proxyRpc, rpcLimit } from '../proxy-rpc.ts';
import type { Clock } from '../../core/clock.ts';
import { MAX_BATCH_ITEMS } from '../rpc.ts';
import { ResponseHeaders } from '../../http/response-headers.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { LARGE_BODY_BYTES } from '../../http/read-request.ts';
import type { ScannedBody } from '../../json/json-spans.ts';
import { JSON_BODY, type Route, get } from '../../http/route.ts';
import { NETWORKS_DESCRIPTION, RPC_DESCRIPTION } from './schema.ts';

const JSON_TYPE = 'application/json';

export interface CryptoRpcParts extends ProxyRpcParts {
  readonly serviceName: string;
  readonly clock: Clock;
}

export function cryptoRpcRoutes(
  parts: CryptoRpcParts,
  readLarge: (body: Buffer, caller: string, maxItems: number) => Promise<ScannedBody>,
): Route[] {
  const make = new ResponseHeaders(parts);
  const creditsHeader = `x-${parts.serviceName}-rpc-credits`;
  const costHeader = `x-${parts.serviceName}-rpc-cost-usd`;
  function send(context: RequestContext, response: ProxyRpcResponse): void | Promise<void> {
    const { body, sale, remainingNano, costUsd, rest } = response;
    context.notes.model = sale.request.modelId;
    context.notes.costUsd = costUsd;
    context.set(creditsHeader, response.credits);
    context.set(costHeader, costUsd);
    context.set('x-request-id', response.requestId);
    if (response.isReplayed) context.set('idempotent-replayed', 'true');
    if (response.retries > 0) context.set('x-retry-count', response.retries);
    make.counted(sale, remainingNano, context.answerHeaders);
    if (rest === undefined) return context.bytes(200, JSON_TYPE, body);
    return context.sendAll(200, JSON_TYPE, body, rest);
  }
  function run(
    context: RequestContext,
    read: { body: Buffer; scanned?: ScannedBody['scanned'] },
  ): Promise<void> {
    const network = context.parameters['network'] ?? '';
    return proxyRpc(parts, { context, network, ...read, send });
  }
  return [
    get('/crypto/rpc/networks', 'public', NETWORKS_DESCRIPTION, (context) =>
      context.json(200, { networks: parts.rpc.networks() }),
    ),
    {
      method: 'POST',
      path: '/crypto/rpc/:network',
      auth: 'key-or-wallet',
      about: 'Blockchain JSON-RPC',
      body: JSON_BODY,
      sells: 'rpc',
      describe: RPC_DESCRIPTION,
      ownIdempotency: true,
      limitOf: (caller) => rpcLimit(parts, caller),
      handle: (context) => {
        const { body } = context;
        if (body.length < LARGE_BODY_BYTES) return run(context, { body });
        const { accountId } = context.caller;
        return readLarge(body, accountId, MAX_BATCH_ITEMS).then((read) => run(context, read));
      },
    },
  ];
}
