/** The JSON-RPC proxy, wired: nodes, credit cap, idempotency, routes. */
import type { LargeBodies } from './large-bodies.ts';
import { cryptoRpcRoutes } from '../rpc/crypto-rpc/crypto-rpc.ts';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import { CreditCap, Rpc } from '../rpc/rpc.ts';
import type { Feature } from '../http/route.ts';
import type { FeatureParts } from './feature-parts.ts';

export function rpcFeature(
  shared: FeatureParts,
  idempotency: Idempotency,
  largeBodies: LargeBodies,
): Feature {
  const { clock, ids, log, stores } = shared;
  const section = shared.config().rpc;
  if (!section.enabled) return { routes: [] };
  const rpc = new Rpc(section, { clock, ids, log });
  const creditCap = new CreditCap(stores.store, clock);
  return {
    routes: cryptoRpcRoutes(
      {
        rpc,
        creditCap,
        idempotency,
        sales: shared.sales,
        limitLog: shared.limitLog,
        clock,
        log,
        limits: () => shared.config().rpc,
        serviceName: shared.config().service.name,
      },
      (body, maxItems) => largeBodies.rpc(body, maxItems),
    ),
    leaderJob: () => creditCap.prune(),
    close: () => rpc.close(),
  };
}
