/** `POST /crypto/rpc/{network}` and `GET /crypto/rpc/networks`. */
import { type ProxyRpcParts, proxyRpc, rpcLimit } from '../proxy-rpc.ts';
import type { Clock } from '../../core/clock.ts';
import { MAX_BATCH_ITEMS } from '../call-ids.ts';
import { ResponseHeaders } from '../../http/response-headers.ts';
import { LARGE_BODY_BYTES } from '../../http/read-request.ts';
import type { ScannedBody } from '../../json/json-spans.ts';
import { JSON_BODY, type Route, get } from '../../http/route.ts';
import { NETWORKS_DESCRIPTION, RPC_DESCRIPTION } from './schema.ts';

export interface CryptoRpcParts extends Omit<ProxyRpcParts, 'headers' | 'names'> {
  readonly clock: Clock;
  readonly serviceName: string;
}

export function cryptoRpcRoutes(
  parts: CryptoRpcParts,
  readLarge: (body: Buffer, caller: string, maxItems: number) => Promise<ScannedBody>,
): Route[] {
  const prefix = `x-${parts.serviceName}-rpc`;
  const names = { credits: `${prefix}-credits`, costUsd: `${prefix}-cost-usd` };
  const proxyParts = { ...parts, headers: new ResponseHeaders(parts), names };
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
        if (body.length < LARGE_BODY_BYTES) return proxyRpc(proxyParts, context, body);
        const { accountId } = context.caller;
        return readLarge(body, accountId, MAX_BATCH_ITEMS).then((read) =>
          proxyRpc(proxyParts, context, read.body, read.scanned),
        );
      },
    },
  ];
}
