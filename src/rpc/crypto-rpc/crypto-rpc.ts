/** `POST /crypto/rpc/{network}` and `GET /crypto/rpc/networks`. */
import { pipeline } from 'node:stream/promises';
import { type ProxyRpcCall, type ProxyRpcParts, proxyRpc } from '../proxy-rpc.ts';
import type { Clock } from '../../core/clock.ts';
import { MAX_BATCH_ITEMS } from '../rpc.ts';
import { AnswerHeaders } from '../../http/answer-headers.ts';
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
  readLarge: (body: Buffer, maxItems: number) => Promise<ScannedBody>,
): Route[] {
  const make = new AnswerHeaders(parts);
  const prefix = `x-${parts.serviceName}-rpc-`;
  const names = { credits: `${prefix}credits`, costUsd: `${prefix}cost-usd` };
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
      handle: async (context) => {
        const { body } = context;
        const read =
          body.length < LARGE_BODY_BYTES ? { body } : await readLarge(body, MAX_BATCH_ITEMS);
        await relay(parts, context, read, { make, names });
      },
    },
  ];
}

async function relay(
  parts: CryptoRpcParts,
  context: RequestContext,
  read: Pick<ProxyRpcCall, 'body' | 'scanned'>,
  {
    make,
    names,
  }: {
    readonly make: AnswerHeaders;
    readonly names: Readonly<Record<'costUsd' | 'credits', string>>;
  },
): Promise<void> {
  const network = context.parameters['network'] ?? '';
  await proxyRpc(parts, {
    requestId: context.requestId,
    caller: context.caller,
    network,
    ...read,
    idempotencyKey: context.header('idempotency-key'),
    signal: context.signal,
    send: async (answer) => {
      context.notes.model = network;
      context.notes.costUsd = answer.costUsd;
      context.set(names.credits, answer.credits);
      context.set(names.costUsd, answer.costUsd);
      context.set('x-request-id', answer.requestId);
      if (answer.isReplayed) context.set('idempotent-replayed', 'true');
      if (answer.retries > 0) context.set('x-retry-count', answer.retries);
      if (answer.charged !== undefined) {
        const { admission, remainingNano } = answer.charged;
        context.setAll(make.charged(admission, remainingNano));
      }
      if (answer.rest === undefined) return context.bytes(200, JSON_TYPE, answer.body);
      const writable = context.pipe(200, JSON_TYPE);
      writable.write(answer.body);
      await pipeline(answer.rest, writable);
    },
  });
}
