/**
 * The blockchain JSON-RPC proxy: admit a body, run it against the nodes of its network, say what
 * it costs. It knows no HTTP server, no account and no ledger.
 *
 * A flow calls `admit` (400 or the credits to hold), then `run` (the answer with the credits due,
 * or a Fault after which nothing is due), and settles. Params, raw transactions and node addresses
 * are never logged.
 */
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import { admissionFingerprint, admitBody } from './admission.ts';
import type { Admission, BodyScan } from './admission.ts';
import { AnswerCache } from './answer-cache.ts';
import type { RpcAnswer } from './answer.ts';
import type { RunContext } from './ask.ts';
import { creditsToNano, NANO_PER_CREDIT } from './billing.ts';
import { createCatalogue } from './catalogue.ts';
import type { Catalogue, Network, NodeKind } from './catalogue.ts';
import { ByteBudget, nodeClient } from './node-client.ts';
import { RpcRun } from './run.ts';
import { UpstreamGroup } from './upstream-group.ts';
import { Upstream } from './upstream.ts';

export { holdLastBytes } from './answer.ts';
export type { RpcAnswer } from './answer.ts';
export { type Admission, type BodyScan, MAX_BATCH_ITEMS } from './admission.ts';
export { formatRpcCost } from './billing.ts';
export { CreditCap } from './credit-cap.ts';
export type { CreditReservation } from './credit-cap.ts';
export { RPC_MIGRATIONS } from './migrations.ts';

export interface RpcUpstreamSettings {
  readonly url: string;
  readonly name?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly kind?: NodeKind | undefined;
  readonly weight?: number | undefined;
  readonly maxBatch?: number | undefined;
  readonly ratePerSecond?: number | undefined;
  readonly timeoutMs?: number | undefined;
  /** Largest request that the node takes; learnt from its refusals when absent. */
  readonly maxRequestBytes?: number | undefined;
}

/** All optional but `networks`: what is left out has the default of the configuration page. */
export interface RpcSettings {
  /** The operator's nodes by network; they take the place of the public ones of the same kind. */
  readonly networks: Readonly<
    Record<string, { readonly upstreams: readonly RpcUpstreamSettings[] }>
  >;
  /** Whether networks without nodes of the operator use public ones. */
  readonly publicNodes?: boolean;
  /** Optional methods to allow. */
  readonly allow?: readonly string[];
  readonly nanoPerCredit?: bigint;
  readonly mergeHeadReads?: boolean;
  /** 0 turns the cache of constants and blocks by hash off. */
  readonly cacheBytes?: number;
  /** Longest time that a request may take over all nodes that it is sent to. */
  readonly totalTimeoutMs?: number;
  readonly maxReplyBytes?: number;
  readonly maxBatchReplyBytes?: number;
  /** What all replies in memory may take together. */
  readonly replyMemoryBytes?: number;
}

export interface RpcDependencies {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface RunOptions {
  /** Whose request it is: the same caller stays with the same node for a few seconds. */
  readonly caller: string;
  /** Aborts when the caller left; the work that a node has begun is then due in full. */
  readonly signal?: AbortSignal | undefined;
}

const MEGABYTE = 1_048_576;
const DEFAULT_CACHE_BYTES = 16 * MEGABYTE;
const DEFAULT_REPLY_BYTES = 256 * MEGABYTE;
const DEFAULT_BATCH_REPLY_BYTES = 64 * MEGABYTE;
const DEFAULT_REPLY_MEMORY_BYTES = 256 * MEGABYTE;
/** Service rule: 30 seconds for one node; a little more for all of them together. */
const ATTEMPT_TIMEOUT_MS = 30_000;
const TOTAL_TIMEOUT_MS = 45_000;
/** Public nodes are shared: small batches, few calls. */
const PUBLIC_MAX_BATCH = 10;
const PUBLIC_RATE_PER_SECOND = 10;
const OWN_MAX_BATCH = 100;
/** One caller holds at most as many as it leaves free. */
const CONNECTIONS_PER_UPSTREAM = 256;
/** Beyond those of the callers: for questions of our own. */
const OWN_CONNECTIONS = 2;

export class Rpc {
  /** Names the price of a credit in usage records. */
  readonly priceVersion: string;
  readonly #nanoPerCredit: bigint;
  readonly #settings: RpcSettings;
  readonly #dependencies: RpcDependencies;
  readonly #catalogue: Catalogue;
  readonly #cache: AnswerCache;
  readonly #budget: ByteBudget;
  readonly #groups = new Map<string, UpstreamGroup>();

  constructor(settings: RpcSettings, dependencies: RpcDependencies) {
    this.#settings = settings;
    this.#nanoPerCredit = settings.nanoPerCredit ?? NANO_PER_CREDIT;
    this.priceVersion = `rpc-${this.#nanoPerCredit}`;
    this.#dependencies = dependencies;
    this.#catalogue = createCatalogue(settings.allow ?? []);
    this.#budget = new ByteBudget(settings.replyMemoryBytes ?? DEFAULT_REPLY_MEMORY_BYTES);
    this.#cache = new AnswerCache(
      {
        isMerging: settings.mergeHeadReads ?? true,
        maxBytes: settings.cacheBytes ?? DEFAULT_CACHE_BYTES,
      },
      dependencies.clock,
    );
  }

  /** The slugs that a path may name, sorted. */
  networks(): readonly string[] {
    return this.#catalogue.slugs;
  }

  /** Admits a body for a network, or throws a Fault with status 400; nothing is sent yet. */
  admit(slug: string, body: Buffer, scanned?: BodyScan): Admission {
    return admitBody(this.#catalogue, slug, body, scanned);
  }

  /** What an idempotency key is bound to: network and exact body. */
  fingerprint(admission: Admission): Promise<string> {
    return admissionFingerprint(admission);
  }

  /** The price of credits in nano-USD. */
  cost(credits: number): Nano {
    return creditsToNano(credits, this.#nanoPerCredit);
  }

  /** Runs an admitted request. Throws a Fault (500, 503) when no node answered: 0 credits then. */
  async run(admission: Admission, options: RunOptions): Promise<RpcAnswer> {
    const { clock } = this.#dependencies;
    const { network } = admission;
    const context: RunContext = {
      network,
      caller: options.caller,
      clock,
      budget: this.#budget,
      maxReplyBytes: this.#settings.maxReplyBytes ?? DEFAULT_REPLY_BYTES,
      maxBatchReplyBytes: this.#settings.maxBatchReplyBytes ?? DEFAULT_BATCH_REPLY_BYTES,
      deadlineMs: clock.monotonicMs() + (this.#settings.totalTimeoutMs ?? TOTAL_TIMEOUT_MS),
      signal: options.signal,
      heldBytes: 0,
      attempts: 0,
    };
    try {
      return await new RpcRun(context, this.#group(network), this.#cache, admission).answer();
    } finally {
      if (context.heldBytes > 0) this.#budget.give(context.caller, context.heldBytes);
    }
  }

  /** Closes all connections; runs in flight fail. */
  async close(): Promise<void> {
    await Promise.all([...this.#groups.values()].map(async (group) => group.close()));
  }

  /** The nodes of a network, built at its first use: 27 networks cost nothing until then. */
  #group(network: Network): UpstreamGroup {
    const known = this.#groups.get(network.slug);
    if (known !== undefined) return known;
    const own = this.#settings.networks[network.slug]?.upstreams ?? [];
    const hasOwnNode = own.some((one) => (one.kind ?? 'node') === 'node');
    const isPublic = (this.#settings.publicNodes ?? true) && !hasOwnNode;
    const upstreams = own.map((one, index) =>
      this.#upstream(network, one, `${network.slug}#${index + 1}`),
    );
    for (const [index, url] of (isPublic ? network.publicNodes : []).entries()) {
      const settings = { url, maxBatch: PUBLIC_MAX_BATCH, ratePerSecond: PUBLIC_RATE_PER_SECOND };
      upstreams.push(this.#upstream(network, settings, `${network.slug} public#${index + 1}`));
    }
    const group = new UpstreamGroup(
      network,
      upstreams,
      this.#dependencies.clock,
      this.#dependencies.ids,
    );
    this.#groups.set(network.slug, group);
    return group;
  }

  #upstream(network: Network, settings: RpcUpstreamSettings, name: string): Upstream {
    const { clock, log } = this.#dependencies;
    const connections = CONNECTIONS_PER_UPSTREAM + OWN_CONNECTIONS;
    const client = nodeClient(settings.url, settings.headers ?? {}, connections, clock);
    const ratePerSecond = settings.ratePerSecond ?? 0;
    const maxBatch = settings.maxBatch ?? OWN_MAX_BATCH;
    return new Upstream(
      {
        name: settings.name ?? name,
        kind: settings.kind ?? 'node',
        weight: settings.weight ?? 1,
        // A batch borrows no more than a second of the others'.
        maxBatch:
          ratePerSecond === 0
            ? maxBatch
            : Math.min(maxBatch, Math.max(1, Math.floor(ratePerSecond))),
        ratePerSecond,
        timeoutMs: settings.timeoutMs ?? ATTEMPT_TIMEOUT_MS,
        connections: CONNECTIONS_PER_UPSTREAM,
        maxRequestBytes: settings.maxRequestBytes ?? 0,
      },
      { network, client, clock, log },
    );
  }
}
