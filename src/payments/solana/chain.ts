/**
 * Solana as payments see it: JSON-RPC over the kit's client, with a time limit for each call.
 * Transactions are handled as base64 wire bytes; their id is the fee payer's signature.
 */
import { createHash } from 'node:crypto';
import {
  createDefaultRpcTransport,
  createSolanaRpc,
  createSolanaRpcFromTransport,
  getBase58Decoder,
  getTransactionDecoder,
  signature,
} from '@solana/kit';
import type { Address, Base64EncodedWireTransaction, RpcTransport, Transaction } from '@solana/kit';
import type { Clock } from '../../core/clock.ts';
import { Failover, NODE_TIMEOUT_MS, nodeUrls } from '../nodes.ts';

const RPC_TIMEOUT_MS = 10_000;

export type SolanaRpc = ReturnType<typeof createSolanaRpc>;

/** What the cluster says of a transaction id. `confirmed` has run, in that slot. */
export type SignatureStatus =
  | { readonly kind: 'unknown' | 'seen' | 'failed' }
  | { readonly kind: 'confirmed'; readonly slot: bigint; readonly isFinal: boolean };

interface TokenBalance {
  readonly accountIndex: number;
  readonly uiTokenAmount: { readonly amount: string };
}

export class SolanaChain {
  readonly rpc: SolanaRpc;

  constructor(rpc: SolanaRpc) {
    this.rpc = rpc;
  }

  /** Unix seconds of the newest confirmed block. */
  async newestSeconds(): Promise<number> {
    const slot = await this.rpc.getSlot({ commitment: 'confirmed' }).send(timeLimit());
    return Number(await this.rpc.getBlockTime(slot).send(timeLimit()));
  }

  async status(transaction: string): Promise<SignatureStatus> {
    const { value } = await this.rpc
      .getSignatureStatuses([signature(transaction)], { searchTransactionHistory: true })
      .send(timeLimit());
    const entry = value[0];
    if (entry === null || entry === undefined) return { kind: 'unknown' };
    const level = entry.confirmationStatus;
    if (level !== 'confirmed' && level !== 'finalized') return { kind: 'seen' };
    if (entry.err !== null) return { kind: 'failed' };
    return { kind: 'confirmed', slot: entry.slot, isFinal: level === 'finalized' };
  }

  /** Height of the newest block that cannot be forked away any more, or is confirmed. */
  async height(commitment: 'confirmed' | 'finalized'): Promise<bigint> {
    return await this.rpc.getBlockHeight({ commitment }).send(timeLimit());
  }

  /** Slots only ever grow, over every fork. */
  async slot(commitment: 'processed' | 'confirmed' | 'finalized'): Promise<bigint> {
    return await this.rpc.getSlot({ commitment }).send(timeLimit());
  }

  async send(wire: string): Promise<void> {
    await this.rpc
      .sendTransaction(wire as Base64EncodedWireTransaction, {
        encoding: 'base64',
        skipPreflight: true,
        preflightCommitment: 'confirmed',
      })
      .send(timeLimit());
  }

  /** Names the cluster: its first 32 characters are the CAIP-2 reference. */
  async genesisHash(): Promise<string> {
    return await this.rpc.getGenesisHash().send(timeLimit());
  }

  async balance(owner: Address): Promise<bigint> {
    const { value } = await this.rpc
      .getBalance(owner, { commitment: 'confirmed' })
      .send(timeLimit());
    return value;
  }

  /** The program that an account belongs to, or `undefined` while there is no such account. */
  async ownerOf(account: Address): Promise<Address | undefined> {
    const { value } = await this.rpc
      .getAccountInfo(account, { encoding: 'base64', commitment: 'confirmed' })
      .send(timeLimit());
    return value?.owner;
  }

  async latestBlockhash(): Promise<{ blockhash: string; lastValidBlockHeight: bigint }> {
    const { value } = await this.rpc
      .getLatestBlockhash({ commitment: 'finalized' })
      .send(timeLimit());
    return value;
  }

  /** Ids of the newest transactions that touched an account, newest first. */
  async recentIds(account: Address, limit: number): Promise<readonly string[]> {
    const entries = await this.rpc
      .getSignaturesForAddress(account, { limit, commitment: 'confirmed' })
      .send(timeLimit());
    return entries.filter((entry) => entry.err === null).map((entry) => entry.signature);
  }

  /** Ids and slots of an account's transactions that ran, newest first, before `before`. */
  async pageOfIds(
    account: Address,
    limit: number,
    before: string | undefined,
  ): Promise<readonly { readonly id: string; readonly slot: bigint; readonly hasRun: boolean }[]> {
    const entries = await this.rpc
      .getSignaturesForAddress(account, {
        limit,
        commitment: 'confirmed',
        ...(before === undefined ? {} : { before: signature(before) }),
      })
      .send(timeLimit());
    return entries.map(({ signature: id, slot, err }) => ({ id, slot, hasRun: err === null }));
  }

  /** By how much a transaction changed a token account; `undefined` when the node does not tell. */
  async tokenChange(id: string, account: Address): Promise<bigint | undefined> {
    const found = await this.rpc
      .getTransaction(signature(id), {
        encoding: 'jsonParsed',
        commitment: 'confirmed',
        maxSupportedTransactionVersion: 0,
      })
      .send(timeLimit());
    if (found === null || found.meta === null) return undefined;
    const index = found.transaction.message.accountKeys.findIndex(
      ({ pubkey }) => pubkey === account,
    );
    const amountOf = (balances: readonly TokenBalance[] | undefined): bigint => {
      const balance = balances?.find((one) => one.accountIndex === index);
      return BigInt(balance?.uiTokenAmount.amount ?? 0);
    };
    return amountOf(found.meta.postTokenBalances) - amountOf(found.meta.preTokenBalances);
  }

  /** The wire bytes of a confirmed transaction as base64, or `undefined`. */
  async wireOf(id: string): Promise<string | undefined> {
    const found = await this.rpc
      .getTransaction(signature(id), {
        encoding: 'base64',
        commitment: 'confirmed',
        maxSupportedTransactionVersion: 0,
      })
      .send(timeLimit());
    return found?.transaction[0];
  }
}

export interface SolanaNodes {
  /** Asks the nodes in their order, the next one when one fails. */
  readonly chain: SolanaChain;
  /** Each for itself, where all of them are witnesses. */
  readonly each: readonly SolanaChain[];
}

export function openSolanaNodes(rpcUrl: string | readonly string[], clock: Clock): SolanaNodes {
  const urls = nodeUrls(rpcUrl);
  const each = urls.map((url) => new SolanaChain(createSolanaRpc(url)));
  const [only] = each;
  if (only !== undefined && urls.length === 1) return { chain: only, each };
  const failover = new Failover(
    urls.map((url) => createDefaultRpcTransport({ url })),
    clock,
  );
  const transport: RpcTransport = async ({ payload, signal }) =>
    await failover.ask(
      async (node) => {
        const limit = AbortSignal.timeout(NODE_TIMEOUT_MS);
        const both = signal === undefined ? limit : AbortSignal.any([signal, limit]);
        const answer = await node({ payload, signal: both });
        if (hasNodeFault(answer)) throw new Error('The node could not answer');
        return answer as never; // handed on as it came
      },
      () => signal?.aborted === true,
    );
  return { chain: new SolanaChain(createSolanaRpcFromTransport(transport)), each };
}

/** Codes with which a node says that it lacks something or is behind, and its internal errors. */
const NODE_FAULTS = new Set([-32_004, -32_005, -32_011, -32_014, -32_016, -32_601, -32_603]);

function hasNodeFault(answer: unknown): boolean {
  const code = (answer as { error?: { code?: unknown } }).error?.code; // a JSON-RPC answer
  return NODE_FAULTS.has(Number(code)) || Number(code) > 0;
}

function timeLimit(): { abortSignal: AbortSignal } {
  return { abortSignal: AbortSignal.timeout(RPC_TIMEOUT_MS) };
}

/** Decodes base64 wire bytes. Throws on anything else. */
export function decodeWire(wire: string): Transaction {
  return getTransactionDecoder().decode(Buffer.from(wire, 'base64'));
}

/** Lower-case hex SHA-256 of the message: the same for every set of signatures. */
export function messageHash(transaction: Transaction): string {
  return createHash('sha256').update(Uint8Array.from(transaction.messageBytes)).digest('hex');
}

/** The id: the fee payer's signature as base58. Throws when it has not signed. */
export function transactionId(transaction: Transaction): string {
  const first = Object.values(transaction.signatures)[0];
  if (first === null || first === undefined) throw new Error('The fee payer has not signed');
  return getBase58Decoder().decode(first);
}
