/** Reads the gas of transactions from an EVM chain: of its final blocks only. */
import type { Hex } from 'viem';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import type { GasReader } from '../rail.ts';
import { type EvmClient, receiptOf } from './chain.ts';

/** Between this machine and a chain; it only saves calls. */
const CLOCK_DIFFERENCE_MS = MINUTE_MS;

/** Rejects if the node has no finalized block. */
export async function evmGasReader(client: EvmClient): Promise<GasReader> {
  const blockTag = 'finalized';
  const final = await client.getBlock({ blockTag });
  return async ({ transaction, payer, number, sentMs }) => {
    if (sentMs - CLOCK_DIFFERENCE_MS > Number(final.timestamp) * SECOND_MS) return 'waiting';
    const receipt = await receiptOf(client, transaction as Hex); // stored by the sender
    if (receipt === undefined) {
      const address = payer as Hex; // stored by the sender
      const mined = await client.getTransactionCount({ address, blockTag });
      return BigInt(mined) > number ? 'dead' : 'waiting';
    }
    const { blockNumber, blockHash, gasUsed, effectiveGasPrice } = receipt;
    if (blockNumber > final.number) return 'waiting';
    const block = await client.getBlock({ blockNumber });
    // Nodes behind one address can differ.
    if (block.hash !== blockHash) return 'waiting';
    // Chains of the OP stack add the fee of their data on Ethereum.
    const { l1Fee = 0n } = receipt as { l1Fee?: bigint | Hex };
    return {
      amount: gasUsed * effectiveGasPrice + BigInt(l1Fee),
      paidMs: Number(block.timestamp) * SECOND_MS,
    };
  };
}
