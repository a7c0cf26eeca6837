/**
 * What the chain shows about a payment, whoever sent it.
 *
 * An ERC-3009 authorization can be used once by anybody, or cancelled; both read as used. Paid means: the
 * token emitted `AuthorizationUsed(from, nonce)` and, as its very next log, `Transfer(from, payTo,
 * value)`. A transfer elsewhere in the same receipt does not count: it may belong to another
 * authorization of the same payer, which would credit one payment twice.
 *
 * Permit2 keeps one bit for an authorization that was used or cancelled, and logs neither. Only our gas
 * key can move it, so paid means: a transaction that calls the proxy to settle this very authorization,
 * and in whose receipt the token moved as much as was called for. One that was never sent was not paid.
 */
import {
  decodeFunctionData,
  isAddressEqual,
  numberToHex,
  pad,
  parseEventLogs,
  toEventSelector,
} from 'viem';
import type { Hex, RpcLog, TransactionReceipt } from 'viem';
import type { Erc3009, Permit2 } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type { Attempt, Evidence, Paid, Received, ReceivedSearch } from '../rail.ts';
import { type EvmClient, isKnownTransaction, receiptOf, TOKEN_ABI } from './chain.ts';
import { PERMIT2, PERMIT2_ABI, UPTO_ABI, UPTO_PROXY } from './permit2.ts';

/** A payment may have been sent by others before it was shown to us: about an hour of Base blocks. */
const LOOKBACK_BLOCKS = 1_800n;
/** Public nodes refuse wider ranges of logs. */
const RANGE_BLOCKS = 2_000n;
/** About two days of Base blocks; a row is settled long before. */
const MAX_RANGES = 45;
/** Nodes behind one address differ by some blocks: expired means expired for all of them. */
const EXPIRY_MARGIN_SECONDS = 60n;

const TRANSFER_TOPIC = toEventSelector('Transfer(address,address,uint256)');
const USED_TOPIC = toEventSelector('AuthorizationUsed(address,bytes32)');
const CANCELED_TOPIC = toEventSelector('AuthorizationCanceled(address,bytes32)');

/** How one kind of authorization shows on the chain. */
interface Traces {
  /** Unix seconds of its end. */
  readonly until: bigint;
  readonly isUsed: () => Promise<boolean>;
  readonly isPaidBy: (receipt: TransactionReceipt) => boolean | Promise<boolean>;
  /** What has become of one that is used, as of this block. */
  readonly findUse: (block: { number: bigint; isPastEnd: boolean }) => Promise<Evidence>;
}

/** A paid one is confirmed as far as this goes; how deep it must be is the caller's to ask. */
export async function findErc3009Payment(
  client: EvmClient,
  token: Hex,
  payment: Erc3009,
  attempt: Attempt,
): Promise<Evidence> {
  return await findPayment(client, attempt, {
    until: payment.validBefore,
    isPaidBy: (receipt) => paysExactly(receipt, token, payment),
    isUsed: async () =>
      await client.readContract({
        address: token,
        abi: TOKEN_ABI,
        functionName: 'authorizationState',
        args: [payment.from, payment.nonce],
      }),
    findUse: async ({ number }) =>
      await findUse(client, token, payment, attempt.startHeight, number),
  });
}

/** A permit and how much of it is moved, in base units. */
type Settlement = Permit2 & { readonly units: bigint };

/** The same for one of the scheme `upto`. */
export async function findPermit2Payment(
  client: EvmClient,
  payment: Settlement,
  attempt: Attempt,
): Promise<Evidence> {
  const { from, nonce, deadline } = payment;
  return await findPayment(client, attempt, {
    until: deadline,
    isPaidBy: async (receipt) => await settles(client, receipt, payment),
    isUsed: async () => {
      const bitmap = await client.readContract({
        address: PERMIT2,
        abi: PERMIT2_ABI,
        functionName: 'nonceBitmap',
        args: [from, nonce >> 8n],
      });
      return ((bitmap >> (nonce & 0xffn)) & 1n) === 1n;
    },
    findUse: async (block) => await findSettlement(client, payment, attempt, block),
  });
}

async function findPayment(client: EvmClient, attempt: Attempt, traces: Traces): Promise<Evidence> {
  const transaction = attempt.transaction as Hex | undefined; // journaled by this rail
  const receipt = transaction === undefined ? undefined : await receiptOf(client, transaction);
  if (receipt !== undefined && (await traces.isPaidBy(receipt))) return paidBy(receipt);
  // The block first, the state second: an unused state that is younger than the expiry is final.
  const { number, timestamp } = await client.getBlock();
  const isPastEnd = timestamp > traces.until + EXPIRY_MARGIN_SECONDS;
  if (await traces.isUsed()) return await traces.findUse({ number, isPastEnd });
  if (isPastEnd) return { kind: 'final', reason: 'authorization_expired' };
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
  const topics = [[USED_TOPIC, CANCELED_TOPIC], pad(payment.from), payment.nonce];
  for await (const log of logsSince(client, { address: token, topics }, startHeight, latest)) {
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

interface WantedLogs {
  readonly address: Hex;
  readonly topics: (Hex | Hex[])[];
}

function isWanted({ address, topics }: RpcLog, wanted: WantedLogs): boolean {
  if (!isAddressEqual(address, wanted.address)) return false;
  return wanted.topics.every((allowed, at) =>
    [allowed].flat().some((topic) => topic.toLowerCase() === topics[at]?.toLowerCase()),
  );
}

/** Logs in the order of their blocks, asked for range by range. */
async function* logsSince(
  client: EvmClient,
  wanted: WantedLogs,
  startHeight: bigint,
  latest: bigint,
): AsyncGenerator<RpcLog> {
  const first = (startHeight === 0n ? latest : startHeight) - LOOKBACK_BLOCKS;
  let from = first > 0n ? first : 0n;
  for (let ranges = 0; from <= latest && ranges < MAX_RANGES; ranges += 1, from += RANGE_BLOCKS) {
    const fromBlock = numberToHex(from);
    const toBlock = numberToHex(endOfRange(from, latest));
    const logs = await client.request({
      method: 'eth_getLogs',
      params: [{ ...wanted, fromBlock, toBlock }],
    });
    // A node that passes over a part of the question gives the logs of others.
    for (const log of logs) if (isWanted(log, wanted)) yield log;
  }
}

/**
 * Searches the log for the transfer of a permit that is used: by another transaction of our gas key than
 * the row names, whose fee was raised or which was signed again. When there is none it was used for
 * something else, or cancelled; a node may have logs later than states, so that is said at its end.
 */
async function findSettlement(
  client: EvmClient,
  payment: Settlement,
  { startHeight, transaction }: Attempt,
  block: { readonly number: bigint; readonly isPastEnd: boolean },
): Promise<Evidence> {
  if (startHeight === 0n) return { kind: 'final', reason: USED_BEFORE };
  const { token: address, from, to } = payment;
  const topics = [TRANSFER_TOPIC, pad(from), pad(to)];
  // What was never signed by us was not paid to us.
  const logs =
    transaction === undefined
      ? []
      : logsSince(client, { address, topics }, startHeight, block.number);
  for await (const { transactionHash: hash, data } of logs) {
    if (hash === null || BigInt(data) !== payment.units) continue;
    const receipt = await receiptOf(client, hash);
    if (receipt !== undefined && (await settles(client, receipt, payment))) return paidBy(receipt);
  }
  if (transaction === undefined || block.isPastEnd) {
    return { kind: 'final', reason: 'authorization_used_for_another_transfer' };
  }
  throw new Error('The authorization is used, but its settlement is not found yet');
}

/** Whether the receipt is of the call that settles this very permit, and the token moved as much. */
async function settles(
  client: EvmClient,
  { status, logs, transactionHash: hash }: TransactionReceipt,
  payment: Settlement,
): Promise<boolean> {
  if (status !== 'success') return false;
  const { to, input } = await client.getTransaction({ hash });
  if (to === null || !isAddressEqual(to, UPTO_PROXY)) return false;
  const call = readSettle(input);
  if (call?.nonce !== payment.nonce || call.units !== payment.units) return false;
  if (!isAddressEqual(call.owner, payment.from)) return false;
  const own = logs.filter((log) => isAddressEqual(log.address, payment.token));
  return parseEventLogs({ abi: TOKEN_ABI, logs: own, eventName: 'Transfer' }).some(
    ({ args }) =>
      isAddressEqual(args.from, payment.from) &&
      isAddressEqual(args.to, payment.to) &&
      args.value === payment.units,
  );
}

/** Which permit a call of the proxy settles, and how much of it; `undefined` for any other call. */
function readSettle(
  data: Hex,
): { readonly nonce: bigint; readonly units: bigint; readonly owner: Hex } | undefined {
  try {
    const { functionName, args } = decodeFunctionData({ abi: UPTO_ABI, data });
    const [{ nonce }, units, owner] =
      functionName === 'settle' ? args : ([args[1], args[2], args[3]] as const);
    return { nonce, units, owner };
  } catch {
    // Somebody else's call, whatever it says.
    return undefined;
  }
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
