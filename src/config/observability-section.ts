/** What the server tells its operator: log, metrics, traces. */
import { z } from 'zod';

import { flag, httpUrl, secret } from './setting-kinds.ts';

export const LogSection = z
  .strictObject({
    level: z
      .enum(['debug', 'info', 'warn', 'error', 'silent'])
      .default('info')
      .describe('Least level that is written.'),
    format: z
      .enum(['auto', 'json', 'pretty'])
      .default('auto')
      .describe('`auto` is `pretty` on a terminal and `json` elsewhere.'),
  })
  .prefault({});

export const MetricsSection = z
  .strictObject({
    enabled: flag(true).describe('Serve `/metrics` for Prometheus.'),
    token: secret().optional().describe('Bearer token that `/metrics` asks for. Default: none.'),
  })
  .prefault({});

export const TracingSection = z
  .strictObject({
    endpoint: httpUrl()
      .optional()
      .describe('OTLP/HTTP collector, for example `http://127.0.0.1:4318`. Default: no traces.'),
    headers: z
      .record(z.string(), z.string())
      .default({})
      .meta({ secret: true })
      .describe('Further headers for the collector.'),
    sampleRatio: z
      .number()
      .min(0)
      .max(1)
      .default(1)
      .describe('Share of requests that are traced, 0 to 1.'),
  })
  .prefault({});
