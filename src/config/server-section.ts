/** The sections about the server: service, listen, database, cluster, data, http, mcp, retention, log, metrics, tracing. */
import * as z from 'zod';

import { Text, baseUrl, count, flag, httpUrl, secret, whole, group } from './setting-kinds.ts';

/** Long enough for a brand, short enough for header names. */
const SERVICE_NAME_CHARACTERS = 20;

const ServiceName = z
  .string()
  .regex(
    new RegExp(`^[a-z][a-z0-9]{0,${SERVICE_NAME_CHARACTERS - 1}}$`),
    `Must be 1 to ${SERVICE_NAME_CHARACTERS} lowercase letters or digits and start with a letter`,
  );

export const ServiceSection = group({
  name: ServiceName.default('svc').describe(
    'Short name of the service, used in header names (`x-svc-…`), `svc_parameters`, key prefixes (`SVC_INFERENCE_KEY_`) and the search tool.',
  ),
  title: Text.max(80).default('Farebox').describe('Display name in pages.'),
  publicUrl: httpUrl()
    .optional()
    .describe(
      'Public origin, for example `https://api.example.com`. Wallets sign it in sign-ins and payments. Default: the listen address.',
    ),
  docsUrl: httpUrl()
    .optional()
    .describe('URL of the documentation in error responses. Default: `/docs`.'),
  systemPrompt: z
    .string()
    .max(20_000)
    .optional()
    .describe('System prompt of the service, placed before the one of the caller. Default: none.'),
  timestampHeader: flag(false).describe(
    'Send the header `x-svc-timestamp` (server time) in every response.',
  ),
});

export const ListenSection = group({
  host: Text.default('127.0.0.1').describe(
    'Address to listen on. The variable `HOST` takes precedence.',
  ),
  port: z
    .number()
    .int()
    .min(0)
    .max(65_535)
    .default(8402)
    .describe('TCP port. The variable `PORT` takes precedence.'),
});

const DATABASE_URL = /^(sqlite:(?!:memory:).+|postgres(ql)?:\/\/.+)$/;

export const DatabaseSection = z
  .string()
  .regex(
    DATABASE_URL,
    'Must be sqlite:<file> or postgres://…, and not in memory, because charges must be on a disk',
  )
  .meta({ secret: true })
  .optional()
  .describe(
    '`sqlite:<file>` or `postgres://user:password@host/database`. Default: `sqlite:` with `farebox.db` in the data folder.',
  );

export const DataSection = Text.default('./data').describe(
  'Folder of the database, keys, downloaded models and media. The variable `FAREBOX_DATA` takes precedence.',
);

export const HttpSection = group({
  trustProxy: z
    .union([z.boolean(), z.array(Text)])
    .default(false)
    .describe(
      'Read the address of the caller from `X-Forwarded-For`. `true` trusts the proxy that connects; a list of addresses (CIDR) trusts these proxies.',
    ),
  countryHeader: Text.optional().describe(
    'Header in which a trusted proxy (`trustProxy`) sends the country of the caller, such as `CF-IPCountry`. It enforces `models[].regionRestrictions`; requests without it cannot use restricted models.',
  ),
  corsOrigins: z
    .array(Text)
    .default(['*'])
    .describe('Web origins that may call the API from a browser; `*` allows all.'),
  drainSeconds: z
    .number()
    .min(0)
    .max(3_600)
    .default(30)
    .describe('Time after SIGTERM in which running requests may finish, in seconds.'),
  jsonLimitBytes: whole(35_000_000, 1_000_000_000).describe(
    'Maximum size of a JSON body after decompression, in bytes; larger ones get 413. Base64 makes a file a third larger.',
  ),
  fileLimitBytes: whole(25_000_000, 1_000_000_000).describe(
    'Maximum size of an uploaded file, and of a file or image in a chat request, in bytes; larger ones get 413. The section `content` can set lower limits.',
  ),
  bodiesMb: count()
    .optional()
    .describe(
      'Memory for bodies of running requests and the media that chats and image requests fetch, in MB; small bodies do not count. Requests above it get 503, or 429 if one caller uses more than half. Default: an eighth of the memory of the process, at least 256.',
    ),
  requestTimeoutSeconds: whole(60).describe('Timeout for receiving a request, in seconds.'),
  writeTimeoutSeconds: whole(60).describe(
    'Maximum time in which a caller reads nothing of a response, in seconds. Then the connection is closed and the produced output is charged.',
  ),
  maxConnections: whole(10_000).describe(
    'Maximum number of connections; further ones are closed. Without `trustProxy`, the last quarter is reserved for addresses that have less than a quarter of all connections.',
  ),
});

export const McpSection = group({
  enabled: z.boolean().default(true).describe('Serve `/mcp`.'),
});

const POSTGRES_URL = /^postgres(?:ql)?:\/\//;

export const ClusterSection = group({
  workers: whole(1, 256).describe(
    'Processes of `farebox serve` on this machine. More than 1 needs PostgreSQL.',
  ),
  connections: whole(8, 1_000).describe(
    'Maximum number of connections of one process to PostgreSQL.',
  ),
  directDatabase: z
    .string()
    .regex(POSTGRES_URL, 'Must be a postgres:// URL')
    .optional()
    .describe(
      'URL of the same PostgreSQL without the pooler, if the pooler does not forward notifications. List the servers in the same order. Without notifications every request reads its balance from the database.',
    ),
  readReplicas: z
    .array(z.string().regex(POSTGRES_URL, 'Must be a postgres:// URL'))
    .max(16)
    .default([])
    .describe('URLs of read replicas, from which lists and usage totals are read.'),
  replyTimeoutSeconds: z
    .number()
    .min(0.2)
    .max(60)
    .default(5)
    .describe('Timeout of a statement, in seconds. After it the connection counts as lost.'),
  deadAfterSeconds: z
    .number()
    .min(1)
    .max(600)
    .default(30)
    .describe(
      'Time without a heartbeat after which a process counts as dead and its holds are released, in seconds.',
    ),
});

export const RetentionSection = group({
  usageDays: days(400).describe('Receipts (usage records). Totals per day are kept.'),
  postingDays: days(800).describe(
    'Postings. Their totals are kept, so that the audit still proves every balance.',
  ),
  failureDays: days(30).describe('Records of failed and retried requests, with their tries.'),
  limitLogDays: days(30).describe('Log of requests that a limit has rejected.'),
}).describe('Days until rows are deleted; 0 keeps them forever.');

function days(value: number) {
  return z.number().int().min(0).max(36_500).default(value);
}

export const LogSection = group({
  level: z
    .enum(['debug', 'info', 'warn', 'error', 'silent'])
    .default('info')
    .describe('Lowest level that is logged.'),
  format: z
    .enum(['auto', 'json', 'pretty'])
    .default('auto')
    .describe('`auto` is `pretty` on a terminal and `json` otherwise. A change needs a restart.'),
  failedPrompts: flag(false).describe(
    'Store the beginning of the body of each failed request, at most 8 KiB, with its record: it contains the prompt. By default prompts are never stored.',
  ),
});

export const MetricsSection = group({
  enabled: flag(true).describe('Serve `/metrics` for Prometheus.'),
  token: secret().optional().describe('Bearer token that `/metrics` requires. Default: none.'),
});

export const TracingSection = group({
  endpoint: baseUrl()
    .optional()
    .describe(
      'URL of an OTLP/HTTP collector, for example `http://127.0.0.1:4318`. Default: no traces.',
    ),
  headers: z
    .record(z.string(), z.string())
    .default({})
    .meta({ secret: true })
    .describe('Additional headers of requests to the collector.'),
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of requests that are traced, from 0 to 1.'),
});
