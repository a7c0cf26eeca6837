/** What the routes of the operator's tools say of themselves. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { LivenessBody, ReadinessBody } from './schema.ts';

export const LIVE_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Is the process alive?',
  answers: [
    {
      status: 200,
      about: 'The process turns.',
      headers: ['no-store'],
      content: jsonContent(LivenessBody, { status: 'alive' }),
    },
  ],
};

const PARTS = {
  server: { ok: true, openRequests: 12, unhandledRejections: 0 },
  database: { ok: true },
  journal: { ok: true, waitingSettles: 0 },
  engines: { ok: true, models: 3, modelsReady: 3 },
};

export const READY_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Would a request be served now?',
  about: 'For load balancers: 503 while the server drains, the database is away, or no model runs.',
  answers: [
    {
      status: 200,
      about: 'Ready.',
      headers: ['no-store'],
      content: jsonContent(ReadinessBody, { status: 'ready', parts: PARTS }),
    },
    {
      status: 503,
      about: 'Not ready; the parts say why.',
      headers: ['no-store'],
      content: jsonContent(ReadinessBody, {
        status: 'draining',
        parts: { ...PARTS, server: { ok: false, openRequests: 3, unhandledRejections: 0 } },
      }),
    },
  ],
};

export const METRICS_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Metrics for Prometheus',
  about: 'Asks for a token when `metrics.token` is set; 404 when `metrics.enabled` is false.',
  answers: [
    {
      status: 200,
      about: 'Prometheus text format 0.0.4.',
      headers: ['no-store'],
      content: [
        {
          type: 'text/plain',
          schema: { type: 'string' },
          example:
            'farebox_requests_total{method="POST",route="/chat/completions",status="200"} 42\n',
        },
      ],
    },
  ],
  refusals: ['AUTHENTICATION_FAILED', 'NOT_FOUND'],
};
