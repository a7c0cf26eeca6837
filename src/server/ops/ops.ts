/**
 * Routes `/livez`, `/readyz`, `/metrics`, `HEAD /api/hello` (coding agents probe it), operator routes and
 * documentation. A server is ready if it is not draining, the database responds, and a model has an engine.
 * Responses never contain addresses.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Feature, Route } from '../../http/route.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { METRICS_CONTENT_TYPE } from '../../observability/metrics.ts';
import type { Payments } from '../../payments/payments.ts';
import type { FeatureParts } from '../feature-parts.ts';
import { type AdminParts, type RunningParts, adminRoutes } from './admin.ts';
import { booksRoutes } from './books.ts';
import { type ServerMetrics, withinASecond } from '../metrics.ts';
import type { HttpServer } from '../../http/http.ts';
import { type DocumentationParts, documentationRoutes } from './documentation.ts';
import {
  HELLO_DESCRIPTION,
  LIVE_DESCRIPTION,
  METRICS_DESCRIPTION,
  READY_DESCRIPTION,
  type ReadinessBody,
  type ReadinessParts,
} from './ops-schema.ts';

interface OpsParts extends AdminParts, DocumentationParts {
  readonly server: HttpServer;
  readonly metrics: ServerMetrics;
  readonly payments: Payments | undefined;
}

export function opsFeature(shared: RunningParts, parts: OpsParts): Feature {
  const { server, metrics } = parts;
  const operational = { method: 'GET', root: true, operational: true, auth: 'public' } as const;
  const routes: Route[] = [
    {
      ...operational,
      path: '/livez',
      describe: LIVE_DESCRIPTION,
      handle: (context) => send(context, 200, { status: 'alive' }),
    },
    {
      ...operational,
      path: '/readyz',
      describe: READY_DESCRIPTION,
      handle: async (context) => {
        const state = await readiness(shared, parts);
        const isReady = Object.values(state).every((part) => part === undefined || part.ok);
        const word = isReady ? 'ready' : 'not ready';
        const status = server.isClosing ? 'draining' : word;
        await send(context, isReady ? 200 : 503, {
          status,
          parts: state,
        } satisfies ReadinessBody);
      },
    },
    {
      ...operational,
      path: '/metrics',
      describe: METRICS_DESCRIPTION,
      handle: async (context) => {
        requireToken(shared, context);
        const page = Buffer.from(await metrics.page(server));
        context.set('cache-control', 'no-store');
        await context.bytes(200, METRICS_CONTENT_TYPE, page);
      },
    },
    {
      ...operational,
      method: 'HEAD',
      path: '/api/hello',
      describe: HELLO_DESCRIPTION,
      handle: async (context) => context.empty(204),
    },
  ];
  const admin = [...adminRoutes(shared, parts), ...booksRoutes(shared)];
  return { routes: [...routes, ...admin, ...documentationRoutes(parts)] };
}

function send(context: RequestContext, status: number, body: unknown): void | Promise<void> {
  context.set('cache-control', 'no-store');
  return context.json(status, body);
}

async function readiness(shared: FeatureParts, parts: OpsParts): Promise<ReadinessParts> {
  const { stores, clock, catalog, engines } = shared;
  const { server, metrics, payments, backups } = parts;
  const unavailable = stores.store.unavailable() !== undefined;
  const reply = unavailable
    ? undefined
    : await withinASecond(clock, stores.store.query('SELECT 1'));
  const models = catalog.models();
  const ready = models.filter((model) => engines.isReady(model.replicas)).length;
  // A server that sells only JSON-RPC is ready without models.
  const sellsNoModels = models.length === 0 && !shared.config.current.embedded.enabled;
  const credits =
    payments === undefined ? undefined : await withinASecond(clock, payments.table.counts());
  return {
    server: {
      ok: !server.isClosing,
      openRequests: server.open,
      unhandledRejections: metrics.unhandledRejections,
    },
    database: { ok: reply !== undefined },
    journal: { ok: true, waitingSettles: stores.ledger.holds.journaled },
    engines: { ok: ready > 0 || sellsNoModels, models: models.length, modelsReady: ready },
    backups: {
      ok: true,
      lastSuccessAt: backups.lastSuccessMs === undefined ? null : isoTime(backups.lastSuccessMs),
    },
    // Reversed payments do not affect requests, but the operator needs to see them.
    ...(credits === undefined ? {} : { payments: { ok: true, ...credits } }),
  };
}

function requireToken(shared: FeatureParts, context: RequestContext): void {
  const { enabled, token } = shared.config.current.metrics;
  if (!enabled) throw new Fault('NOT_FOUND');
  if (token === undefined) return;
  const given = /^Bearer (.+)$/i.exec(context.header('authorization') ?? '')?.[1] ?? '';
  if (timingSafeEqual(digest(given), digest(token))) return;
  throw new Fault('AUTHENTICATION_FAILED', {
    message: 'Send the token of `metrics.token` as "Authorization: Bearer <token>"',
    headers: { 'www-authenticate': 'Bearer' },
  });
}

/** Digests have equal length, as `timingSafeEqual` requires. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
