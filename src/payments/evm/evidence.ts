/**
 * What the chain shows about an ERC-3009 payment, whoever sent it.
 *
 * An authorization can be used once by anybody, or cancelled; both read as used. Paid means: the
 * token emitted `AuthorizationUsed(from, nonce)` and, as its very next log, `Transfer(from, payTo,
 * value)`. A transfer elsewhere in the same receipt does not count: it may belong to another
 * authorization of the same payer, which would credit one payment twice.
 */
import { isAddressEqual, numberToHex, pad, parseEventLogs, toEventSelector } from 'viem';
import type { Hex, TransactionReceipt } from 'viem';
import type { Erc3009 } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type { Attempt, Evidence, Paid, Received, ReceivedSearch } from '../rail.ts';
import { type EvmClient, isKnownTransaction, receiptOf, TOKEN_ABI } from './chain.ts';

/** A payment may have been sent by others before it was shown to us: about an hour of Base blocks. */
const LOOKBACK_BLOCKS = 1_800n;
/** Public nodes refuse wider ranges of logs. */
const RANGE_BLOCKS = 2_000n;
/** About two days of Base blocks; a row is settled long before. */
const MAX_RANGES = 45;
/** Nodes behind one address differ by some blocks: expired means expired for all of them. */
const EXPIRY_MARGIN_SECONDS = 60n;

const USED_TOPIC = toEventSelector('AuthorizationUsed(address,bytes32)');
const CANCELED_TOPIC = toEventSelector('AuthorizationCanceled(address,bytes32)');

/** A paid one is confirmed as far as this goes; how deep it must be is the caller's to ask. */
export async function findErc3009Payment(
  client: EvmClient,
  token: Hex,
  payment: Erc3009,
  attempt: Attempt,
): Promise<Evidence> {
  const transaction = attempt.transaction as Hex | undefined; // journaled by this rail
  const receipt = transaction === undefined ? undefined : await receiptOf(client, transaction);
  if (receipt !== undefined && paysExactly(receipt, token, payment)) return paidBy(receipt);
  // The block first, the state second: an unused state that is younger than the expiry is final.
  const block = await client.getBlock();
  const isUsed = await client.readContract({
    address: token,
    abi: TOKEN_ABI,
    functionName: 'authorizationState',
    args: [payment.from, payment.nonce],
  });
  if (isUsed) return await findUse(client, token, payment, attempt.startHeight, block.number);
  if (block.timestamp > payment.validBefore + EXPIRY_MARGIN_SECONDS) {
    return { kind: 'final', reason: 'authorization_expired' };
  }
  if (transaction === undefined) return { kind: 'open', attempt: 'none' };
  if (receipt !== undefined) return { kind: 'open', attempt: 'reverted' };
  const isKnown = await isKnownTransaction(client, transaction);
  return { kind: 'open', attempt: isKnown ? 'waiting' : 'unseen' };
}

/**
 * Searches the log for the use or the cancellation of an authorization: from where the payment was
 * first seen on, because it lives for minutes; the newest blocks alone when it was never seen.
 */
async function findUse(
  client: EvmClient,
  token: Hex,
  payment: Erc3009,
  startHeight: bigint,
  latest: bigint,
): Promise<Evidence> {
  const first = (startHeight === 0n ? latest : startHeight) - LOOKBACK_BLOCKS;
  let from = first > 0n ? first : 0n;
  for (let ranges = 0; from <= latest && ranges < MAX_RANGES; ranges += 1, from += RANGE_BLOCKS) {
    const logs = await client.request({
      method: 'eth_getLogs',
      params: [
        {
          address: token,
          topics: [[USED_TOPIC, CANCELED_TOPIC], pad(payment.from), payment.nonce],
          fromBlock: numberToHex(from),
          toBlock: numberToHex(endOfRange(from, latest)),
        },
      ],
    });
    const log = logs[0];
    if (log === undefined) continue;
    if (log.topics[0] === CANCELED_TOPIC) {
      return { kind: 'final', reason: 'authorization_cancelled' };
    }
    const hash = log.transactionHash;
    const receipt = hash === null ? undefined : await receiptOf(client, hash);
    if (receipt === undefined) break;
    return paysExactly(receipt, token, payment)
      ? paidBy(receipt)
      : { kind: 'final', reason: 'authorization_used_for_another_transfer' };
  }
  // It was never seen here: whenever it was used, that was before.
  if (startHeight === 0n) return { kind: 'final', reason: USED_BEFORE };
  throw new Error('The authorization is used, but its log is not found yet');
}

function endOfRange(from: bigint, latest: bigint): bigint {
  const last = from + RANGE_BLOCKS - 1n;
  return last < latest ? last : latest;
}

function paidBy({ transactionHash: transaction, blockNumber: height }: TransactionReceipt): Paid {
  return { kind: 'paid', transaction, height, isConfirmed: true };
}

/** Whether the receipt shows this very authorization followed by its transfer. */
function paysExactly(receipt: TransactionReceipt, token: Hex, payment: Erc3009): boolean {
  if (receipt.status !== 'success') return false;
  const own = receipt.logs.filter((log) => isAddressEqual(log.address, token));
  const events = parseEventLogs({ abi: TOKEN_ABI, logs: own });
  return events.some((used) => {
    if (used.eventName !== 'AuthorizationUsed') return false;
    if (used.args.nonce.toLowerCase() !== payment.nonce.toLowerCase()) return false;
    if (!isAddressEqual(used.args.authorizer, payment.from)) return false;
    const next = events.find((event) => event.logIndex === used.logIndex + 1);
    return (
      next?.eventName === 'Transfer' &&
      isAddressEqual(next.args.from, payment.from) &&
      isAddressEqual(next.args.to, payment.to) &&
      next.args.value === payment.value
    );
  });
}

/** Transfers of a token to a receiver, from the log of the chain. */
export async function receivedTransfers(
  client: EvmClient,
  { offer, fromHeight, isKnown, onProgress }: ReceivedSearch,
): Promise<readonly Received[]> {
  const latest = await client.getBlockNumber();
  const found: Received[] = [];
  for (let fromBlock = fromHeight; fromBlock <= latest; fromBlock += RANGE_BLOCKS) {
    const toBlock = endOfRange(fromBlock, latest);
    const logs = await client.getContractEvents({
      address: offer.asset as Hex, // of an offer of this rail
      abi: TOKEN_ABI,
      eventName: 'Transfer',
      args: { to: offer.payTo as Hex }, // the same
      fromBlock,
      toBlock,
    });
    for (const { transactionHash, blockNumber, args } of logs) {
      if (isKnown(transactionHash)) continue;
      found.push({ transaction: transactionHash, height: blockNumber, amountUnits: args.value });
    }
    onProgress?.(Number(toBlock - fromHeight), Number(latest - fromHeight));
  }
  return found;
}
