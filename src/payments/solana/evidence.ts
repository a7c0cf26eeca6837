/**
 * Finds a Solana payment on the cluster. Its id is the signature of our fee payer, which is known before it
 * is sent, so one status call decides. With an external facilitator the id is searched among the
 * transactions of the paying account by the hash of the message, oldest first since the row was opened,
 * because anybody can add later transactions that name the account.
 */
import { type Address, address } from '@solana/kit';
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import type { SolanaPayment } from '../payment.ts';
import { FAILED_ON_CHAIN } from '../rail.ts';
import type { Attempt, Evidence, Received, ReceivedSearch } from '../rail.ts';
import {
  decodeWire,
  isBlockhashValid,
  messageHash,
  pageOfIds,
  statusOf,
  tokenChange,
  wireOf,
} from './chain.ts';
import type { SignatureStatus, SolanaRpc } from './chain.ts';

export type SolanaDepth = 'confirmed' | 'finalized';

/** A blockhash is accepted for 150 blocks after its own. */
export const BLOCKHASH_LIFE_BLOCKS = 150n;
/** Nodes behind one address differ by some blocks. */
const EXPIRY_MARGIN_BLOCKS = 32n;
/** Transactions that a search for a payment without a row reads. */
const SEARCH_LIMIT = 40;
/** Limits of one search: transactions read, and pages of ids. */
const MAX_READ = 100;
const MAX_PAGES = 10;
const PAGE_IDS = 1_000;

export async function findSolanaPayment(
  rpc: SolanaRpc,
  payment: SolanaPayment,
  attempt: Attempt,
  depth: SolanaDepth,
): Promise<Evidence> {
  const { seenHeight } = attempt;
  if (seenHeight !== undefined) {
    const slot = await rpc.getSlot({ commitment: 'confirmed' }).send();
    if (slot < seenHeight) throw new Error('The node is behind the slot of the payment');
  }
  // Read before the status, so that an unknown status is final then.
  const isOver = await hasExpired(rpc, payment, attempt.expiresAt);
  const id = attempt.transaction ?? (await searchId(rpc, payment, attempt.startHeight));
  if (id !== undefined) {
    const status = await statusOf(rpc, id);
    if (status.kind === 'confirmed') return paidBy(id, status, depth);
    if (status.kind === 'failed') {
      return { kind: 'final', reason: FAILED_ON_CHAIN, isConfirmed: isDeep(status, depth) };
    }
    if (status.kind === 'seen') return { kind: 'open', attempt: 'waiting' };
  }
  if (isOver) {
    // A node may have dropped old statuses, so the history of the payer's account decides.
    const landed =
      attempt.transaction === undefined
        ? undefined
        : await searchId(rpc, payment, attempt.startHeight);
    const status = landed === undefined ? undefined : await statusOf(rpc, landed);
    if (landed !== undefined && status?.kind === 'confirmed') return paidBy(landed, status, depth);
    return { kind: 'final', reason: 'blockhash_expired', isConfirmed: true };
  }
  return { kind: 'open', attempt: attempt.transaction === undefined ? 'none' : 'unseen' };
}

/**
 * Whether no later block can contain the transaction. The expected end can come from a node that was
 * behind; another one may not know the blockhash yet. So both must be over.
 */
async function hasExpired(
  rpc: SolanaRpc,
  { transaction }: SolanaPayment,
  expiresAt: bigint,
): Promise<boolean> {
  const height = await rpc.getBlockHeight({ commitment: 'finalized' }).send();
  if (height <= expiresAt + EXPIRY_MARGIN_BLOCKS) return false;
  return !(await isBlockhashValid(rpc, transaction));
}

type Executed = Extract<SignatureStatus, { kind: 'confirmed' | 'failed' }>;

function paidBy(transaction: string, status: Executed, depth: SolanaDepth): Evidence {
  return { kind: 'paid', transaction, height: status.slot, isConfirmed: isDeep(status, depth) };
}

function isDeep(status: Executed, depth: SolanaDepth): boolean {
  return depth === 'confirmed' || status.isFinal;
}

async function searchId(
  rpc: SolanaRpc,
  payment: SolanaPayment,
  sinceSlot: bigint,
): Promise<string | undefined> {
  for (const id of await candidates(rpc, address(payment.source), sinceSlot)) {
    const wire = await wireOf(rpc, id);
    if (wire !== undefined && messageHash(decodeWire(wire)) === payment.messageHash) return id;
  }
  return undefined;
}

/** Transactions of an account that have run and can be the payment, oldest first. */
async function candidates(
  rpc: SolanaRpc,
  account: Address,
  sinceSlot: bigint,
): Promise<readonly string[]> {
  const limit = sinceSlot === 0n ? SEARCH_LIMIT : PAGE_IDS;
  const found: string[] = [];
  let before: string | undefined;
  for (let pages = 0; pages < MAX_PAGES; pages += 1) {
    const page = await pageOfIds(rpc, account, limit, before);
    const since = page.filter(({ slot }) => slot >= sinceSlot);
    found.push(...since.filter(({ hasRun }) => hasRun).map(({ id }) => id));
    before = page.at(-1)?.id;
    if (sinceSlot === 0n || since.length < PAGE_IDS) break;
  }
  return found.toReversed().slice(0, MAX_READ);
}

export async function receivedTransfers(
  rpc: SolanaRpc,
  { offer, fromHeight, isKnown, onProgress }: ReceivedSearch,
): Promise<readonly Received[]> {
  const [account] = await findAssociatedTokenPda({
    owner: address(offer.payTo),
    mint: address(offer.asset),
    tokenProgram: TOKEN_PROGRAM_ADDRESS,
  });
  const latest = await rpc.getSlot({ commitment: 'confirmed' }).send();
  const found: Received[] = [];
  let before: string | undefined;
  for (;;) {
    const page = await pageOfIds(rpc, account, PAGE_IDS, before);
    for (const { id, slot, hasRun } of page) {
      if (slot < fromHeight) return found;
      if (!hasRun || isKnown(id)) continue;
      const amountUnits = await tokenChange(rpc, id, account);
      // The operator made transfers out of the account.
      if (amountUnits !== undefined && amountUnits <= 0n) continue;
      found.push({ transaction: id, height: slot, amountUnits });
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE_IDS) return found;
    before = last.id;
    onProgress?.(Number(latest - last.slot), Number(latest - fromHeight));
  }
}
