/**
 * What the server is and where it listens: service name and public address, listen address,
 * database and who shares it, data folder, how HTTP is spoken to the outside, and what the operator
 * is told: log, metrics, traces.
 */
import { z } from 'zod';

import { Text, baseUrl, count, flag, httpUrl, secret, whole, group } from './setting-kinds.ts';

/** Long enough for a brand, short enough for header names. */
const SERVICE_NAME_CHARACTERS = 20;

/** `svc` by default; the public words that begin with it are joined where they are sent. */
const ServiceName = z
  .string()
  .regex(
    new RegExp(`^[a-z][a-z0-9]{0,${SERVICE_NAME_CHARACTERS - 1}}$`),
    `Must be 1 to ${SERVICE_NAME_CHARACTERS} lowercase letters or digits and start with a letter`,
  );

export const ServiceSection = group({
  name: ServiceName.default('svc').describe(
    'Short name of the service. Header names (`x-svc-…`), `svc_parameters`, key prefixes (`SVC_INFERENCE_KEY_`) and the search tool follow it.',
  ),
  title: Text.max(80).default('Farebox').describe('Name for people, in pages.'),
  publicUrl: httpUrl()
    .optional()
    .describe(
      'Public origin, for example `https://api.example.com`. Wallet sign-in and payments are bound to it. Default: the listen address.',
    ),
  docsUrl: httpUrl().optional().describe('Where error texts send people. Default: `/docs`.'),
  systemPrompt: z
    .string()
    .max(20_000)
    .optional()
    .describe("The service's own system prompt, put before the caller's. Default: none."),
  timestampHeader: flag(false).describe(
    'Send `x-svc-timestamp`, the server time, with every answer.',
  ),
});

export const ListenSection = group({
  host: Text.default('127.0.0.1').describe('Address to listen on; `HOST` wins.'),
  port: z.number().int().min(0).max(65_535).default(8402).describe('TCP port; `PORT` wins.'),
});

const DATABASE_URL = /^(sqlite:.+|postgres(ql)?:\/\/.+)$/;

export const DatabaseSection = z
  .string()
  .regex(DATABASE_URL, 'Must start with sqlite: and a file, or postgres://')
  .meta({ secret: true })
  .optional()
  .describe(
    '`sqlite:<file>` or `postgres://user:password@host/database`. Default: `sqlite:` with `farebox.db` in the data folder.',
  );

export const DataSection = Text.default('./data').describe(
  'Data folder: database, keys, downloaded models, media. `FAREBOX_DATA` wins.',
);

export const HttpSection = group({
  trustProxy: z
    .union([z.boolean(), z.array(Text)])
    .default(false)
    .describe(
      'Take the caller address from `X-Forwarded-For`: `true` believes the one proxy that connects, a list of addresses (CIDR) believes each proxy on the way that is in it.',
    ),
  countryHeader: Text.optional().describe(
    'Header in which a trusted proxy (`trustProxy`) says the country of the caller, such as `CF-IPCountry`; `models[].regionRestrictions` are enforced by it, and a request without it is not served with a restricted model.',
  ),
  corsOrigins: z
    .array(Text)
    .default(['*'])
    .describe('Origins that browsers may call from; `*` for all.'),
  drainSeconds: z
    .number()
    .min(0)
    .max(3_600)
    .default(30)
    .describe('How long open answers may go on after SIGTERM.'),
  jsonLimitBytes: whole(35_000_000, 1_000_000_000).describe(
    'Largest JSON body; larger ones get 413. A file is a third larger as base64. A compressed body (`Content-Encoding`) counts as what it becomes.',
  ),
  fileLimitBytes: whole(25_000_000, 1_000_000_000).describe(
    'Largest uploaded file, and largest file or image inside a chat request: 413. The `content` section may ask for less.',
  ),
  bodiesMb: count()
    .optional()
    .describe(
      'Memory for the bodies of running requests, of which one caller gets half: above it a body is a 429 for its caller, or a 503. Bodies of some kilobytes are not counted. Default: an eighth of the memory that the process may use, 256 at least.',
    ),
  requestTimeoutSeconds: whole(60).describe('How long a caller may take to send its request.'),
  writeTimeoutSeconds: whole(60).describe(
    'How long a caller may read nothing of its answer: after that its connection is closed, and what was produced is charged.',
  ),
  maxConnections: whole(10_000).describe(
    'Open connections; further ones are closed. The last quarter is for addresses that have less than a quarter of them, unless `trustProxy` says that they come from a proxy.',
  ),
});

export const McpSection = group({
  enabled: z.boolean().default(true).describe('Serve the tools of `/mcp`.'),
});

const POSTGRES_URL = /^postgres(?:ql)?:\/\//;

export const ClusterSection = group({
  workers: whole(1, 256).describe(
    'Processes of `farebox serve` on this machine; more than 1 needs PostgreSQL.',
  ),
  connections: whole(8, 1_000).describe('Connections of one process to PostgreSQL.'),
  directDatabase: z
    .string()
    .regex(POSTGRES_URL, 'Must be a postgres:// address')
    .optional()
    .describe(
      'The same PostgreSQL past a pooler that lets no notifications through, its servers in the same order. Without notifications every request asks the database for its money.',
    ),
  readReplicas: z
    .array(z.string().regex(POSTGRES_URL, 'Must be a postgres:// address'))
    .max(16)
    .default([])
    .describe('Servers that follow the database; lists and sums of usage are read from them.'),
  replyTimeoutSeconds: z
    .number()
    .min(0.2)
    .max(60)
    .default(5)
    .describe('A reply of PostgreSQL that takes longer means that it is lost.'),
  deadAfterSeconds: z
    .number()
    .min(1)
    .max(600)
    .default(30)
    .describe('A process that gave no sign for so long is dead; its holds are given back.'),
});

export const RetentionSection = group({
  usageDays: days(400).describe('Receipts (usage records). Day totals are kept.'),
  postingDays: days(800).describe('Postings. Their sums are carried, so balances stay proven.'),
  limitLogDays: days(30).describe('The log of refusals by a limit.'),
}).describe('Days that rows are kept; 0 keeps them for ever.');

function days(value: number) {
  return z.number().int().min(0).max(36_500).default(value);
}

export const LogSection = group({
  level: z
    .enum(['debug', 'info', 'warn', 'error', 'silent'])
    .default('info')
    .describe('Least level that is written.'),
  format: z
    .enum(['auto', 'json', 'pretty'])
    .default('auto')
    .describe('`auto` is `pretty` on a terminal and `json` elsewhere.'),
});

export const MetricsSection = group({
  enabled: flag(true).describe('Serve `/metrics` for Prometheus.'),
  token: secret().optional().describe('Bearer token that `/metrics` asks for. Default: none.'),
});

export const TracingSection = group({
  endpoint: baseUrl()
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
});
