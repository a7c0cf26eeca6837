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
 * The reason why a node cannot serve a call. `method`: the method, or a plan that includes it; `data`: the block, the state
 * or the history, because the node is pruned or behind; `capacity`: it failed or ran out of time.
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

interface Rule<T> {
  readonly codes: readonly number[];
  readonly message: RegExp;
  readonly means: T;
}

/** Faults of EVM providers with codes that other nodes use for errors of the call. */
const PROVIDER_FAULTS: readonly Rule<UpstreamFault>[] = [
  // 1RPC.
  {
    codes: [-32001],
    message: /^you've reached the usage limit for your current plan/i,
    means: 'quota',
  },
  // QuickNode; Besu: the sender is not authorized.
  { codes: [-32007], message: /^\d{1,12}\/(second|minute) request limit reached/i, means: 'quota' },
  // QuickNode; Besu: the gas price is too low.
  { codes: [-32009], message: /^trace requests limited to \d/i, means: 'quota' },
  // proxyd (Base, OP); Nethermind: the transaction is refused.
  { codes: [-32010], message: /^backend offline$/i, means: 'broken' },
  {
    codes: [-32011],
    message: /^no backends? (is currently healthy|available)/i,
    means: 'broken',
  },
  // QuickNode and proxyd.
  {
    codes: [-32012],
    message: /^(credits limited to \d|backend is over capacity$)/i,
    means: 'quota',
  },
  { codes: [-32013], message: /^backend returned an invalid response$/i, means: 'broken' },
  // proxyd; Nethermind: the call reverted.
  { codes: [-32015], message: /^gateway timeout$/i, means: 'broken' },
  { codes: [-32016], message: /^over rate limit$/i, means: 'quota' },
  // Ankr.
  { codes: [-32055], message: /^no nodes available$/i, means: 'broken' },
  // dRPC.
  { codes: [15], message: /^too many requests?\b/i, means: 'quota' },
  { codes: [19], message: /^temporary internal error/i, means: 'broken' },
  // Alchemy, Infura, Ankr and others under status 200.
  {
    codes: [-32000, -32001, -32600],
    message:
      /^(?:your app has exceeded its|monthly capacity limit exceeded|daily request (?:count|limit)|you(?:'ve| have) (?:reached|exceeded) (?:the|your) (?:free tier|quota|daily|monthly|rate)|too many requests\b|(?:request )?rate limit)/i,
    means: 'quota',
  },
];

interface LackRule extends Rule<Lack> {
  readonly families: readonly Family[];
}

const EVM: readonly Family[] = ['evm'];
const STARKNET: readonly Family[] = ['starknet'];
const SOLANA: readonly Family[] = ['solana'];
const ALL: readonly Family[] = ['evm', 'starknet', 'solana'];
const ANY_MESSAGE = /^/;

/** Codes under which EVM nodes report missing blocks and state. */
const DATA_CODES = [4444, -32000, -32001, -32002, -32019, -32603, -38001, -39001];

const LACKS: readonly LackRule[] = [
  // All nodes; proxyd: not whitelisted.
  { families: ALL, codes: [-32601], message: ANY_MESSAGE, means: 'method' },
  // EIP-1474, Alchemy, Infura, QuickNode, Chainstack: the plan does not include the method.
  {
    families: EVM,
    codes: [-32000, -32004, -32600, -32604],
    message:
      /^(?:unsupported method|unauthorized method call|(?:the )?(?:rpc )?method (?:\S{1,100} )?(?:is )?(?:not (?:found|supported|available|whitelisted|allowed|enabled)|disabled|does not exist)|\S{1,100} is not (?:available|included) (?:on|in) (?:the|your) (?:current )?plan)/i,
    means: 'method',
  },
  // Geth, Nethermind, Erigon, Besu, reth, proxyd and their forks.
  {
    families: EVM,
    codes: DATA_CODES,
    message:
      /^(?:err: )?(?:header (?:for hash )?not found|(?:(?:latest|pending|safe|finalized|requested) )?block(?: \S{1,70})? (?:is )?not (?:found|available)|unknown block|could not find block|block (?:is out of range|height passed is invalid)|one of the blocks specified in filter|height is not available|cannot query unfinalized data|transaction indexing)/i,
    means: 'data',
  },
  {
    families: EVM,
    codes: DATA_CODES,
    message:
      /^(?:err: )?(?:missing trie node|no state (?:available|found)|(?:required |requested )?historical state|(?:world )?state (?:at block \S{1,70} |is |histories |has |already )*(?:pruned|unavailable|not available|been pruned)|pruned history|history (?:has been )?pruned|old data not available due to pruning|failed to load state at height)/i,
    means: 'data',
  },
  // Geth and its forks, Erigon.
  {
    families: EVM,
    codes: [-32000, -32002],
    message: /^(?:request timed out|context deadline exceeded|internal (?:server )?error)/i,
    means: 'capacity',
  },
  // Hardhat, Ganache, Erigon and zkSync also report reverts and invalid transactions as -32603.
  {
    families: ALL,
    codes: [-32603],
    message:
      /^(?!.*(?:revert|vm exception|out of gas|opcode|insufficient|gas (?:too low|required)|nonce|already known|invalid (?:argument|param|input)))/is,
    means: 'capacity',
  },
  { families: STARKNET, codes: [24], message: /^block not found/i, means: 'data' },
  // Agave: cleaned up, not available, behind a snapshot, without the index or the transaction
  // history, status not yet available, behind `minContextSlot`. -32009 is final: such a node has
  // the long-term storage.
  {
    families: SOLANA,
    codes: [-32001, -32004, -32007, -32010, -32011, -32014, -32016],
    message: ANY_MESSAGE,
    means: 'data',
  },
];

export function isAccountLimit({ message }: NodeError): boolean {
  return ACCOUNT_LIMIT.test(message);
}

/** The fault of an EVM provider; `undefined` if the error is not known as one. */
export function providerFault({ code, message }: NodeError): UpstreamFault | undefined {
  return PROVIDER_FAULTS.find((rule) => rule.codes.includes(code) && rule.message.test(message))
    ?.means;
}

/** Classifies an error by its wording; `undefined` for an error that every node would return. */
export function lackOf({ code, message }: NodeError, family: Family): Lack | undefined {
  return LACKS.find(
    ({ families, codes, message: pattern }) =>
      families.includes(family) && codes.includes(code) && pattern.test(message),
  )?.means;
}
