/**
 * Which networks exist and which methods a caller may send to them, at which tier.
 *
 * The allowlist is by family, case-sensitive and closed: what neither a listed name nor a prefix
 * rule of the family covers is refused. An optional method is refused unless the operator allows
 * it or a prefix rule of the specification covers its name. It does not know upstreams or prices.
 */
import methodData from './methods.json' with { type: 'json' };
import networkData from './networks.json' with { type: 'json' };

export type Family = 'evm' | 'starknet' | 'solana';

/**
 * What may be done when a node fails: `safe` may go to another node; `safe-notnull` also asks
 * another node when the result is null; `write-dedupe` is a signed transaction whose second
 * broadcast is recognised; `write-no-retry` is never sent again once bytes have left.
 */
export type RetryClass = 'safe' | 'safe-notnull' | 'write-dedupe' | 'write-no-retry';

/** How callers may share an answer: for long, while it is on its way, or as long as its block. */
export type Sharing = 'static' | 'head' | 'by-hash';

export type NodeKind = 'node' | 'bundler';

export interface Method {
  readonly name: string;
  /** Multiplier of the base credits of the network. */
  readonly tier: 1 | 2 | 4;
  readonly retry: RetryClass;
  /** Whether a call may go to another node although its bytes may have arrived at one. */
  readonly mayRepeat: boolean;
  /** None when every caller needs an answer of its own. */
  readonly sharing: Sharing | undefined;
  readonly node: NodeKind;
}

export interface Network {
  readonly slug: string;
  readonly family: Family;
  /** Decimal chain id (EVM), hexadecimal chain id (Starknet), or genesis hash (Solana). */
  readonly chainId: string;
  readonly baseCredits: number;
  readonly blockTimeMs: number;
  /** Blocks behind the best node from which a node is asked last, and not at all. */
  readonly laggingBlocks: number;
  readonly syncingBlocks: number;
  readonly publicNodes: readonly string[];
}

export type RefusalKind =
  | 'websocket'
  | 'filter'
  | 'key'
  | 'admin'
  | 'removed'
  | 'family'
  | 'unlisted';

/** A row of `methods.json`; its test knows every word that stands there. */
interface MethodRow extends Pick<Method, 'name' | 'retry' | 'tier'> {
  readonly family: Family;
  readonly cache: 'static' | 'head' | 'by-block' | 'finalized' | 'never';
  readonly node?: NodeKind;
  readonly optional?: boolean;
}

interface PrefixRule extends Pick<Method, 'tier'> {
  readonly prefix: string;
  readonly family: Family;
}

/** Names of one kind; a `*` at the end stands for anything. */
interface RefusedNames {
  readonly kind: RefusalKind;
  readonly names: readonly string[];
}

/** Names that a prefix rule may cover; anything else never reaches a node. */
const PLAIN_NAME = /^[A-Za-z0-9_]{1,100}$/;
/** WebSocket-only names of all families, listed or not. */
const WEBSOCKET_NAME =
  /^(?:(?:eth_(?:un)?|starknet_un)subscribe$|starknet_subscri(?:be|ption)[A-Z]|[a-z][A-Za-z]{0,99}(?:Subs|Unsubs)cribe$)/;
export const RAW_BROADCAST = 'eth_sendRawTransaction';
/** Verbs of unlisted names that change the chain: such a call is never sent twice. */
const WRITING_NAME = /_(send|add|submit|set)/;

/** Reads whose answer the hash of a block determines. */
const BY_BLOCK_HASH = new Set([
  'eth_getBlockByHash',
  'eth_getBlockTransactionCountByHash',
  'eth_getTransactionByBlockHashAndIndex',
  'eth_getUncleByBlockHashAndIndex',
  'eth_getUncleCountByBlockHash',
  'eth_getHeaderByHash',
]);

export class Catalogue {
  readonly slugs: readonly string[];
  readonly #networks: ReadonlyMap<string, Network>;
  readonly #methods = {
    evm: new Map<string, Method>(),
    starknet: new Map<string, Method>(),
    solana: new Map<string, Method>(),
  };
  readonly #off = new Set<Method>();
  readonly #rules: readonly PrefixRule[];
  readonly #refused: readonly RefusedNames[];

  /** `allow` names optional methods that the operator switches on. */
  constructor(allow: readonly string[] = []) {
    // The words of the data files are held to these types by their test.
    const { methods, prefixRules, refused } = methodData as {
      readonly methods: readonly MethodRow[];
      readonly prefixRules: readonly PrefixRule[];
      readonly refused: readonly RefusedNames[];
    };
    const networks = networkData as Readonly<Record<string, Omit<Network, 'slug'>>>;
    const entries = Object.entries(networks);
    this.#networks = new Map(entries.map(([slug, network]) => [slug, { slug, ...network }]));
    this.slugs = [...this.#networks.keys()].sort();
    this.#rules = prefixRules;
    this.#refused = refused;
    for (const row of methods) {
      const method = methodOf(row);
      this.#methods[row.family].set(row.name, method);
      if (row.optional === true && !allow.includes(row.name)) this.#off.add(method);
    }
  }

  network(slug: string): Network | undefined {
    return this.#networks.get(slug);
  }

  /** The method that a name calls, or why it is refused. */
  resolve({ family }: Network, name: string): Method | RefusalKind {
    const method = this.#methods[family].get(name);
    if (method !== undefined && !this.#off.has(method)) return method;
    if (WEBSOCKET_NAME.test(name)) return 'websocket';
    for (const { kind, names } of this.#refused)
      if (names.some((pattern) => isMatch(pattern, name))) return kind;
    const rule = this.#rules.find(({ prefix }) => name.startsWith(prefix));
    if (rule?.family === family && PLAIN_NAME.test(name))
      return method ?? prefixedMethod(name, rule.tier);
    if (method !== undefined) return 'unlisted';
    const isElsewhere = Object.values(this.#methods).some((methods) => methods.has(name));
    return rule !== undefined || isElsewhere ? 'family' : 'unlisted';
  }
}

function isMatch(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** An unlisted name under a prefix rule: reads may be repeated, anything else may not. */
function prefixedMethod(name: string, tier: Method['tier']): Method {
  const mayRepeat = !WRITING_NAME.test(name);
  const retry = mayRepeat ? 'safe' : 'write-no-retry';
  return { name, tier, retry, mayRepeat, sharing: undefined, node: 'node' };
}

function methodOf({ name, tier, retry, cache, node = 'node' }: MethodRow): Method {
  const isByHash = cache === 'by-block' && BY_BLOCK_HASH.has(name);
  return {
    name,
    tier,
    retry,
    // Of the writes only the plain broadcast can be recognised by its hash on the second node.
    mayRepeat: retry.startsWith('safe') || (retry === 'write-dedupe' && name === RAW_BROADCAST),
    sharing: cache === 'static' || cache === 'head' ? cache : isByHash ? 'by-hash' : undefined,
    node,
  };
}
