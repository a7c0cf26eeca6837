/** `GET /livez`, `GET /readyz`, `GET /metrics`: for load balancers and Prometheus. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Fault } from '../../core/faults.ts';
import { METRICS_CONTENT_TYPE } from '../../observability/metrics.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { Route } from '../../http/route.ts';
import { LIVE_DESCRIPTION, METRICS_DESCRIPTION, READY_DESCRIPTION } from './describe.ts';
import type { ReadinessBody, ReadinessParts } from './schema.ts';

export interface OpsParts {
  /** `undefined` when the page is turned off. */
  readonly metrics: () => { readonly token: string | undefined } | undefined;
  readonly metricsPage: () => Promise<string>;
  readonly readiness: () => Promise<ReadinessParts>;
  readonly isDraining: () => boolean;
}

export function opsRoutes(parts: OpsParts): Route[] {
  return [
    {
      method: 'GET',
      path: '/livez',
      root: true,
      operational: true,
      auth: 'public',
      describe: LIVE_DESCRIPTION,
      handle: (context) => answer(context, 200, { status: 'alive' }),
    },
    {
      method: 'GET',
      path: '/readyz',
      root: true,
      operational: true,
      auth: 'public',
      describe: READY_DESCRIPTION,
      handle: async (context) => {
        const state = await parts.readiness();
        const isReady = Object.values(state).every((part) => part === undefined || part.ok);
        const body: ReadinessBody = { status: statusWord(parts, isReady), parts: state };
        await answer(context, isReady ? 200 : 503, body);
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      root: true,
      operational: true,
      auth: 'public',
      describe: METRICS_DESCRIPTION,
      handle: async (context) => {
        requireToken(parts, context);
        context.set('cache-control', 'no-store');
        await context.bytes(200, METRICS_CONTENT_TYPE, Buffer.from(await parts.metricsPage()));
      },
    },
  ];
}

function answer(context: RequestContext, status: number, body: unknown): Promise<void> {
  context.set('cache-control', 'no-store');
  return context.json(status, body);
}

function statusWord(parts: OpsParts, isReady: boolean): ReadinessBody['status'] {
  if (parts.isDraining()) return 'draining';
  return isReady ? 'ready' : 'not ready';
}

function requireToken(parts: OpsParts, context: RequestContext): void {
  const settings = parts.metrics();
  if (settings === undefined) throw new Fault('NOT_FOUND');
  if (settings.token === undefined) return;
  const given = /^Bearer (.+)$/i.exec(context.header('authorization') ?? '')?.[1] ?? '';
  if (timingSafeEqual(digest(given), digest(settings.token))) return;
  throw new Fault('AUTHENTICATION_FAILED', {
    message: 'The metrics need the token of the configuration as "Authorization: Bearer <token>"',
    headers: { 'www-authenticate': 'Bearer' },
  });
}

/** Of equal length, whatever was given. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
