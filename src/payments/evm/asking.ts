/**
 * A chain client for one question of several calls, that remembers whether the node failed to
 * answer any of them.
 *
 * The libraries on top of it read a failed call as a bad signature or a missing contract. Whether
 * the chain said so or could not be asked is told apart here, where the answers come in: a revert,
 * an empty answer or a call without gas is an answer, everything else is trouble.
 */
import { BaseError, createPublicClient, custom } from 'viem';
import type { EvmClient } from './chain.ts';

export interface AskingClient {
  readonly client: EvmClient;
  /** Whether the node failed to answer any call so far. */
  isTroubled(): boolean;
}

/** Calls go out through `base`, with its time limits and repetitions. */
export function askingClient(base: EvmClient): AskingClient {
  let isTroubled = false;
  const request = async (call: unknown): Promise<unknown> => {
    try {
      return await base.request(call as never); // a call of the same library's actions
    } catch (error) {
      if (!isExecutionFailure(error)) isTroubled = true;
      throw error;
    }
  };
  const client = createPublicClient({
    transport: custom({ request }, { retryCount: 0 }),
    cacheTime: 0,
  });
  return { client, isTroubled: () => isTroubled };
}

/** EIP-1474 has no code for it; geth answers 3, Nethermind -32015. */
const EXECUTION_CODES = new Set([3, -32_015]);
/** What nodes without a code of their own say of a call that was run and failed. */
const EXECUTION_TEXT =
  /execution reverted|out ?of ?gas|gas required exceeds|intrinsic gas|invalid opcode|invalid ?jump|stack (?:under|over)flow|VM exception|EVM error/i;

/** Whether the node ran the call and the code of the chain refused it. */
export function isExecutionFailure(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  const found = error.walk((cause) => {
    const code: unknown = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    return typeof code === 'number';
  });
  if (found === null) return false;
  const { code } = found as { code?: number }; // found by it
  const text =
    found instanceof BaseError ? `${found.shortMessage} ${found.details}` : found.message;
  return EXECUTION_CODES.has(code ?? 0) || EXECUTION_TEXT.test(text);
}
