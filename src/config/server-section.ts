/**
 * What the server is and where it listens: service name and public address, listen address,
 * database, data folder, and how HTTP is spoken to the outside.
 */
import { z } from 'zod';

import { Text, flag, httpUrl, whole } from './setting-kinds.ts';
import { ServiceName } from './service-name.ts';

export const ServiceSection = z
  .strictObject({
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
  })
  .prefault({});

export const ListenSection = z
  .strictObject({
    host: Text.default('127.0.0.1').describe('Address to listen on; `HOST` wins.'),
    port: z.number().int().min(0).max(65_535).default(8402).describe('TCP port; `PORT` wins.'),
  })
  .prefault({});

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

export const HttpSection = z
  .strictObject({
    trustProxy: z
      .union([z.boolean(), z.array(Text)])
      .default(false)
      .describe(
        'Take the caller address from `X-Forwarded-For`: `true` believes the one proxy that connects, a list of addresses (CIDR) believes each proxy on the way that is in it.',
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
    jsonLimitBytes: whole(35_000_000).describe('Largest JSON body; larger ones get 413.'),
    fileLimitBytes: whole(25_000_000).describe(
      'Largest uploaded file, and largest file or image inside a chat request.',
    ),
    requestTimeoutSeconds: whole(60).describe('How long a caller may take to send its request.'),
    writeTimeoutSeconds: whole(60).describe(
      'How long a caller may read nothing of its answer: after that its connection is closed, and what was produced is charged.',
    ),
    maxConnections: whole(10_000).describe('Open connections before new ones wait.'),
  })
  .prefault({});
