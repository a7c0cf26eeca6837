/** Composes the JSON-RPC proxy: nodes, credit limits, idempotency, routes. */
import type { LargeBodies } from './large-bodies.ts';
import { cryptoRpcRoutes } from '../rpc/crypto-rpc/crypto-rpc.ts';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import { isShared } from '../db/db.ts';
import {
  SharedCredits,
  type Credits,
  MemoryCredits,
  type NetworkStatus,
  Rpc,
  type RpcFigures,
} from '../rpc/rpc.ts';
import { proxyOf, rpcLimitsOf } from '../config/config.ts';
import type { Feature } from '../http/route.ts';
import type { FeatureParts } from './feature-parts.ts';

interface RpcFeature extends Feature {
  /** The networks and their nodes as this process sees them. */
  readonly status: () => NetworkStatus[];
}

/** Counts credits in memory if this is the only process, otherwise in the database. */
export function openCredits({ stores: { store }, clock }: FeatureParts): Credits {
  return isShared(store) ? new SharedCredits(store, clock) : new MemoryCredits(store, clock);
}

export function rpcFeature(
  shared: FeatureParts,
  credits: Credits,
  idempotency: Idempotency,
  largeBodies: LargeBodies,
  figures: RpcFigures,
): RpcFeature {
  const { clock, ids, log } = shared;
  const { store } = shared.stores;
  const section = shared.config.current.rpc;
  if (!section.enabled) return { routes: [], status: () => [] };
  const { proxies } = shared.config.current;
  const rpc = new Rpc(section, {
    clock,
    ids,
    log,
    figures,
    proxyOf: (url) => proxyOf(proxies, url),
    sharedStore: isShared(store) ? store : undefined,
  });
  return {
    routes: cryptoRpcRoutes(
      {
        rpc,
        credits,
        idempotency,
        sales: shared.sales,
        limitLog: shared.limitLog,
        clock,
        log,
        limits: (plan) => rpcLimitsOf(shared.config.current, plan),
        serviceName: shared.config.current.service.name,
      },
      (body, caller, maxItems) => largeBodies.rpc(body, caller, maxItems),
    ),
    status: () => rpc.status(),
    leaderJob: () => credits.prune(),
    close: async () => {
      await rpc.close();
      await credits.close();
    },
  };
}
