/** `POST /crypto/rpc/{network}` and `GET /crypto/rpc/networks`. */
import { pipeline } from 'node:stream/promises';
import {
  type ProxyRpcAnswer,
  type ProxyRpcCall,
  type ProxyRpcParts,
  proxyRpc,
} from '../../../flows/proxy-rpc.ts';
import { MAX_BATCH_ITEMS } from '../../../rpc/rpc.ts';
import { AnswerHeaders } from '../../answer-headers.ts';
import type { Exchange } from '../../exchange.ts';
import { LARGE_BODY_BYTES, type LargeBodies } from '../../large-bodies.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import { NETWORKS_DESCRIPTION, RPC_DESCRIPTION } from './describe.ts';

const JSON_TYPE = 'application/json';

export interface CryptoRpcParts extends ProxyRpcParts {
  readonly serviceName: string;
}

export function cryptoRpcRoutes(parts: CryptoRpcParts, largeBodies: LargeBodies): Route[] {
  const make = new AnswerHeaders(parts);
  const names = ownNames(parts.serviceName);
  return [
    {
      method: 'GET',
      path: '/crypto/rpc/networks',
      auth: 'public',
      describe: NETWORKS_DESCRIPTION,
      handle: (exchange) => exchange.json(200, { networks: parts.rpc.networks() }),
    },
    {
      method: 'POST',
      path: '/crypto/rpc/:network',
      auth: 'key-or-wallet',
      about: 'Blockchain JSON-RPC',
      body: JSON_BODY,
      sells: 'rpc',
      describe: RPC_DESCRIPTION,
      ownIdempotency: true,
      handle: async (exchange) => {
        const { body } = exchange;
        const read =
          body.length < LARGE_BODY_BYTES ? { body } : await largeBodies.rpc(body, MAX_BATCH_ITEMS);
        await relay(parts, exchange, read, { make, names });
      },
    },
  ];
}

async function relay(
  parts: CryptoRpcParts,
  exchange: Exchange,
  read: Pick<ProxyRpcCall, 'body' | 'scanned'>,
  { make, names }: { readonly make: AnswerHeaders; readonly names: OwnNames },
): Promise<void> {
  const network = exchange.parameters['network'] ?? '';
  const answer = await proxyRpc(parts, {
    requestId: exchange.requestId,
    caller: exchange.caller,
    network,
    ...read,
    idempotencyKey: exchange.header('idempotency-key'),
    signal: exchange.signal,
  });
  exchange.notes.model = network;
  exchange.notes.costUsd = answer.costUsd;
  setRelayHeaders(exchange, names, answer);
  if (answer.charged !== undefined) {
    const { admission, remainingNano } = answer.charged;
    exchange.setAll(make.charged(admission, remainingNano));
  }
  if (answer.rest === undefined) return exchange.bytes(200, JSON_TYPE, answer.body);
  const { rest } = answer;
  const writable = exchange.pipe(200, JSON_TYPE);
  writable.write(answer.body);
  try {
    await pipeline(rest, writable);
  } catch (error) {
    // The caller left: the flow settles what came so far, and there is nobody to tell.
    if (!exchange.signal.aborted) throw error;
  }
}

/** The names that begin with the service's own. */
interface OwnNames {
  readonly credits: string;
  readonly costUsd: string;
}

function ownNames(serviceName: string): OwnNames {
  return { credits: `x-${serviceName}-rpc-credits`, costUsd: `x-${serviceName}-rpc-cost-usd` };
}

function setRelayHeaders(exchange: Exchange, names: OwnNames, answer: ProxyRpcAnswer): void {
  exchange.set(names.credits, answer.credits);
  exchange.set(names.costUsd, answer.costUsd);
  exchange.set('x-request-id', answer.requestId);
  if (answer.isReplayed) exchange.set('idempotent-replayed', 'true');
  if (answer.retries > 0) exchange.set('x-retry-count', answer.retries);
}
