/** Reads an EVM chain: viem clients with time limits, and the calls of an ERC-3009 token. */
import { authorizationTypes } from '@x402/evm';
import {
  BaseError,
  createPublicClient,
  custom,
  http,
  parseAbi,
  TransactionNotFoundError,
  TransactionReceiptNotFoundError,
} from 'viem';
import type { Hex, PublicClient, TransactionReceipt } from 'viem';
import { assert } from '../../core/assert.ts';
import type { Clock } from '../../core/clock.ts';
import { type Agreement, Failover, NODE_TIMEOUT_MS } from '../nodes.ts';
import type { Erc3009 } from '../payment.ts';
import type { RailOffer } from '../requirements.ts';

export const TOKEN_ABI = parseAbi([
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
  'function balanceOf(address owner) view returns (uint256)',
  'function decimals() view returns (uint8)',
  'function DOMAIN_SEPARATOR() view returns (bytes32)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)',
  'event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)',
  'event Transfer(address indexed from, address indexed to, uint256 value)',
]);

/** The EIP-712 domain of the token of an offer. */
export function tokenDomain({ extra, network, asset }: RailOffer) {
  return {
    name: extra['name'] ?? '',
    version: extra['version'] ?? '',
    chainId: Number(network.slice('eip155:'.length)),
    verifyingContract: asset as Hex, // a valid EVM address
  };
}

export function transferTypedData(offer: RailOffer, transfer: Omit<Erc3009, 'kind'>) {
  const { from, to, value, validAfter, validBefore, nonce } = transfer;
  return {
    domain: tokenDomain(offer),
    types: authorizationTypes,
    primaryType: 'TransferWithAuthorization' as const,
    message: { from, to, value, validAfter, validBefore, nonce },
  };
}

const RPC_TIMEOUT_MS = 10_000;
const RPC_RETRIES = 2;
const RETRY_DELAY_MS = 150;

export type EvmClient = PublicClient;

/**
 * `client` calls the nodes in their order, the next one after a failure, and those that lag (`avoid`) last;
 * `each` has one for each node.
 */
export function openEvmNodes(rpcUrl: string | readonly string[], clock: Clock) {
  // A node that is named twice has one vote.
  const urls = [...new Set([rpcUrl].flat())];
  const isAlone = urls.length === 1;
  const each = urls.map((url): EvmClient =>
    createPublicClient({
      transport: http(url, {
        timeout: isAlone ? RPC_TIMEOUT_MS : NODE_TIMEOUT_MS,
        // With several nodes the next node is called instead.
        retryCount: isAlone ? RPC_RETRIES : 0,
        retryDelay: RETRY_DELAY_MS,
      }),
      cacheTime: 0,
    }),
  );
  const [only] = each;
  if (only !== undefined && isAlone) return { client: only, each, avoid: () => undefined };
  const failover = new Failover(each, clock);
  const request = async (call: unknown): Promise<unknown> =>
    await failover.call(
      async (node) => await node.request(call as never), // from viem's own actions
      isChainError,
      (call as { method: string }).method === 'eth_sendRawTransaction', // JSON-RPC
    );
  return { client: clientOn(request), each, avoid: failover.avoid };
}

function rpcErrorOf(error: unknown): { readonly code: number; readonly text: string } | undefined {
  if (!(error instanceof BaseError)) return undefined;
  const found = error.walk(
    (cause) => cause instanceof Error && 'code' in cause && typeof cause.code === 'number',
  );
  if (found === null) return undefined;
  const { code } = found as { code?: number }; // `walk` checked it
  const text =
    found instanceof BaseError ? `${found.shortMessage} ${found.details}` : found.message;
  return { code: code ?? 0, text };
}

/** Codes for a call that the chain ran, or a transaction or query that it rejects. */
const CHAIN_CODES = new Set([3, -32_000, -32_003, -32_015, -32_600, -32_602]);
/** Texts under the same codes for a problem of the node. */
const NODE_TEXT =
  /missing trie node|header not found|unknown block|pruned|state .{0,40}not available|rate limit|too many requests|capacity/i;

/** Whether every node would return the error; otherwise the node has failed. */
function isChainError(error: unknown): boolean {
  const found = rpcErrorOf(error);
  if (found === undefined) return false;
  if (/execution reverted/i.test(found.text)) return true;
  return CHAIN_CODES.has(found.code) && !NODE_TEXT.test(found.text);
}

/** Codes of failed calls, which EIP-1474 does not define: geth returns 3, Nethermind -32015. */
const EXECUTION_CODES = new Set([3, -32_015]);
/** Texts of failed calls from nodes without a code of their own. */
const EXECUTION_TEXT =
  /execution reverted|out ?of ?gas|gas required exceeds|intrinsic gas|invalid opcode|invalid ?jump|stack (?:under|over)flow|VM exception|EVM error/i;

/** Waiting transactions of one key that nodes accept. */
export const MAX_WAITING = 64;

/** The numbers of transactions of an address. */
export interface TransactionCounts {
  readonly mined: () => Promise<number>;
  /** With those that wait. */
  readonly pending: () => Promise<number>;
}

/**
 * Two nodes must have the mined transactions. Waiting ones can be known to the node alone that received
 * them; if it counts more of them than a node accepts, it is wrong, and only the mined ones count.
 */
export function transactionCounts(
  client: EvmClient,
  agreement: Agreement<EvmClient>,
  address: Hex,
): TransactionCounts {
  const mined = async (): Promise<number> =>
    Number(
      await agreement.reached('a number of transactions', async (node) =>
        BigInt(await node.getTransactionCount({ address })),
      ),
    );
  return {
    mined,
    pending: async () => {
      const [all, least] = await Promise.all([
        client.getTransactionCount({ address, blockTag: 'pending' }),
        mined(),
      ]);
      return all > least + MAX_WAITING ? least : all;
    },
  };
}

/** Time in Unix seconds. */
export interface NewestBlock {
  readonly number: bigint;
  readonly hash: Hex;
  readonly timestamp: bigint;
}

/** The newest block that two nodes have reached. */
export async function newestBlock(agreement: Agreement<EvmClient>): Promise<NewestBlock> {
  const blocks = new Map<bigint, NewestBlock>();
  const newest = await agreement.reached('the newest block', async (node) => {
    const { number, hash, timestamp } = await node.getBlock();
    blocks.set(number, { number, hash, timestamp });
    return number;
  });
  const block = blocks.get(newest);
  assert(block !== undefined, 'a node has returned the block');
  return block;
}

/** Whether the node ran the call and the call failed. */
export function isExecutionFailure(error: unknown): boolean {
  const found = rpcErrorOf(error);
  if (found === undefined) return false;
  return EXECUTION_CODES.has(found.code) || EXECUTION_TEXT.test(found.text);
}

/**
 * A client that records whether a node failed to respond, because the libraries report a failed call as a
 * bad signature or a missing contract.
 */
export function trackedClient(base: EvmClient) {
  let hasNodeFailed = false;
  const request = async (call: unknown): Promise<unknown> => {
    try {
      return await base.request(call as never); // from viem's own actions
    } catch (error) {
      if (!isExecutionFailure(error)) hasNodeFailed = true;
      throw error;
    }
  };
  return { client: clientOn(request), hasNodeFailed: () => hasNodeFailed };
}

function clientOn(request: (call: unknown) => Promise<unknown>): EvmClient {
  const transport = custom({ request }, { retryCount: 0 });
  return createPublicClient({ transport, cacheTime: 0 });
}

export async function receiptOf(
  client: EvmClient,
  hash: Hex,
): Promise<TransactionReceipt | undefined> {
  try {
    return await client.getTransactionReceipt({ hash });
  } catch (error) {
    if (hasCause(error, TransactionReceiptNotFoundError)) return undefined;
    throw error;
  }
}

export async function isKnownTransaction(client: EvmClient, hash: Hex): Promise<boolean> {
  try {
    await client.getTransaction({ hash });
    return true;
  } catch (error) {
    if (hasCause(error, TransactionNotFoundError)) return false;
    throw error;
  }
}

function hasCause(error: unknown, kind: new (...args: never[]) => Error): boolean {
  return error instanceof BaseError && error.walk((cause) => cause instanceof kind) !== null;
}
