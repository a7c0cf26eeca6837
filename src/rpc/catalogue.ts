/**
 * Which networks exist and which methods a caller may send to them, at which tier.
 *
 * The allowlist is by family, case-sensitive and closed: what neither a listed name nor a prefix
 * rule of the family covers is refused. An optional method is refused unless the operator allows
 * it or a prefix rule of the specification covers its name. It does not know upstreams or prices.
 */
import { assert } from '../core/assert.ts';
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
  /** Which kind of upstream answers it. */
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

/** Why a method is refused; each reason has its own sentence. */
export type RefusalKind =
  | 'websocket'
  | 'filter'
  | 'key'
  | 'admin'
  | 'removed'
  | 'family'
  | 'unlisted';

export type Resolution =
  | { readonly ok: true; readonly method: Method }
  | { readonly ok: false; readonly kind: RefusalKind };

export interface Catalogue {
  /** The slugs, sorted. */
  readonly slugs: readonly string[];
  network(slug: string): Network | undefined;
  resolve(network: Network, name: string): Resolution;
}

interface MethodRow {
  readonly name: string;
  readonly family: string;
  readonly tier: number;
  readonly retry: string;
  readonly cache: string;
  readonly node?: string;
  readonly optional?: boolean;
}

/** A listed method as it is resolved to; an optional one only when it is on. */
interface Listed {
  readonly ok: true;
  readonly method: Method;
  readonly isOn: boolean;
}

/** Names that a prefix rule may cover; anything else never reaches a node. */
const PLAIN_NAME = /^[A-Za-z0-9_]{1,100}$/;
/** WebSocket-only names of all families, listed or not. */
const WEBSOCKET_NAME =
  /^(eth_(un)?subscribe|starknet_(subscri(be|ption)[A-Z].*|unsubscribe)|[a-z][A-Za-z]*(Subscribe|Unsubscribe))$/;
/** The broadcast of a signed EVM transaction. */
export const RAW_BROADCAST = 'eth_sendRawTransaction';
/** Verbs of unlisted names that change the chain: such a call is never sent twice. */
const WRITING_NAME = /_(send|add|submit|set)/;

/** Reads the data files; `allow` names optional methods that the operator switches on. */
export function createCatalogue(allow: readonly string[] = []): Catalogue {
  const networks = new Map(
    Object.entries(networkData).map(([slug, row]) => [
      slug,
      { slug, ...row, family: familyOf(row.family) },
    ]),
  );
  const allowed = new Set(allow);
  const listed = {
    evm: new Map<string, Listed>(),
    starknet: new Map<string, Listed>(),
    solana: new Map<string, Listed>(),
  };
  const rows: readonly MethodRow[] = methodData.methods;
  for (const row of rows) {
    const isOn = row.optional !== true || allowed.has(row.name);
    listed[familyOf(row.family)].set(row.name, { ok: true, method: methodOf(row), isOn });
  }
  const rules = methodData.prefixRules.map((rule) => ({
    prefix: rule.prefix,
    family: familyOf(rule.family),
    tier: tierOf(rule.tier),
  }));
  return {
    slugs: [...networks.keys()].sort(),
    network: (slug) => networks.get(slug),
    resolve(network, name) {
      const row = listed[network.family].get(name);
      if (row?.isOn === true) return row;
      const refusal = refusalOf(name);
      if (refusal !== undefined) return { ok: false, kind: refusal };
      const rule = rules.find((one) => name.startsWith(one.prefix));
      if (rule?.family === network.family && PLAIN_NAME.test(name)) {
        return { ok: true, method: row?.method ?? prefixedMethod(name, rule.tier) };
      }
      const isElsewhere =
        rule !== undefined || Object.values(listed).some((methods) => methods.has(name));
      return { ok: false, kind: isElsewhere && row === undefined ? 'family' : 'unlisted' };
    },
  };
}

function refusalOf(name: string): RefusalKind | undefined {
  if (WEBSOCKET_NAME.test(name)) return 'websocket';
  for (const group of methodData.refused) {
    for (const pattern of group.names) {
      const isMatch = pattern.endsWith('*')
        ? name.startsWith(pattern.slice(0, -1))
        : name === pattern;
      if (isMatch) return refusalKind(group.kind);
    }
  }
  return undefined;
}

/** An unlisted name under a prefix rule: reads may be repeated, anything else may not. */
function prefixedMethod(name: string, tier: Method['tier']): Method {
  const mayRepeat = !WRITING_NAME.test(name);
  const retry = mayRepeat ? 'safe' : 'write-no-retry';
  return { name, tier, retry, mayRepeat, sharing: undefined, node: 'node' };
}

function methodOf(row: MethodRow): Method {
  const { name } = row;
  const retry = oneOf(row.retry, ['safe', 'safe-notnull', 'write-dedupe', 'write-no-retry']);
  return {
    name,
    tier: tierOf(row.tier),
    retry,
    // Of the writes only the plain broadcast can be recognised by its hash on the second node.
    mayRepeat: retry.startsWith('safe') || (retry === 'write-dedupe' && name === RAW_BROADCAST),
    sharing: sharingOf(row),
    node: oneOf(row.node ?? 'node', ['node', 'bundler']),
  };
}

/** Reads whose answer the hash of a block determines. */
const BY_BLOCK_HASH = new Set([
  'eth_getBlockByHash',
  'eth_getBlockTransactionCountByHash',
  'eth_getTransactionByBlockHashAndIndex',
  'eth_getUncleByBlockHashAndIndex',
  'eth_getUncleCountByBlockHash',
  'eth_getHeaderByHash',
]);

function sharingOf(row: MethodRow): Sharing | undefined {
  const cache = oneOf(row.cache, ['static', 'head', 'by-block', 'finalized', 'never']);
  if (cache === 'static' || cache === 'head') return cache;
  return cache === 'by-block' && BY_BLOCK_HASH.has(row.name) ? 'by-hash' : undefined;
}

function tierOf(value: number): Method['tier'] {
  assert(value === 1 || value === 2 || value === 4, `methods.json: no tier ${value}`);
  return value;
}

function familyOf(value: string): Family {
  return oneOf(value, ['evm', 'starknet', 'solana']);
}

function refusalKind(value: string): RefusalKind {
  return oneOf(value, ['websocket', 'filter', 'key', 'admin', 'removed']);
}

function oneOf<const T extends string>(value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  assert(found !== undefined, `the RPC data files hold the unknown word "${value}"`);
  return found;
}
