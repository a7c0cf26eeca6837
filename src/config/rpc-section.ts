/**
 * The `rpc` section: the JSON-RPC proxy, its nodes, its price and its limits. Without a line of it
 * the proxy works on public nodes; a node of the operator takes the place of the public ones of
 * its network.
 */
import { z } from 'zod';
import { group, routeSettings, Text } from './setting-kinds.ts';

/** One node, as the operator names it. */
const Upstream = z.strictObject({
  /** http(s) address, key and spec version included; it is never logged. */
  url: z.url({ protocol: /^https?$/ }),
  /** Stands in logs in place of the address; `<network>#<number>` when absent. */
  name: Text.max(64).optional(),
  headers: z.record(z.string(), z.string()).optional(),
  ...routeSettings(),
  /** `bundler` serves the ERC-4337 methods. */
  kind: z.enum(['node', 'bundler']).default('node'),
  weight: z.number().positive().max(1_000).default(1),
  maxBatch: z.int().min(1).max(100).default(100),
  /** Calls per second, items of a batch counted; 0 is unlimited. */
  ratePerSecond: z.number().min(0).default(0),
  timeoutMs: z.int().min(100).max(120_000).default(30_000),
  maxRequestBytes: z
    .int()
    .min(65_536)
    .optional()
    .describe('Largest request that the node takes; without it, learnt from its 413s.'),
});

export const RpcSection = group({
  enabled: z.boolean().default(true),
  networks: z
    .record(z.string(), z.strictObject({ upstreams: z.array(Upstream).max(20) }))
    .default({}),
  publicNodes: z.boolean().default(true),
  /** Optional methods to allow, by name. */
  allow: z.array(z.string()).default([]),
  /** Price of one credit; at most nine decimals, so that a credit is a whole number of nano-USD. */
  usdPerCredit: z.union([z.string(), z.number()]).default('6.25e-7'),
  creditsPerDay: z.int().min(1).default(10_000_000),
  requestsPerMinute: z.int().min(1).default(100),
  staffRequestsPerMinute: z.int().min(1).default(1_000),
  mergeHeadReads: z.boolean().default(true),
  /** 0 turns the cache of chain constants and of blocks named by hash off. */
  cacheBytes: z.int().min(0).default(16_777_216),
  totalTimeoutMs: z.int().min(100).max(300_000).default(45_000),
  maxReplyBytes: z.int().min(1_048_576).default(268_435_456),
  maxBatchReplyBytes: z.int().min(1_048_576).default(67_108_864),
  /** What all node replies in memory may take together. */
  replyMemoryBytes: z.int().min(1_048_576).default(268_435_456),
});

export type RpcSection = z.infer<typeof RpcSection>;
