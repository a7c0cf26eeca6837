/**
 * The networks, and the methods with their tiers that a caller may call on each.
 *
 * The allowlist is per family, case-sensitive and closed: a method is rejected unless it is listed
 * or a prefix rule of the family covers it. An optional method is rejected unless the operator
 * allows it or a prefix rule of the specification covers it. This file does not know upstreams or
 * prices.
 */
import methodData from './methods.json' with { type: 'json' };
import networkData from './networks.json' with { type: 'json' };

export type Family = 'evm' | 'starknet' | 'solana';

/**
 * Retries after the failure of a node. `safe`: another node may be called; `safe-notnull`: another
 * node is also called if the result is null; `write-dedupe`: a signed transaction, whose second
 * broadcast is recognised; `write-no-retry`: never sent again once bytes were sent.
 */
export type RetryClass = 'safe' | 'safe-notnull' | 'write-dedupe' | 'write-no-retry';

/** How callers share a response: for long, while it is pending, or as long as its block. */
export type Sharing = 'static' | 'head' | 'by-hash';

export type NodeKind = 'node' | 'bundler';

/** Classes of methods in the metrics: the tiers of reads, and writes. */
export type MethodClass = 'standard' | 'advanced' | 'large' | 'write';

export interface Method {
  readonly name: string;
  /** Multiplier of the base credits of the network. */
  readonly tier: 1 | 2 | 4;
  readonly class: MethodClass;
  readonly retry: RetryClass;
  /** Whether a call may go to another node although a node may have received it. */
  readonly mayRepeat: boolean;
  readonly sharing: Sharing | undefined;
  readonly node: NodeKind;
  /** Position of the block in the params, or `range` for a filter in the first position. */
  readonly block?: number | 'range' | undefined;
  readonly history: History;
}

/** The part of an old block that a method reads; a node may drop each of them. */
export type History = 'state' | 'logs' | 'blocks';

export interface Network {
  readonly slug: string;
  readonly family: Family;
  /** Decimal chain id (EVM), hexadecimal chain id (Starknet), or genesis hash (Solana). */
  readonly chainId: string;
  readonly baseCredits: number;
  readonly blockTimeMs: number;
  /**
   * A node that lags by more blocks is used after all others. Also the default number of blocks by
   * which the nodes of a majority may differ.
   */
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

/** A row of `methods.json`; the test validates its values. */
interface MethodRow extends Pick<Method, 'block' | 'name' | 'retry' | 'tier'> {
  readonly family: Family;
  readonly cache: 'static' | 'head' | 'by-block' | 'finalized' | 'never';
  readonly group: string;
  readonly node?: NodeKind;
  readonly optional?: boolean;
}

interface PrefixRule extends Pick<Method, 'tier'> {
  readonly prefix: string;
  readonly family: Family;
}

/** Method names that are rejected for the same reason; `*` at the end matches any suffix. */
interface RefusedNames {
  readonly kind: RefusalKind;
  readonly names: readonly string[];
}

/** Names that a prefix rule may cover; other names are never sent to a node. */
const PLAIN_NAME = /^[A-Za-z0-9_]{1,100}$/;
/** WebSocket-only methods of all families, listed or not. */
const WEBSOCKET_NAME =
  /^(?:(?:eth_(?:un)?|starknet_un)subscribe$|starknet_subscri(?:be|ption)[A-Z]|[a-z][A-Za-z]{0,99}(?:Subs|Unsubs)cribe$)/;
/** Tags of blocks for which all nodes must use the same number. */
export const TAGS = ['finalized', 'safe'] as const;
export type Tag = (typeof TAGS)[number];

export function isTag(text: unknown): text is Tag {
  return TAGS.some((tag) => tag === text);
}

/** The method that returns the newest block. */
export const HEAD_METHOD: Readonly<Record<Family, string>> = {
  evm: 'eth_blockNumber',
  starknet: 'starknet_blockNumber',
  solana: 'getSlot',
};
export const RAW_BROADCAST = 'eth_sendRawTransaction';
const CLASS_OF_TIER = { 1: 'standard', 2: 'advanced', 4: 'large' } as const;
const HISTORY_OF_GROUP: ReadonlyMap<string, History> = new Map([
  ['state', 'state'],
  ['exec', 'state'],
  ['trace', 'state'],
  ['debug', 'state'],
  ['arbtrace', 'state'],
  ['logs', 'logs'],
]);
/** Verbs of unlisted methods that change the chain; such a call is never sent twice. */
const WRITING_NAME = /_(send|add|submit|set)/;

/** Reads whose result is fixed by the hash of a block. */
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

  constructor(allow: readonly string[] = []) {
    // The test of the data file validates its values.
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

  /** The method of a name, or the reason of its rejection. */
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

/** An unlisted method under a prefix rule: reads may be repeated, others may not. */
function prefixedMethod(name: string, tier: Method['tier']): Method {
  const mayRepeat = !WRITING_NAME.test(name);
  const retry = mayRepeat ? 'safe' : 'write-no-retry';
  const methodClass = mayRepeat ? CLASS_OF_TIER[tier] : 'write';
  const more = { sharing: undefined, node: 'node', history: 'blocks' } as const;
  return { name, tier, class: methodClass, retry, mayRepeat, ...more };
}

function methodOf(row: MethodRow): Method {
  const { name, tier, retry, cache, block, group, node = 'node' } = row;
  const isByHash = cache === 'by-block' && BY_BLOCK_HASH.has(name);
  return {
    name,
    tier,
    class: retry.startsWith('safe') ? CLASS_OF_TIER[tier] : 'write',
    retry,
    // Only the plain broadcast is a write that a second node can recognise by its hash.
    mayRepeat: retry.startsWith('safe') || (retry === 'write-dedupe' && name === RAW_BROADCAST),
    sharing: cache === 'static' || cache === 'head' ? cache : isByHash ? 'by-hash' : undefined,
    node,
    block,
    history: HISTORY_OF_GROUP.get(group) ?? 'blocks',
  };
}

/** A block number as EVM nodes write it. */
export function hexNumber(value: number): string {
  return `0x${value.toString(16)}`;
}
