/**
 * The EVM chain as payments see it: a viem client with explicit time limits, and the few calls of
 * an ERC-3009 token. Reads only; sending is `sender.ts`.
 */
import {
  BaseError,
  createPublicClient,
  http,
  parseAbi,
  TransactionNotFoundError,
  TransactionReceiptNotFoundError,
} from 'viem';
import type { Hex, PublicClient, TransactionReceipt } from 'viem';

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

export function openEvmClient(rpcUrl: string): EvmClient {
  return createPublicClient({
    transport: http(rpcUrl, {
      timeout: RPC_TIMEOUT_MS,
      retryCount: RPC_RETRIES,
      retryDelay: RETRY_DELAY_MS,
    }),
    cacheTime: 0,
  });
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
