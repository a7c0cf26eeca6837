/**
 * Operations, wired: `/livez`, `/readyz`, `/metrics` and the documentation of all routes.
 *
 * Alive says that the process turns. Ready says that a request would be served now: not draining,
 * the database answers, and a model has an engine. Both name parts and figures, never addresses.
 */
import { documentationRoutes } from './documentation/documentation.ts';
import { type OpsParts, opsRoutes } from './ops/ops.ts';
import type { Payments } from '../payments/payments.ts';
import { withPatience } from './metrics.ts';
import type { OwnDocument } from './own-document.ts';
import type { Feature } from '../http/feature.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { Observers } from './observers.ts';

export function opsFeature(
  shared: FeatureParts,
  observers: Observers,
  document: OwnDocument,
  payments: Payments | undefined,
): Feature {
  const { stores, clock, catalog, engines } = shared;
  const { monitor, traffic } = observers;
  const parts: OpsParts = {
    metrics: () => {
      const { enabled, token } = shared.config().metrics;
      return enabled ? { token } : undefined;
    },
    metricsPage: () => monitor.page(),
    readiness: async () => {
      const unavailable = stores.store.unavailable() !== undefined;
      const answered = unavailable
        ? undefined
        : await withPatience(clock, stores.store.query('SELECT 1'));
      const models = catalog.models();
      const ready = models.filter((model) => engines.isReady(model.replicas)).length;
      // A server that sells JSON-RPC alone has no models, and waits for none.
      const sellsNoModels = models.length === 0 && !shared.config().embedded.enabled;
      const credits =
        payments === undefined ? undefined : await withPatience(clock, payments.watchCounts());
      return {
        server: {
          ok: !traffic.isClosing,
          openRequests: traffic.open,
          unhandledRejections: monitor.unhandledRejections,
        },
        database: { ok: answered !== undefined },
        journal: { ok: true, waitingSettles: stores.ledger.holds.journaled },
        engines: { ok: ready > 0 || sellsNoModels, models: models.length, modelsReady: ready },
        // A chain that took money back stops no request; a person has to know of it.
        ...(credits === undefined ? {} : { payments: { ok: true, ...credits } }),
      };
    },
    isDraining: () => traffic.isClosing,
  };
  return {
    routes: [...opsRoutes(parts), ...documentationRoutes({ document: () => document.openApi() })],
  };
}
