/**
 * The errors of nodes, bundlers and providers by code and message: which concern the call itself,
 * which are faults of the provider, and which say that the node lacks something that another node
 * may have.
 *
 * A message is only read together with a code that the node or provider is known to use with it,
 * and from its beginning: a message alone may be a revert reason or an echo of the request, which
 * the caller controls.
 */
import type { Family } from './catalogue.ts';

/**
 * Faults of an upstream. `refused`: it rejected the request itself (a plain 4xx);
 * `request-too-large`: it rejects requests of this size; `unread`: it closed the connection before
 * reading a large request; `stray`: it sent the reply to another call.
 */
export type UpstreamFault =
  | 'transport'
  | 'timeout'
  | 'unread'
  | 'quota'
  | 'auth'
  | 'broken'
  | 'stray'
  | 'refused'
  | 'too-large'
  | 'request-too-large';

/**
 * The reason why a node cannot serve a call. `method`: it lacks the method, or a plan that includes
 * it; `data`: it lacks the block, the state or the history, because it is pruned or behind;
 * `capacity`: it failed or ran out of time.
 */
export type Lack = 'method' | 'data' | 'capacity';

export interface NodeError {
  readonly code: number;
  readonly message: string;
  /** Set if another node may be able to serve the call. */
  readonly lack?: Lack | undefined;
}

/** Codes that concern the call under any status: revert, unknown method, invalid params. */
export const CALL_CODES = new Set([3, -32601, -32602]);
/** Codes that mean the quota of the operator's account. */
export const QUOTA_CODES = new Set([429, -32029, -32090, -32097]);
/** EIP-1474 "limit exceeded": of the account, or of a single call. */
export const LIMIT_CODE = -32005;
const ACCOUNT_LIMIT =
  /rate.?limit|request rate|request count|(requests?|rps) limit|too many (queued |concurrent )?requests|queued requests|capacity|compute unit|quota/i;

type Rule<T> = readonly [codes: readonly number[], message: RegExp, means: T];

/** Faults of EVM providers with codes that other nodes use for errors of the call. */
const PROVIDER_FAULTS: readonly Rule<UpstreamFault>[] = [
  // 1RPC.
  [[-32001], /^you've reached the usage limit for your current plan/i, 'quota'],
  // QuickNode; Besu: the sender is not authorized.
  [[-32007], /^\d{1,12}\/(second|minute) request limit reached/i, 'quota'],
  // QuickNode; Besu: the gas price is too low.
  [[-32009], /^trace requests limited to \d/i, 'quota'],
  // proxyd (Base, OP); Nethermind: the transaction is refused.
  [[-32010], /^backend offline$/i, 'broken'],
  [[-32011], /^no backends? (is currently healthy|available)/i, 'broken'],
  // QuickNode and proxyd.
  [[-32012], /^(credits limited to \d|backend is over capacity$)/i, 'quota'],
  [[-32013], /^backend returned an invalid response$/i, 'broken'],
  // proxyd; Nethermind: the call reverted.
  [[-32015], /^gateway timeout$/i, 'broken'],
  [[-32016], /^over rate limit$/i, 'quota'],
  // Ankr.
  [[-32055], /^no nodes available$/i, 'broken'],
  // dRPC.
  [[15], /^too many requests?\b/i, 'quota'],
  [[19], /^temporary internal error/i, 'broken'],
  // Alchemy, Infura, Ankr and others under status 200.
  [
    [-32000, -32001, -32600],
    /^(?:your app has exceeded its|monthly capacity limit exceeded|daily request (?:count|limit)|you(?:'ve| have) (?:reached|exceeded) (?:the|your) (?:free tier|quota|daily|monthly|rate)|too many requests\b|(?:request )?rate limit)/i,
    'quota',
  ],
];

const ANY_MESSAGE = /^/;

/** Codes under which EVM nodes report missing blocks and state. */
const DATA_CODES = [4444, -32000, -32001, -32002, -32019, -32603, -38001, -39001];

/** Errors of nodes of every family. */
const LACKS: readonly Rule<Lack | undefined>[] = [
  // All nodes; proxyd: not whitelisted.
  [[-32601], ANY_MESSAGE, 'method'],
  // Hardhat, Ganache, Erigon and zkSync report reverts and invalid transactions as -32603 too.
  [
    [-32603],
    /revert|vm exception|out of gas|opcode|insufficient|gas (?:too low|required)|nonce|already known|invalid (?:argument|param|input)/i,
    undefined,
  ],
  [[-32603], ANY_MESSAGE, 'capacity'],
];

const LACKS_OF: Readonly<Record<Family, readonly Rule<Lack | undefined>[]>> = {
  evm: [
    // EIP-1474, Alchemy, Infura, QuickNode, Chainstack: the plan does not include the method.
    [
      [-32000, -32004, -32600, -32604],
      /^(?:unsupported method|unauthorized method call|(?:the )?(?:rpc )?method (?:\S{1,100} )?(?:is )?(?:not (?:found|supported|available|whitelisted|allowed|enabled)|disabled|does not exist)|\S{1,100} is not (?:available|included) (?:on|in) (?:the|your) (?:current )?plan)/i,
      'method',
    ],
    // Geth, Nethermind, Erigon, Besu, reth, proxyd and their forks.
    [
      DATA_CODES,
      /^(?:err: )?(?:header (?:for hash )?not found|(?:(?:latest|pending|safe|finalized|requested) )?block(?: \S{1,70})? (?:is )?not (?:found|available)|unknown block|could not find block|block (?:is out of range|height passed is invalid)|one of the blocks specified in filter|height is not available|cannot query unfinalized data|transaction indexing)/i,
      'data',
    ],
    [
      DATA_CODES,
      /^(?:err: )?(?:missing trie node|no state (?:available|found)|(?:required |requested )?historical state|(?:world )?state (?:at block \S{1,70} |is |histories |has |already )*(?:pruned|unavailable|not available|been pruned)|pruned history|history (?:has been )?pruned|old data not available due to pruning|failed to load state at height)/i,
      'data',
    ],
    // Geth and its forks, Erigon.
    [
      [-32000, -32002],
      /^(?:request timed out|context deadline exceeded|internal (?:server )?error)/i,
      'capacity',
    ],
    ...LACKS,
  ],
  starknet: [[[24], /^block not found/i, 'data'], ...LACKS],
  solana: [
    // Agave: cleaned up, not available, behind a snapshot, without the index or the transaction
    // history, status not yet available, behind `minContextSlot`. -32009 is final: such a node has
    // the long-term storage.
    [[-32001, -32004, -32007, -32010, -32011, -32014, -32016], ANY_MESSAGE, 'data'],
    ...LACKS,
  ],
};

export function isAccountLimit({ message }: NodeError): boolean {
  return ACCOUNT_LIMIT.test(message);
}

/** The fault of an EVM provider; `undefined` if the error is not known as one. */
export function providerFault(error: NodeError): UpstreamFault | undefined {
  return meaningOf(error, PROVIDER_FAULTS);
}

/** Reports why the node cannot serve the call; `undefined` if every node would return the error. */
export function lackOf(error: NodeError, family: Family): Lack | undefined {
  return meaningOf(error, LACKS_OF[family]);
}

function meaningOf<T>({ code, message }: NodeError, rules: readonly Rule<T>[]): T | undefined {
  return rules.find(([codes, pattern]) => codes.includes(code) && pattern.test(message))?.[2];
}
