/**
 * What the official EVM scheme classes run on: reads go to the chain, the one write is journaled
 * and sent by `EvmSender`, receipts are waited for within a bound.
 *
 * The scheme reads a failed chain call as a bad signature; `isTroubled` tells the two apart.
 */
import type { FacilitatorEvmSigner } from '@x402/evm';
import {
  BaseError,
  ContractFunctionRevertedError,
  encodeFunctionData,
  RawContractError,
} from 'viem';
import type { Abi, Hex } from 'viem';
import type { Clock } from '../../kernel/clock.ts';
import { receiptOf } from './chain.ts';
import type { EvmClient } from './chain.ts';
import type { Call } from './sender.ts';

export interface SignerOptions {
  readonly client: EvmClient;
  readonly clock: Clock;
  readonly addresses: readonly Hex[];
  /** Sends a token call; `args` are those of `transferWithAuthorization`. */
  readonly send: (call: Call, args: readonly unknown[]) => Promise<Hex>;
  readonly waitMs: number;
  readonly pollMs: number;
}

export interface TrackedSigner {
  readonly signer: FacilitatorEvmSigner;
  /** Whether the chain failed to answer any question so far. */
  isTroubled(): boolean;
}

/** One signer for one verify or settle. */
export function trackedSigner(options: SignerOptions): TrackedSigner {
  const { client, clock } = options;
  let isTroubled = false;
  async function ask<T>(question: () => Promise<T>): Promise<T> {
    try {
      return await question();
    } catch (error) {
      // A revert is an answer; everything else is a chain that could not be asked.
      if (!isRevert(error)) isTroubled = true;
      throw error;
    }
  }
  async function waitForReceipt(
    hash: Hex,
  ): Promise<{ status: string; logs: never[] | readonly never[] }> {
    const deadlineMs = clock.monotonicMs() + options.waitMs;
    for (;;) {
      const receipt = await receiptOf(client, hash).catch(() => undefined); // asked again below
      if (receipt !== undefined) return receipt as never; // viem's receipt is what the scheme expects
      if (clock.monotonicMs() >= deadlineMs)
        throw new Error('The transaction is not in a block yet');
      await clock.sleep(options.pollMs);
    }
  }
  const signer: FacilitatorEvmSigner = {
    getAddresses: () => options.addresses,
    getCode: async ({ address }) => await ask(() => client.getCode({ address })),
    readContract: async (call) =>
      await ask(() => client.readContract({ ...call, abi: call.abi as Abi })), // the scheme passes viem ABIs
    verifyTypedData: async () =>
      await Promise.reject(new Error('Signatures are checked by digest')),
    writeContract: async (call) => {
      const data = encodeFunctionData({
        abi: call.abi as Abi, // the scheme passes viem ABIs
        functionName: call.functionName,
        args: call.args,
      });
      return await options.send({ to: call.address, data }, call.args);
    },
    // Deployments of counterfactual wallets would be paid from our gas: none is allowed.
    sendTransaction: async () => await Promise.reject(new Error('Deployments are not allowed')),
    waitForTransactionReceipt: async ({ hash }) => await waitForReceipt(hash),
  };
  return { signer, isTroubled: () => isTroubled };
}

function isRevert(error: unknown): boolean {
  return (
    error instanceof BaseError &&
    error.walk(
      (cause) =>
        cause instanceof ContractFunctionRevertedError || cause instanceof RawContractError,
    ) !== null
  );
}
