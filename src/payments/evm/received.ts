/** Transfers of a token to a receiver, from the log of the chain. */
import { decodeEventLog, numberToHex, pad, toEventSelector } from 'viem';
import type { Hex } from 'viem';
import type { Received, ReceivedSearch } from '../rail.ts';
import { TOKEN_ABI } from './chain.ts';
import type { EvmClient } from './chain.ts';

/** Public nodes refuse wider ranges of logs. */
const RANGE_BLOCKS = 2_000n;
const TRANSFER_TOPIC = toEventSelector('Transfer(address,address,uint256)');

export async function evmReceived(
  client: EvmClient,
  search: ReceivedSearch,
): Promise<readonly Received[]> {
  const { offer, fromHeight, isKnown, onProgress } = search;
  const latest = await client.getBlockNumber();
  const found: Received[] = [];
  for (let from = fromHeight; from <= latest; from += RANGE_BLOCKS) {
    const last = from + RANGE_BLOCKS - 1n;
    const logs = await client.request({
      method: 'eth_getLogs',
      params: [
        {
          address: offer.asset as Hex, // of an offer of this rail
          topics: [TRANSFER_TOPIC, null, pad(offer.payTo as Hex)],
          fromBlock: numberToHex(from),
          toBlock: numberToHex(last < latest ? last : latest),
        },
      ],
    });
    for (const log of logs) {
      const { transactionHash, blockNumber, data, topics } = log;
      if (transactionHash === null || blockNumber === null || isKnown(transactionHash)) continue;
      const event = decodeEventLog({ abi: TOKEN_ABI, data, topics });
      const amountUnits = event.eventName === 'Transfer' ? event.args.value : undefined;
      found.push({ transaction: transactionHash, height: BigInt(blockNumber), amountUnits });
    }
    onProgress?.(Number(last - fromHeight), Number(latest - fromHeight));
  }
  return found;
}
