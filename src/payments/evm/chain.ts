/**
 * The EVM chain as payments see it: a viem client with explicit time limits, and the few calls of
 * an ERC-3009 token. Reads only; sending is `sender.ts`.
 */
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
import type { Clock } from '../../core/clock.ts';
import { Failover, NODE_TIMEOUT_MS, nodeUrls } from '../nodes.ts';

export const TOKEN_ABI = parseAbi([
  'function authorizationState(address authorizer, bytes32 nonce) view returns (bool)',
  'function balanceOf(address account) view returns (uint256)',
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
  'event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)',
  'event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)',
  'event Transfer(address indexed from, address indexed to, uint256 value)',
]);

/** EIP-712 types of an ERC-3009 transfer. */
export const TRANSFER_TYPES = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

const RPC_TIMEOUT_MS = 10_000;
/** Reads are repeated by the transport; a repeated broadcast is answered "already known". */
const RPC_RETRIES = 2;
const RETRY_DELAY_MS = 150;

export type EvmClient = PublicClient;

export interface EvmNodes {
  /** Asks the nodes in their order, the next one when one fails. */
  readonly client: EvmClient;
  /** Each for itself, where all of them are witnesses. */
  readonly each: readonly EvmClient[];
}

export function openEvmNodes(rpcUrl: string | readonly string[], clock: Clock): EvmNodes {
  const urls = nodeUrls(rpcUrl);
  const isAlone = urls.length === 1;
  const each = urls.map((url) =>
    createPublicClient({
      transport: http(url, {
        timeout: isAlone ? RPC_TIMEOUT_MS : NODE_TIMEOUT_MS,
        // The next node takes the place of a repetition.
        retryCount: isAlone ? RPC_RETRIES : 0,
        retryDelay: RETRY_DELAY_MS,
      }),
      cacheTime: 0,
    }),
  );
  const [only] = each;
  if (only !== undefined && isAlone) return { client: only, each };
  const failover = new Failover(each, clock);
  const request = async (call: unknown): Promise<unknown> =>
    await failover.ask(
      // A call of the same library's actions.
      async (node) => await node.request(call as never),
      isChainAnswer,
    );
  const transport = custom({ request }, { retryCount: 0 });
  return { client: createPublicClient({ transport, cacheTime: 0 }), each };
}

/** Codes with which a chain answers: it ran the call, or refuses the transaction or the question. */
const ANSWER_CODES = new Set([3, -32_000, -32_003, -32_015, -32_600, -32_602]);
/** What nodes say under the same codes of what they lack themselves. */
const NODE_TEXT =
  /missing trie node|header not found|unknown block|pruned|state .{0,40}not available|rate limit|too many requests|capacity/i;

/** Whether another node would say the same; without a code or with another one the node has failed. */
function isChainAnswer(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  const found = error.walk(
    (cause) => cause instanceof Error && 'code' in cause && typeof cause.code === 'number',
  );
  if (found === null) return false;
  const { code } = found as { code?: number }; // found by it
  const text = found instanceof BaseError ? found.details : found.message;
  if (/execution reverted/i.test(text)) return true;
  return ANSWER_CODES.has(code ?? 0) && !NODE_TEXT.test(text);
}

/** The receipt, or `undefined` while the transaction is not in a block. */
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

/** Whether the node knows the transaction, mined or waiting. */
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
