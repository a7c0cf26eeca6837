/**
 * The `rpc` section: nodes, price and limits of the JSON-RPC proxy. By default the proxy uses public nodes;
 * a configured node replaces the public ones of its network.
 */
import * as z from 'zod';
import { group, routeSettings, Text, usd } from './setting-kinds.ts';

const Upstream = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .describe('URL of the node, with its access key and API version. It is never logged.'),
  name: Text.max(64)
    .optional()
    .describe('Name of the node in logs. Default: `<network>#<number>`.'),
  headers: z
    .record(z.string(), z.string())
    .optional()
    .meta({ secret: true })
    .describe('Additional headers of every request to the node.'),
  ...routeSettings(),
  kind: z
    .enum(['node', 'bundler'])
    .default('node')
    .describe('`bundler` serves the ERC-4337 methods.'),
  weight: z.number().positive().max(1_000).default(1).describe('Share of the calls.'),
  maxBatch: z.int().min(1).max(100).default(100).describe('Maximum number of calls in a batch.'),
  ratePerSecond: z
    .number()
    .min(0)
    .default(0)
    .describe('Maximum calls per second; each item of a batch counts. 0 is unlimited.'),
  timeoutMs: z
    .int()
    .min(100)
    .max(120_000)
    .default(30_000)
    .describe('Timeout of a request to the node, in ms.'),
  maxRequestBytes: z
    .int()
    .min(65_536)
    .optional()
    .describe('Maximum size of a request to the node, in bytes. Default: learned from its 413s.'),
});

export const RpcSection = group({
  enabled: z.boolean().default(true).describe('Serve `/crypto/rpc`.'),
  networks: z
    .record(
      z.string(),
      z.strictObject({
        upstreams: z.array(Upstream).max(20).describe('Your nodes of this network.'),
        headDistance: z
          .int()
          .min(0)
          .max(100_000)
          .optional()
          .describe(
            'Blocks by which the newest blocks of nodes may differ. A node that is further ahead of most nodes is not used. Default: by network, 6 on Ethereum.',
          ),
      }),
    )
    .default({}),
  publicNodes: z
    .boolean()
    .default(true)
    .describe('Use public nodes for networks without a node of your own.'),
  allow: z.array(z.string()).default([]).describe('Names of optional methods to allow.'),
  usdPerCredit: usd('6.25e-7').describe(
    'Price of one credit, in USD with at most 9 decimals. Default: 6.25e-7.',
  ),
  creditsPerDay: z
    .int()
    .min(1)
    .default(10_000_000)
    .describe('Maximum credits of one caller in 24 hours.'),
  requestsPerMinute: z.int().min(1).default(100).describe('Requests per minute and caller.'),
  staffRequestsPerMinute: z
    .int()
    .min(1)
    .default(1_000)
    .describe('Requests per minute and caller on the staff plan.'),
  mergeHeadReads: z
    .boolean()
    .default(true)
    .describe('Send identical concurrent reads of the latest block to a node only once.'),
  hedgeShare: z
    .number()
    .min(0)
    .max(1)
    .default(0.05)
    .describe(
      'Maximum share of reads that are also sent to a second node because the first one is slower than usual; 0 disables it.',
    ),
  cacheBytes: z
    .int()
    .min(0)
    .default(16_777_216)
    .describe(
      'Size of the cache of chain constants and of blocks by hash, in bytes; 0 disables it.',
    ),
  totalTimeoutMs: z
    .int()
    .min(100)
    .max(300_000)
    .default(45_000)
    .describe('Timeout of a request over all attempts, in ms.'),
  maxReplyBytes: z
    .int()
    .min(1_048_576)
    .default(268_435_456)
    .describe('Maximum size of the reply to a single call, in bytes.'),
  maxBatchReplyBytes: z
    .int()
    .min(1_048_576)
    .default(67_108_864)
    .describe('Maximum size of the reply to a batch, in bytes.'),
  replyMemoryBytes: z
    .int()
    .min(1_048_576)
    .default(268_435_456)
    .describe('Memory for the replies of all requests, in bytes.'),
});

export type RpcSection = z.infer<typeof RpcSection>;
