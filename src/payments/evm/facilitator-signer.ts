/**
 * What the official EVM scheme classes run on: reads go to the chain, the one write is journaled
 * and sent by `EvmSender`, receipts are waited for within a bound.
 *
 * The scheme reads a failed chain call as a bad signature; `isTroubled` tells the two apart.
 *
 * `getCode` never rejects. The scheme starts a look at the token's code and returns without waiting
 * for it when the payment is bad; its promise would reject with nobody there to hear it, which ends
 * a process. So code that could not be read is no code, and the trouble is remembered.
 */
import type { FacilitatorEvmSigner } from '@x402/evm';
import { encodeFunctionData } from 'viem';
import type { Abi, Hex } from 'viem';
import type { Clock } from '../../core/clock.ts';
import { askingClient } from './asking.ts';
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
  const { clock } = options;
  const asking = askingClient(options.client);
  const { client } = asking;
  async function waitForReceipt(
    hash: Hex,
  ): Promise<{ status: string; logs: never[] | readonly never[] }> {
    const deadlineMs = clock.monotonicMs() + options.waitMs;
    for (;;) {
      const receipt = await receiptOf(options.client, hash).catch(() => undefined); // asked again below
      if (receipt !== undefined) return receipt as never; // viem's receipt is what the scheme expects
      if (clock.monotonicMs() >= deadlineMs)
        throw new Error('The transaction is not in a block yet');
      await clock.sleep(options.pollMs);
    }
  }
  const signer: FacilitatorEvmSigner = {
    getAddresses: () => options.addresses,
    getCode: async ({ address }) => await client.getCode({ address }).catch(() => undefined), // remembered as trouble
    readContract: async (call) => await client.readContract({ ...call, abi: call.abi as Abi }), // the scheme passes viem ABIs
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
  return { signer, isTroubled: () => asking.isTroubled() };
}
