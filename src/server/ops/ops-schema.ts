/** What the routes of the operator's tools answer, and what they say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse, textContent } from '../../http/describe.ts';

export const LivenessBody = z.strictObject({
  status: z.literal('alive').describe('The process runs.'),
});

const part = z.boolean().describe('Whether this part lets requests through');
const figure = z.int().min(0);

export const ReadinessParts = z.strictObject({
  server: z
    .strictObject({
      ok: part,
      openRequests: figure.describe('Requests that it works on now.'),
      unhandledRejections: figure.describe(
        'Failures that a library left behind since the start; the log has their stacks',
      ),
    })
    .describe('The process that answers.'),
  database: z.strictObject({ ok: part }).describe('Whether it can be read and written.'),
  journal: z
    .strictObject({
      ok: part,
      waitingSettles: figure.describe('Settles that wait for the database to come back'),
    })
    .describe('Settles on disk that are not in the database yet.'),
  engines: z
    .strictObject({
      ok: part,
      models: figure.describe('Models that are offered.'),
      modelsReady: figure.describe('Offered models with at least one engine that is ready.'),
    })
    .describe('What runs the models.'),
  payments: z
    .strictObject({
      ok: part,
      watched: figure.describe('Credits of wallet payments that the chain could still undo'),
      vanished: figure.describe('Those of them that are not on the chain now'),
      reversed: figure.describe('Credits that were taken back, since the beginning'),
    })
    .optional()
    .describe('With payment rails alone'),
});
export type ReadinessParts = z.infer<typeof ReadinessParts>;

export const ReadinessBody = z.strictObject({
  status: z
    .enum(['ready', 'not ready', 'draining'])
    .describe('Whether requests should come here; `draining` while it shuts down.'),
  parts: ReadinessParts.describe('What the word rests on.'),
});
export type ReadinessBody = z.infer<typeof ReadinessBody>;

export const LIVE_DESCRIPTION: RouteDescription = {
  tag: 'Operations',
  summary: 'Is the process alive?',
  response: jsonResponse('The process turns.', LivenessBody, { status: 'alive' }, 'no-store'),
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
  response: [
    jsonResponse('Ready.', ReadinessBody, { status: 'ready', parts: PARTS }, 'no-store'),
    {
      ...jsonResponse(
        'Not ready; the parts say why.',
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
  about: 'Asks for a token when `metrics.token` is set; 404 when `metrics.enabled` is false.',
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
  summary: 'Is there a server at this address?',
  about: 'Coding agents ask so before their first request, without credentials. An empty answer.',
  response: { status: 204, about: 'There is.' },
};
