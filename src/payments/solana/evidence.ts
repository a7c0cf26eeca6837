/**
 * What the cluster shows about a Solana payment. Its id is our fee payer's own signature, known
 * before it is sent, so one status call decides; under an external facilitator the id is searched
 * among the newest transactions of the paying account, by the hash of the message.
 */
import { address } from '@solana/kit';
import type { Authorization } from '../payment.ts';
import type { Attempt, Evidence } from '../rail.ts';
import { decodeWire, messageHash } from './chain.ts';
import type { SignatureStatus, SolanaChain } from './chain.ts';
import type { SolanaDepth } from '../settings.ts';

/** A blockhash is accepted for 150 blocks after its own. */
export const BLOCKHASH_LIFE_BLOCKS = 150n;
/** Nodes behind one address differ by some blocks. */
const EXPIRY_MARGIN_BLOCKS = 32n;
const SEARCH_LIMIT = 40;

export type SolanaPayment = Extract<Authorization, { kind: 'solana' }>;

export async function findSolanaPayment(
  chain: SolanaChain,
  payment: SolanaPayment,
  attempt: Attempt,
  depth: SolanaDepth,
): Promise<Evidence> {
  // The height first, the status second: unknown after the last valid height is final.
  const height = await chain.height('finalized');
  const id = attempt.transaction ?? (await searchId(chain, payment));
  if (id !== undefined) {
    const status = await chain.status(id);
    if (status.kind === 'confirmed') return paidBy(id, status, depth);
    if (status.kind === 'failed') return { kind: 'final', reason: 'transaction_failed_on_chain' };
    if (status.kind === 'seen') return { kind: 'open', attempt: 'waiting' };
  }
  if (height > attempt.expiresAt + EXPIRY_MARGIN_BLOCKS) {
    // A node may have forgotten old statuses: the history of the payer's account has the last word.
    const landed = attempt.transaction === undefined ? undefined : await searchId(chain, payment);
    const status = landed === undefined ? undefined : await chain.status(landed);
    if (landed !== undefined && status?.kind === 'confirmed') return paidBy(landed, status, depth);
    return { kind: 'final', reason: 'blockhash_expired' };
  }
  return { kind: 'open', attempt: attempt.transaction === undefined ? 'none' : 'unseen' };
}

function paidBy(
  transaction: string,
  status: Extract<SignatureStatus, { kind: 'confirmed' }>,
  depth: SolanaDepth,
): Evidence {
  const isConfirmed = depth === 'confirmed' || status.isFinal;
  return { kind: 'paid', transaction, height: status.slot, isConfirmed };
}

async function searchId(chain: SolanaChain, payment: SolanaPayment): Promise<string | undefined> {
  for (const id of await chain.recentIds(address(payment.source), SEARCH_LIMIT)) {
    const wire = await chain.wireOf(id);
    if (wire !== undefined && messageHash(decodeWire(wire)) === payment.messageHash) return id;
  }
  return undefined;
}
