/** Schemas and descriptions of routes for monitoring. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, textContent } from '../../http/describe.ts';

export const LivenessBody = z.strictObject({
  status: z.literal('alive').describe('Always `alive`.'),
});

const part = z.boolean().describe('True if this part can serve requests.');
const figure = z.int().min(0);

export const ReadinessParts = z.strictObject({
  server: z
    .strictObject({
      ok: part,
      openRequests: figure.describe('Running requests.'),
      unhandledRejections: figure.describe(
        'Unhandled promise rejections since the start; the log has their stacks.',
      ),
    })
    .describe('Process.'),
  database: z.strictObject({ ok: part }).describe('Database; `ok` if it can be read and written.'),
  journal: z
    .strictObject({
      ok: part,
      waitingSettles: figure.describe('Settles that wait for the database.'),
    })
    .describe('Settles on disk that the database has not stored yet.'),
  engines: z
    .strictObject({
      ok: part,
      models: figure.describe('Models on offer.'),
      modelsReady: figure.describe('Models with an available engine.'),
    })
    .describe('Engines.'),
  backups: z
    .strictObject({
      ok: part.describe('Always true: a missing backup does not stop requests.'),
      lastSuccessAt: z
        .string()
        .nullable()
        .describe('End of the last successful backup, ISO 8601; null if there is none.'),
    })
    .describe('Backups by schedule or command.'),
  payments: z
    .strictObject({
      ok: part,
      watched: figure.describe('Credited payments that are not final on the chain.'),
      vanished: figure.describe('Credited payments that are missing on the chain.'),
      reversed: figure.describe('Reversed payments since the beginning.'),
    })
    .optional()
    .describe('Wallet payments; only with payment rails.'),
});
export type ReadinessParts = z.infer<typeof ReadinessParts>;

export const ReadinessBody = z.strictObject({
  status: z
    .enum(['ready', 'not ready', 'draining'])
    .describe('`ready` if the server should receive requests; `draining` during a shutdown.'),
  parts: ReadinessParts.describe('State of each part.'),
});
export type ReadinessBody = z.infer<typeof ReadinessBody>;

export const LIVE_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Check that the process runs',
  response: jsonResponse('The process runs.', LivenessBody, { status: 'alive' }, 'no-store'),
};

const PARTS = {
  server: { ok: true, openRequests: 12, unhandledRejections: 0 },
  database: { ok: true },
  journal: { ok: true, waitingSettles: 0 },
  engines: { ok: true, models: 3, modelsReady: 3 },
  backups: { ok: true, lastSuccessAt: '2026-11-21T03:55:04.000Z' },
};

export const READY_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Check that requests can be served',
  about:
    'For load balancers: 503 while the server drains, the database is unreachable, or no model is available.',
  response: [
    jsonResponse('Ready.', ReadinessBody, { status: 'ready', parts: PARTS }, 'no-store'),
    {
      ...jsonResponse(
        'Not ready; `parts` has the reason.',
        ReadinessBody,
        {
          status: 'draining',
          parts: { ...PARTS, server: { ok: false, openRequests: 3, unhandledRejections: 0 } },
        },
        'no-store',
      ),
      status: 503,
    },
  ],
};

export const METRICS_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Metrics for Prometheus',
  about: 'Needs a bearer token if `metrics.token` is set; 404 if `metrics.enabled` is false.',
  response: {
    status: 200,
    about: 'Prometheus text format 0.0.4.',
    headers: ['no-store'],
    content: [
      textContent(
        'text/plain',
        'farebox_requests_total{method="POST",route="/chat/completions",status="200"} 42\n',
      ),
    ],
  },
  refusals: ['AUTHENTICATION_FAILED', 'NOT_FOUND'],
};

export const HELLO_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Check that a server exists',
  about: 'Coding agents send this request first, without credentials.',
  response: { status: 204, about: 'The server exists.' },
};
