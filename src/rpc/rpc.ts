/**
 * The blockchain JSON-RPC proxy: parses a body, runs it against the nodes of its network, and
 * returns the credits. It does not know the HTTP server, accounts or the ledger.
 *
 * Call `parse` (throws 400, or returns the credits to reserve), then `run` (returns the response
 * with its credits, or throws a Fault without a charge), then settle. Params, raw transactions and
 * node URLs are never logged.
 */
import { type CallerPrices, type Config, creditPrice } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { SharedStore } from '../db/db.ts';
import type { Log } from '../core/log.ts';
import { Origins } from '../net/origins.ts';
import { formatUsd, type Nano, nano, usdToNano } from '../core/money.ts';
import { didYouMean } from '../core/nearest-word.ts';
import { type ParsedRequest, parseRequest, type BodyScan } from './parse-request.ts';
import { ResponseCache } from './response-cache.ts';
import { CallIds } from './call-ids.ts';
import { type RpcResponse, unansweredFault } from './rpc-response.ts';
import { Catalogue, type Network } from './catalogue.ts';
import { ByteBudget, nodeClient } from './node-client.ts';
import type { RunSettings } from './node-attempt.ts';
import type { RpcFigures } from './node-figures.ts';
import { nodeMap } from './node-map.ts';
import { RpcRun, type RunOptions } from './run.ts';
import { ServedHeads } from './served-heads.ts';
import { type NodeStatus, UpstreamGroup } from './upstream-group.ts';
import { Upstream } from './upstream.ts';

export { type Credits, MemoryCredits, SharedCredits } from './credits.ts';
export { RpcFigures } from './node-figures.ts';
export { RPC_MIGRATIONS } from './migrations.ts';

export type RpcSettings = Omit<
  Config['rpc'],
  'creditsPerDay' | 'enabled' | 'requestsPerMinute' | 'staffRequestsPerMinute'
>;
type RpcUpstream = RpcSettings['networks'][string]['upstreams'][number];

export interface CreditPrice {
  readonly eachNano: bigint;
  /** Contains the price, and the list price if it differs. */
  readonly version: string;
}

export interface RpcDependencies {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly figures: RpcFigures;
  readonly proxyOf: (url: string) => string | undefined;
  /** The database that several processes share; `undefined` if this is the only process. */
  readonly sharedStore?: SharedStore | undefined;
}

/** The state of one configured node, or of a configured network that does not exist. */
export interface NodeHealth {
  readonly network: string;
  /** Name of the node; `undefined` if the network itself is unknown. */
  readonly node: string | undefined;
  /** A sentence for the operator; `undefined` if the node is usable. */
  readonly problem: string | undefined;
  /** The capabilities of a usable node. */
  readonly map: readonly string[];
}

/** A network as this process sees it. */
export interface NetworkStatus {
  readonly network: string;
  /** The newest block that callers see; `null` if it is unknown. */
  readonly head: number | null;
  readonly nodes: NodeStatus[];
}

/** Public nodes are shared with others: small batches, few calls. */
const PUBLIC_UPSTREAM = {
  kind: 'node',
  weight: 1,
  maxBatch: 10,
  ratePerSecond: 10,
  timeoutMs: 30_000,
} as const;
const CONNECTIONS_PER_UPSTREAM = 256;
/** Additional connections for the server's own requests. */
const OWN_CONNECTIONS = 2;

export class Rpc {
  readonly listPrice: CreditPrice;
  readonly #ownPrices = new WeakMap<CallerPrices, CreditPrice>();
  readonly budget: ByteBudget;
  readonly #settings: RpcSettings;
  readonly #dependencies: RpcDependencies;
  readonly #catalogue: Catalogue;
  readonly #cache: ResponseCache;
  readonly #callIds: CallIds;
  readonly #runSettings: RunSettings;
  readonly #heads: ServedHeads;
  readonly #groups = new Map<string, UpstreamGroup>();

  constructor(settings: RpcSettings, dependencies: RpcDependencies) {
    const { clock, log } = dependencies;
    this.#settings = settings;
    const listNano = usdToNano(settings.usdPerCredit);
    this.listPrice = { eachNano: listNano, version: `rpc-${listNano}` };
    this.#dependencies = dependencies;
    this.#catalogue = new Catalogue(settings.allow);
    for (const slug of Object.keys(settings.networks)) {
      if (this.#catalogue.network(slug) === undefined)
        log.warn({ network: slug }, `rpc.networks: ${this.#unknownNetwork(slug)}`);
    }
    this.#heads = new ServedHeads(dependencies.sharedStore, clock);
    this.#cache = new ResponseCache(settings, clock);
    this.budget = new ByteBudget(settings.replyMemoryBytes);
    this.#callIds = new CallIds(dependencies.ids.fraction());
    this.#runSettings = { ...settings, clock, callIds: this.#callIds, budget: this.budget };
  }

  networks(): readonly string[] {
    return this.#catalogue.slugs;
  }

  /** Parses a body for a network; throws a Fault with status 400. Sends nothing. */
  parse(slug: string, body: Buffer, scanned?: BodyScan): ParsedRequest {
    return parseRequest(this.#catalogue, slug, body, scanned);
  }

  /** The price of a credit for a caller with own prices. */
  ownPrice(prices: CallerPrices): CreditPrice {
    const known = this.#ownPrices.get(prices);
    if (known !== undefined) return known;
    const { eachNano: listNano, version } = this.listPrice;
    const eachNano = creditPrice(prices, listNano);
    const own = { eachNano, version: `rpc-${eachNano}-${listNano}` };
    const price = eachNano === listNano ? { eachNano, version } : own;
    this.#ownPrices.set(prices, price);
    return price;
  }

  cost(credits: number, { eachNano }: CreditPrice = this.listPrice): Nano {
    return nano(BigInt(credits) * eachNano);
  }

  /** Runs a parsed request. Throws a Fault (503, 0 credits) if no node responds. */
  run(parsed: ParsedRequest, options: RunOptions): Promise<RpcResponse> {
    const group = this.#group(parsed.network);
    return new RpcRun(this.#runSettings, group, this.#cache, parsed, options).run();
  }

  /** Checks that a node of the request's network responds. Throws a Fault (503) if none does. */
  async requireNode({ network }: ParsedRequest): Promise<void> {
    if (!(await this.#group(network).isResponding())) throw unansweredFault(undefined, false);
  }

  /**
   * Calls each configured node and returns its state and capabilities. Public nodes are not called.
   * Never throws.
   */
  async probeNodes(): Promise<NodeHealth[]> {
    const networks = Object.entries(this.#settings.networks).map(async ([slug, { upstreams }]) => {
      const network = this.#catalogue.network(slug);
      if (network === undefined) {
        const problem = this.#unknownNetwork(slug);
        return [{ network: slug, node: undefined, problem, map: [] }];
      }
      const nodes = this.#configured(network, upstreams);
      return await Promise.all(
        nodes.map(async (node) => {
          const problem = await node.probe();
          const isNode = problem === undefined && node.settings.kind === 'node';
          const map = isNode ? await nodeMap(node, network.family) : [];
          await node.close();
          return { network: slug, node: node.settings.name, problem, map };
        }),
      );
    });
    return (await Promise.all(networks)).flat();
  }

  /** The configured networks, and those with calls so far. */
  status(): NetworkStatus[] {
    for (const slug of Object.keys(this.#settings.networks)) {
      const network = this.#catalogue.network(slug);
      if (network !== undefined) this.#group(network);
    }
    return [...this.#groups].map(([network, group]) => ({
      network,
      head: group.head.served ?? null,
      nodes: group.status(),
    }));
  }

  async close(): Promise<void> {
    this.#heads.close();
    await Promise.all([...this.#groups.values()].map((group) => group.close()));
  }

  /** The nodes of a network, created on first use. */
  #group(network: Network): UpstreamGroup {
    let group = this.#groups.get(network.slug);
    if (group !== undefined) return group;
    const { networks, publicNodes } = this.#settings;
    const configured = networks[network.slug];
    const own = configured?.upstreams ?? [];
    const isPublic = publicNodes && !own.some(({ kind }) => kind === 'node');
    const { proxyOf } = this.#dependencies;
    const upstreams = [
      ...this.#configured(network, own),
      ...(isPublic ? network.publicNodes : []).map((url, at) =>
        this.#upstream(
          network,
          { url, proxy: proxyOf(url), ...PUBLIC_UPSTREAM },
          `${network.slug} public#${at + 1}`,
        ),
      ),
    ];
    const heads = this.#heads;
    const dependencies = {
      ...this.#dependencies,
      heads,
      headDistance: configured?.headDistance,
      hedgeShare: this.#settings.hedgeShare,
    };
    group = new UpstreamGroup(network, upstreams, dependencies);
    this.#groups.set(network.slug, group);
    return group;
  }

  #unknownNetwork(slug: string): string {
    return `There is no network "${slug}"${didYouMean(slug, this.#catalogue.slugs)}`;
  }

  #configured(network: Network, own: readonly RpcUpstream[]): Upstream[] {
    return own.map((one, at) => this.#upstream(network, one, `${network.slug}#${at + 1}`));
  }

  #upstream(network: Network, settings: RpcUpstream, name: string): Upstream {
    const { clock, figures, log } = this.#dependencies;
    const nodeName = settings.name ?? name;
    const connections = CONNECTIONS_PER_UPSTREAM + OWN_CONNECTIONS;
    const origins = new Origins(() => {
      const message =
        'A node sent bytes that belong to no request: from now on, each request to it uses its own connection';
      log.warn({ node: nodeName }, message);
    });
    const client = nodeClient({ ...settings, connections, clock, origins });
    const { maxBatch, ratePerSecond } = settings;
    // A batch may borrow at most one second of the rate.
    const perSecond = ratePerSecond === 0 ? maxBatch : Math.max(1, Math.floor(ratePerSecond));
    return new Upstream(
      {
        ...settings,
        name: nodeName,
        maxBatch: Math.min(maxBatch, perSecond),
        connections: CONNECTIONS_PER_UPSTREAM,
      },
      {
        network,
        client,
        callIds: this.#callIds,
        clock,
        log,
        figures: figures.of(network.slug, nodeName),
      },
    );
  }
}

/** `X-Svc-RPC-Cost-USD`: eight decimals, rounded half up. */
export function formatRpcCost(cost: Nano): string {
  return formatUsd(cost, 8);
}
