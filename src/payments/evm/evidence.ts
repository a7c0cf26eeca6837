/**
 * Finds payments on the chain, from any sender.
 *
 * ERC-3009: anybody can use an authorization once, or its payer can cancel it; the state is "used" in both
 * cases. It is paid if the token emitted `AuthorizationUsed(from, nonce)` and, as the next log,
 * `Transfer(from, payTo, value)`. A transfer elsewhere in the receipt does not count: it may belong to
 * another authorization of the same payer, and one payment would be credited twice.
 *
 * Permit2: the contract stores one bit for "used or cancelled" and logs neither. Only our gas key can use a
 * permit. It is paid if a transaction calls the proxy to settle the permit, and the token moved the amount
 * of the call in its receipt. A permit without a transaction of ours is not paid.
 */
import {
  PERMIT2_ADDRESS,
  x402UptoPermit2ProxyABI as UPTO_ABI,
  x402UptoPermit2ProxyAddress as UPTO_PROXY,
} from '@x402/evm';
import {
  decodeFunctionData,
  isAddressEqual,
  numberToHex,
  pad,
  parseEventLogs,
  toEventSelector,
} from 'viem';
import type { Hex, RpcLog, TransactionReceipt } from 'viem';
import { larger, smaller } from '../../core/money.ts';
import type { Erc3009, Permit2 } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type { Attempt, Evidence, Paid, Received, ReceivedSearch } from '../rail.ts';
import { type EvmClient, isKnownTransaction, receiptOf, TOKEN_ABI } from './chain.ts';
import { NONCE_ABI } from '../extensions/upto.ts';

/** Public nodes reject wider ranges of logs. */
const RANGE_BLOCKS = 2_000n;
/** Two days; most rows are settled before. */
const MAX_HOURS = 50n;
/** Nodes behind one address differ by some blocks. */
const EXPIRY_MARGIN_SECONDS = 60n;

const USED_OTHERWISE = 'authorization_used_for_another_transfer';

const TRANSFER_TOPIC = toEventSelector('Transfer(address,address,uint256)');
const USED_TOPIC = toEventSelector('AuthorizationUsed(address,bytes32)');
const CANCELED_TOPIC = toEventSelector('AuthorizationCanceled(address,bytes32)');

/** Number of blocks including the newest one, or a block tag. */
export type BlockDepth = number | 'safe' | 'finalized';

/** The highest block that is deep enough, with its time in Unix seconds. */
interface Deep {
  readonly height: bigint;
  readonly seconds: () => Promise<bigint>;
}

export interface Search {
  readonly attempt: Attempt;
  readonly depth: BlockDepth;
  /** Blocks of an hour, because others may have sent a payment before we received it. */
  readonly hourBlocks: bigint;
}

interface OpenedSearch extends Pick<Search, 'attempt' | 'hourBlocks'> {
  /** `undefined`: the newest block is deep enough. */
  readonly deep: Deep | undefined;
}

interface Traces {
  readonly until: bigint;
  readonly isUsed: () => Promise<boolean>;
  readonly isPaidBy: (receipt: TransactionReceipt) => boolean | Promise<boolean>;
  readonly findUse: (block: UsedBlock, search: OpenedSearch) => Promise<Evidence>;
}

interface UsedBlock {
  readonly number: bigint;
  readonly isPastEnd: boolean;
  /** True if the authorization has expired at a block that is deep enough. */
  readonly isEndDeep: () => Promise<boolean>;
}

export async function findErc3009Payment(
  client: EvmClient,
  token: Hex,
  payment: Erc3009,
  search: Search,
): Promise<Evidence> {
  return await findPayment(client, search, {
    until: payment.validBefore,
    isPaidBy: (receipt) => paysExactly(receipt, token, payment),
    isUsed: async () =>
      await client.readContract({
        address: token,
        abi: TOKEN_ABI,
        functionName: 'authorizationState',
        args: [payment.from, payment.nonce],
      }),
    findUse: async ({ number }, opened) => await findUse(client, token, payment, number, opened),
  });
}

type Settlement = Permit2 & { readonly units: bigint };

export async function findPermit2Payment(
  client: EvmClient,
  payment: Settlement,
  search: Search,
): Promise<Evidence> {
  const { from, nonce, deadline } = payment;
  return await findPayment(client, search, {
    until: deadline,
    isPaidBy: async (receipt) => await settles(client, receipt, payment),
    isUsed: async () => {
      const bitmap = await client.readContract({
        address: PERMIT2_ADDRESS,
        abi: NONCE_ABI,
        functionName: 'nonceBitmap',
        args: [from, nonce >> 8n],
      });
      return ((bitmap >> (nonce & 0xffn)) & 1n) === 1n;
    },
    findUse: async (block, opened) => await findSettlement(client, payment, block, opened),
  });
}

async function findPayment(client: EvmClient, search: Search, traces: Traces): Promise<Evidence> {
  const { attempt, hourBlocks } = search;
  const { seenHeight } = attempt;
  if (seenHeight !== undefined && (await client.getBlockNumber()) < seenHeight) {
    throw new Error('The node is behind the block of the payment');
  }
  // Read before the evidence, so that evidence at or below this height is deep enough.
  const deep = await deepOf(client, search.depth);
  const transaction = attempt.transaction as Hex | undefined; // journaled by this rail
  const receipt = transaction === undefined ? undefined : await receiptOf(client, transaction);
  if (receipt !== undefined && (await traces.isPaidBy(receipt))) return paidBy(receipt, deep);
  // Read before the state, so that an unused state after the expiry is final.
  const { number, timestamp } = await client.getBlock();
  const isPast = (seconds: bigint): boolean => seconds > traces.until + EXPIRY_MARGIN_SECONDS;
  const isPastEnd = isPast(timestamp);
  const isEndDeep = async (): Promise<boolean> =>
    deep === undefined || isPast(await deep.seconds());
  if (await traces.isUsed()) {
    return await traces.findUse({ number, isPastEnd, isEndDeep }, { attempt, hourBlocks, deep });
  }
  if (isPastEnd) {
    return { kind: 'final', reason: 'authorization_expired', isConfirmed: await isEndDeep() };
  }
  if (transaction === undefined) return { kind: 'open', attempt: 'none' };
  if (receipt !== undefined) return { kind: 'open', attempt: 'reverted' };
  const isKnown = await isKnownTransaction(client, transaction);
  return { kind: 'open', attempt: isKnown ? 'waiting' : 'unseen' };
}

async function deepOf(client: EvmClient, depth: BlockDepth): Promise<Deep | undefined> {
  if (depth === 1) return undefined;
  if (typeof depth === 'number') {
    const height = (await client.getBlockNumber()) - BigInt(depth - 1);
    const blockNumber = height > 0n ? height : 0n;
    return { height, seconds: async () => (await client.getBlock({ blockNumber })).timestamp };
  }
  try {
    const { number, timestamp } = await client.getBlock({ blockTag: depth });
    return { height: number, seconds: async () => timestamp };
  } catch {
    // The node has no such block, so no block is deep enough.
    return { height: -1n, seconds: async () => 0n };
  }
}

function isDeep(height: bigint, deep: Deep | undefined): boolean {
  return deep === undefined || height <= deep.height;
}

/**
 * Searches the log for the use or the cancellation of an authorization: from the block of its row on, or,
 * without a row, in the newest blocks.
 */
async function findUse(
  client: EvmClient,
  token: Hex,
  payment: Erc3009,
  latest: bigint,
  { attempt: { startHeight }, hourBlocks, deep }: OpenedSearch,
): Promise<Evidence> {
  const topics = [[USED_TOPIC, CANCELED_TOPIC], pad(payment.from), payment.nonce];
  const range = { startHeight, latest, hourBlocks };
  for await (const log of logsSince(client, { address: token, topics }, range)) {
    if (log.topics[0] === CANCELED_TOPIC) {
      const isConfirmed = log.blockNumber !== null && isDeep(BigInt(log.blockNumber), deep);
      return { kind: 'final', reason: 'authorization_cancelled', isConfirmed };
    }
    const hash = log.transactionHash;
    const receipt = hash === null ? undefined : await receiptOf(client, hash);
    if (receipt === undefined) break;
    if (paysExactly(receipt, token, payment)) return paidBy(receipt, deep);
    const isConfirmed = isDeep(receipt.blockNumber, deep);
    return { kind: 'final', reason: USED_OTHERWISE, isConfirmed };
  }
  if (startHeight === 0n) return { kind: 'final', reason: USED_BEFORE, isConfirmed: true };
  throw new Error('The authorization is used, but the node has no log of it yet');
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

interface BlockRange {
  readonly startHeight: bigint;
  readonly latest: bigint;
  readonly hourBlocks: bigint;
}

/**
 * Logs, requested in ranges: those of the first two days and of the last two, because an authorization
 * without an end can be used at any time, and unfinished rows are checked every few minutes. Then those
 * between, because the server can have been down.
 */
async function* logsSince(
  client: EvmClient,
  wanted: WantedLogs,
  { startHeight, latest, hourBlocks }: BlockRange,
): AsyncGenerator<RpcLog> {
  const start = (startHeight === 0n ? latest : startHeight) - hourBlocks;
  const most = MAX_HOURS * hourBlocks;
  const first = larger(start, 0n);
  const middle = first + most;
  const last = larger(middle, latest - most);
  const parts = [
    [first, smaller(middle - 1n, latest)],
    [last, latest],
    [middle, last - 1n],
  ] as const;
  for (const [begin, until] of parts) {
    for (let from = begin; from <= until; from += RANGE_BLOCKS) {
      const fromBlock = numberToHex(from);
      const toBlock = numberToHex(endOfRange(from, until));
      const logs = await client.request({
        method: 'eth_getLogs',
        params: [{ ...wanted, fromBlock, toBlock }],
      });
      // Some nodes ignore parts of the filter.
      for (const log of logs) if (isWanted(log, wanted)) yield log;
    }
  }
}

/**
 * Searches the log for the settlement of a used permit by a transaction of our gas key that is not in the
 * row, after a raised fee or a new signature. Without one the permit was used otherwise or cancelled; this
 * is decided at its deadline, because a node may return logs later than states.
 */
async function findSettlement(
  client: EvmClient,
  payment: Settlement,
  block: UsedBlock,
  { attempt: { startHeight, transaction }, hourBlocks, deep }: OpenedSearch,
): Promise<Evidence> {
  if (startHeight === 0n) return { kind: 'final', reason: USED_BEFORE, isConfirmed: true };
  const { token: address, from, to } = payment;
  const topics = [TRANSFER_TOPIC, pad(from), pad(to)];
  const logs =
    transaction === undefined
      ? []
      : logsSince(client, { address, topics }, { startHeight, latest: block.number, hourBlocks });
  for await (const { transactionHash: hash, data } of logs) {
    if (hash === null || BigInt(data) !== payment.units) continue;
    const receipt = await receiptOf(client, hash);
    if (receipt !== undefined && (await settles(client, receipt, payment))) {
      return paidBy(receipt, deep);
    }
  }
  if (transaction === undefined) {
    return { kind: 'final', reason: USED_OTHERWISE, isConfirmed: true };
  }
  if (block.isPastEnd) {
    return { kind: 'final', reason: USED_OTHERWISE, isConfirmed: await block.isEndDeep() };
  }
  throw new Error('The authorization is used, but the node has no log of its settlement yet');
}

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

function readSettle(
  data: Hex,
): { readonly nonce: bigint; readonly units: bigint; readonly owner: Hex } | undefined {
  try {
    const { functionName, args } = decodeFunctionData({ abi: UPTO_ABI, data });
    if (functionName !== 'settle' && functionName !== 'settleWithPermit') return undefined;
    const [{ nonce }, units, owner] =
      functionName === 'settle' ? args : ([args[1], args[2], args[3]] as const);
    return { nonce, units, owner };
  } catch {
    // Not a call of this contract.
    return undefined;
  }
}

function endOfRange(from: bigint, latest: bigint): bigint {
  const last = from + RANGE_BLOCKS - 1n;
  return last < latest ? last : latest;
}

function paidBy(
  { transactionHash: transaction, blockNumber: height }: TransactionReceipt,
  deep: Deep | undefined,
): Paid {
  return { kind: 'paid', transaction, height, isConfirmed: isDeep(height, deep) };
}

/** Whether the transaction made this payment. */
export function paysExactly(receipt: TransactionReceipt, token: Hex, payment: Erc3009): boolean {
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
