/** The JSON-RPC proxy, wired: nodes, credit cap, idempotency, routes. */
import type { LargeBodies } from '../api/large-bodies.ts';
import { cryptoRpcRoutes } from '../api/routes/crypto-rpc/crypto-rpc.ts';
import type { RpcSection } from '../config/config.ts';
import type { Idempotency } from '../idempotency/idempotency.ts';
import { usdToNano } from '../kernel/money.ts';
import { CreditCap, Rpc, type RpcSettings } from '../rpc/rpc.ts';
import type { Shared, Subject } from './subject.ts';

export function rpcSubject(
  shared: Shared,
  idempotency: Idempotency,
  largeBodies: LargeBodies,
): Subject {
  const { clock, ids, log, office } = shared;
  const section = shared.config().rpc;
  if (!section.enabled) return { routes: [] };
  const rpc = new Rpc(rpcSettings(section), { clock, ids, log });
  const creditCap = new CreditCap(office.store, clock);
  return {
    routes: cryptoRpcRoutes(
      {
        rpc,
        creditCap,
        idempotency,
        charge: shared.charge,
        windows: shared.windows,
        limitLog: shared.limitLog,
        clock,
        log,
        limits: () => shared.config().rpc,
        serviceName: shared.config().service.name,
      },
      largeBodies,
    ),
    onceAMinute: () => creditCap.prune(),
    close: () => rpc.close(),
  };
}

function rpcSettings(section: RpcSection): RpcSettings {
  const { enabled: _enabled, usdPerCredit, ...rest } = section;
  return { ...rest, nanoPerCredit: usdToNano(usdPerCredit) };
}
