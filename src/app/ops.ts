/**
 * Operations, wired: `/livez`, `/readyz`, `/metrics` and the documentation of all routes.
 *
 * Alive says that the process turns. Ready says that a request would be served now: not draining,
 * the database answers, and a model has an engine. Both name parts and figures, never addresses.
 */
import { documentationRoutes } from '../api/routes/documentation/documentation.ts';
import { type OpsParts, opsRoutes } from '../api/routes/ops/ops.ts';
import type { Payments } from '../payments/payments.ts';
import { withPatience } from './monitor.ts';
import type { OwnDocument } from './own-document.ts';
import type { Shared, Subject } from './subject.ts';
import type { Watch } from './watch.ts';

export function opsSubject(
  shared: Shared,
  watch: Watch,
  document: OwnDocument,
  payments: Payments | undefined,
): Subject {
  const { office, clock, catalog, engines } = shared;
  const { monitor, traffic } = watch;
  const parts: OpsParts = {
    metrics: () => {
      const { enabled, token } = shared.config().metrics;
      return enabled ? { token } : undefined;
    },
    metricsPage: () => monitor.page(),
    readiness: async () => {
      const unavailable = office.store.unavailable() !== undefined;
      const answered = unavailable
        ? undefined
        : await withPatience(clock, office.store.query('SELECT 1'));
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
        journal: { ok: true, waitingSettles: office.ledger.journaled },
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
