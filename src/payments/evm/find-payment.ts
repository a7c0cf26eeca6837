/**
 * Where an ERC-3009 payment is on Base: the evidence of every node, whether it is as deep as its
 * amount asks, and whether it was there before this ledger had written it down. Each node answers
 * all of it alone; what they say together is `agreement.ts`.
 */
import type { Hex } from 'viem';
import type { Clock } from '../../core/clock.ts';
import { agreedEvidence } from '../agreement.ts';
import { unitsToNano } from '../networks.ts';
import type { SignedPayment } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type { Attempt, Evidence, Heights, Position } from '../rail.ts';
import { depthFor } from '../settings.ts';
import type { BaseDepth, BaseSettings } from '../settings.ts';
import type { EvmClient, EvmNodes } from './chain.ts';
import { findErc3009Payment } from './evidence.ts';
import type { Erc3009 } from './evidence.ts';
import { erc3009Of } from './read.ts';

export interface EvmFinder {
  readonly findPayment: (payment: SignedPayment, attempt: Attempt) => Promise<Evidence>;
  /** An authorization of our own, whatever its depth. */
  readonly findOwn: (payment: Erc3009, attempt: Attempt) => Promise<Evidence>;
  readonly position: (payment: SignedPayment) => Promise<Position>;
  readonly heights: () => Promise<Heights>;
}

export function evmFinder(
  { client, each }: EvmNodes,
  { token, rules }: { readonly token: Hex; readonly rules: BaseSettings['confirmations'] },
  clock: Clock,
): EvmFinder {
  const agreed = async (look: (node: EvmClient) => Promise<Evidence>): Promise<Evidence> => {
    const witnesses = each.map((node) => ({
      look: async () => await look(node),
      newestSeconds: async () => Number((await node.getBlock()).timestamp),
    }));
    return await agreedEvidence(witnesses, clock);
  };
  return {
    findPayment: async (payment, attempt) => {
      const depth = depthFor(rules, unitsToNano(payment.amountUnits));
      return await agreed(async (node) => await lookAt(node, payment, attempt, depth));
    },
    findOwn: async (payment, attempt) => {
      const isDeep = async (): Promise<boolean> => await Promise.resolve(true);
      return await agreed(
        async (node) => await findErc3009Payment({ client: node, token, isDeep }, payment, attempt),
      );
    },
    position: async (payment) => {
      const block = await client.getBlock();
      const expiresAt = storable(erc3009Of(payment).validBefore);
      return { startHeight: block.number, startBlock: block.hash, expiresAt };
    },
    heights: async () => {
      // Final is what all of them say is final.
      const finals = await Promise.all(each.map(async (node) => await heightOf(node, 'finalized')));
      const final = finals.reduce((least, one) => (one < least ? one : least));
      return { final, latest: await client.getBlockNumber() };
    },
  };
}

export async function heightOf(client: EvmClient, blockTag: 'safe' | 'finalized'): Promise<bigint> {
  return (await client.getBlock({ blockTag })).number;
}

async function lookAt(
  client: EvmClient,
  payment: SignedPayment,
  attempt: Attempt,
  depth: BaseDepth | undefined,
): Promise<Evidence> {
  const search = {
    client,
    token: payment.offer.asset as Hex, // of an offer of this rail
    isDeep: async (height: bigint) => await isDeep(client, height, depth),
  };
  const evidence = await findErc3009Payment(search, erc3009Of(payment), attempt);
  // Our own transaction was signed after the row was opened, so it proves that we came first.
  if (evidence.kind !== 'paid' || evidence.transaction === attempt.transaction) return evidence;
  if (await wasBefore(client, evidence.height, attempt)) {
    return { kind: 'final', reason: USED_BEFORE };
  }
  return evidence;
}

async function isDeep(
  client: EvmClient,
  height: bigint,
  depth: BaseDepth | undefined,
): Promise<boolean> {
  if (depth === undefined || depth === 1) return true;
  if (typeof depth === 'string') return (await heightOf(client, depth)) >= height;
  return (await client.getBlockNumber()) - height + 1n >= BigInt(depth);
}

/**
 * Whether a use at this height is older than the attempt. Heights come again when the chain is
 * reorganised: then the check before the row was opened, which found it unused, stands alone.
 */
async function wasBefore(client: EvmClient, height: bigint, attempt: Attempt): Promise<boolean> {
  if (height > attempt.startHeight) return false;
  if (attempt.startBlock === undefined) return true;
  const block = await client.getBlock({ blockNumber: attempt.startHeight });
  return block.hash === attempt.startBlock;
}

const MAX_COLUMN = (1n << 63n) - 1n;

/** Times of a signature have 256 bits, columns 63; both are later than any block. */
function storable(seconds: bigint): bigint {
  return seconds < MAX_COLUMN ? seconds : MAX_COLUMN;
}
