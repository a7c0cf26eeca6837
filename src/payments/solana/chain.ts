/**
 * Solana: JSON-RPC over the kit's client with a time limit for each call, and the operator's keys.
 * Transactions are base64 wire bytes; their id is the fee payer's signature.
 */
import { createHash } from 'node:crypto';
import {
  type Address,
  type Base64EncodedWireTransaction,
  type createSolanaRpc,
  type KeyPairSigner,
  type RpcTransport,
  type Transaction,
  blockhash,
  createKeyPairSignerFromBytes,
  createKeyPairSignerFromPrivateKeyBytes,
  createSolanaRpcFromTransport,
  fetchEncodedAccount,
  getBase58Decoder,
  getCompiledTransactionMessageDecoder,
  getTransactionDecoder,
  signature,
} from '@solana/kit';
import { fetchMaybeToken } from '@solana-program/token';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import { assert } from '../../core/assert.ts';
import { SEED_BYTES, solanaKeyBytes } from '../../core/wallet-keys.ts';
import { boundedText } from '../bounded.ts';
import { Failover, NODE_TIMEOUT_MS } from '../nodes.ts';
import type { GasState } from '../rail.ts';

const RPC_TIMEOUT_MS = 10_000;

export type SolanaRpc = ReturnType<typeof createSolanaRpc>;

export type SolanaNodes = ReturnType<typeof openSolanaNodes>;

/**
 * `rpc` calls the nodes in their order, the next one after a failure, and those that lag (`avoid`) last;
 * `each` has one for each node.
 */
export function openSolanaNodes(rpcUrl: string | readonly string[], clock: Clock) {
  // A node that is named twice has one vote.
  const urls = [...new Set([rpcUrl].flat())];
  const limitMs = urls.length === 1 ? RPC_TIMEOUT_MS : NODE_TIMEOUT_MS;
  const transports = urls.map((url) => transportTo(url, limitMs));
  const each = transports.map((node) => createSolanaRpcFromTransport(node));
  const [only] = each;
  if (only !== undefined && each.length === 1) return { rpc: only, each, avoid: () => undefined };
  const failover = new Failover(transports, clock);
  const transport: RpcTransport = async (call) =>
    await failover.call(
      async (node) => {
        const response = await node(call);
        if (hasNodeFault(response))
          throw new Error('The node has an internal error or lacks the data');
        return response as never; // returned unchanged
      },
      () => false,
      (call.payload as { method: string }).method === 'sendTransaction', // JSON-RPC
    );
  return { rpc: createSolanaRpcFromTransport(transport), each, avoid: failover.avoid };
}

/** Replaces the transport of the kit, which accepts responses of any size. */
function transportTo(url: string, limitMs: number): RpcTransport {
  return async ({ payload }) => {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      // Slots and heights are below 2^53.
      body: JSON.stringify(payload, (_, value: unknown) =>
        typeof value === 'bigint' ? Number(value) : value,
      ),
      signal: AbortSignal.timeout(limitMs),
    });
    const text = await boundedText(response);
    if (!response.ok) throw new Error(`The node responded with status ${response.status}`);
    return JSON.parse(text, exactInteger) as never; // read by the caller
  };
}

const INTEGER = /^-?\d+$/;

/** Reads whole numbers as `bigint`, as the kit does. */
function exactInteger(_: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = '' } = context ?? {};
  return typeof value === 'number' && INTEGER.test(source) ? BigInt(source) : value;
}

/** Codes of a node that lacks data or lags, and of its internal errors. */
const NODE_FAULTS = new Set([-32_004, -32_005, -32_011, -32_014, -32_016, -32_601, -32_603]);

function hasNodeFault(response: unknown): boolean {
  const code = (response as { error?: { code?: unknown } }).error?.code; // JSON-RPC
  return NODE_FAULTS.has(Number(code)) || Number(code) > 0;
}

/** Unix seconds of the newest confirmed block. */
export async function newestSeconds(rpc: SolanaRpc): Promise<number> {
  const slot = await rpc.getSlot({ commitment: 'confirmed' }).send();
  return Number(await rpc.getBlockTime(slot).send());
}

/** The status of a transaction id; `confirmed` and `failed` transactions have run in `slot`. */
export type SignatureStatus =
  | { readonly kind: 'unknown' | 'seen' }
  | {
      readonly kind: 'confirmed' | 'failed';
      readonly slot: bigint;
      readonly isFinal: boolean;
    };

export async function statusOf(rpc: SolanaRpc, transaction: string): Promise<SignatureStatus> {
  const { value } = await rpc
    .getSignatureStatuses([signature(transaction)], { searchTransactionHistory: true })
    .send();
  const entry = value[0];
  if (entry === null || entry === undefined) return { kind: 'unknown' };
  const level = entry.confirmationStatus;
  if (level !== 'confirmed' && level !== 'finalized') return { kind: 'seen' };
  const kind = entry.err === null ? 'confirmed' : 'failed';
  return { kind, slot: entry.slot, isFinal: level === 'finalized' };
}

export async function sendWire(rpc: SolanaRpc, wire: string): Promise<void> {
  await rpc
    .sendTransaction(wire as Base64EncodedWireTransaction, {
      encoding: 'base64',
      skipPreflight: true,
      preflightCommitment: 'confirmed',
    })
    .send();
}

const CONFIRMED = { commitment: 'confirmed' } as const;

/** The program that owns an account; `undefined` if the account does not exist. */
export async function ownerOf(rpc: SolanaRpc, account: Address): Promise<Address | undefined> {
  const found = await fetchEncodedAccount(rpc, account, CONFIRMED);
  return found.exists ? found.programAddress : undefined;
}

/** Balance of a token account in base units; zero if the account does not exist. */
export async function tokensOf(rpc: SolanaRpc, account: Address): Promise<bigint> {
  const found = await fetchMaybeToken(rpc, account, CONFIRMED);
  return found.exists ? found.data.amount : 0n;
}

/** Confirmed transactions of an account, newest first, older than `before`. */
export async function pageOfIds(
  rpc: SolanaRpc,
  account: Address,
  limit: number,
  before?: string,
): Promise<readonly { readonly id: string; readonly slot: bigint; readonly hasRun: boolean }[]> {
  const page = before === undefined ? {} : { before: signature(before) };
  const entries = await rpc
    .getSignaturesForAddress(account, { limit, ...CONFIRMED, ...page })
    .send();
  return entries.map(({ signature: id, slot, err }) => ({ id, slot, hasRun: err === null }));
}

/** By default `getTransaction` reads only legacy, finalized transactions. */
const ANY_VERSION = { ...CONFIRMED, maxSupportedTransactionVersion: 0 } as const;

interface TokenBalance {
  readonly accountIndex: number;
  readonly uiTokenAmount: { readonly amount: string };
}

/** Change of a token account by a transaction; `undefined` if the node does not return it. */
export async function tokenChange(
  rpc: SolanaRpc,
  id: string,
  account: Address,
): Promise<bigint | undefined> {
  const found = await rpc
    .getTransaction(signature(id), { ...ANY_VERSION, encoding: 'jsonParsed' })
    .send();
  if (found === null || found.meta === null) return undefined;
  const index = found.transaction.message.accountKeys.findIndex(({ pubkey }) => pubkey === account);
  const amountOf = (balances: readonly TokenBalance[] | undefined): bigint => {
    const balance = balances?.find((one) => one.accountIndex === index);
    return BigInt(balance?.uiTokenAmount.amount ?? 0);
  };
  return amountOf(found.meta.postTokenBalances) - amountOf(found.meta.preTokenBalances);
}

export async function wireOf(rpc: SolanaRpc, id: string): Promise<string | undefined> {
  const found = await rpc
    .getTransaction(signature(id), { ...ANY_VERSION, encoding: 'base64' })
    .send();
  return found?.transaction[0];
}

/**
 * Lamports that the fee payer has lost by a final transaction: the fee, and the deposit of a token account
 * that it has opened. `dead` if no final block has it.
 */
export async function gasOf(rpc: SolanaRpc, id: string, nowMs: number): Promise<GasState> {
  const found = await rpc
    .getTransaction(signature(id), {
      commitment: 'finalized',
      maxSupportedTransactionVersion: 0,
      encoding: 'base64',
    })
    .send();
  if (found === null) return 'dead';
  const [before, after] = [found.meta?.preBalances[0], found.meta?.postBalances[0]];
  if (before === undefined || after === undefined) return 'waiting';
  const paidMs = found.blockTime === null ? nowMs : Number(found.blockTime) * SECOND_MS;
  return { amount: before - after, paidMs };
}

/** Whether a block after the newest final one can still contain the transaction. */
export async function isBlockhashValid(rpc: SolanaRpc, wire: string): Promise<boolean> {
  const { messageBytes } = decodeWire(wire);
  const { lifetimeToken } = getCompiledTransactionMessageDecoder().decode(messageBytes);
  const { value } = await rpc
    .isBlockhashValid(blockhash(lifetimeToken), { commitment: 'finalized' })
    .send();
  return value;
}

/** Throws if the text is not base64 wire bytes. */
export function decodeWire(wire: string): Transaction {
  return getTransactionDecoder().decode(Buffer.from(wire, 'base64'));
}

/** Lower-case hex SHA-256 of the message, which the signatures do not change. */
export function messageHash(transaction: Transaction): string {
  return createHash('sha256').update(Uint8Array.from(transaction.messageBytes)).digest('hex');
}

/** The fee payer's signature as base58. Throws if it has not signed. */
export function transactionId(transaction: Transaction): string {
  const first = Object.values(transaction.signatures)[0];
  if (first === null || first === undefined) throw new Error('The fee payer has not signed');
  return getBase58Decoder().decode(first);
}

export async function readSolanaKey(text: string): Promise<KeyPairSigner> {
  const bytes = solanaKeyBytes(text);
  assert(bytes !== undefined, 'the configuration validates keys');
  return bytes.length === SEED_BYTES
    ? await createKeyPairSignerFromPrivateKeyBytes(bytes)
    : await createKeyPairSignerFromBytes(bytes);
}
