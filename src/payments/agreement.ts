/**
 * What several nodes show of one payment, as one piece of evidence.
 *
 * The rule: every node is asked for all of it, so that no verdict is mixed from two of them. Nodes
 * that fail have no say, nor has one that needs two seconds more than the first. What is left must
 * agree, or the evidence is not believed and the payment stays pending: money is credited, and a
 * payment is given up, only when no node contradicts. A node that lags does not contradict: its
 * newest block is older than a minute by our own clock, which a lying node cannot change.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Evidence } from './rail.ts';
import { endsWithin } from './waiting.ts';

/** How much longer than the first answer the others may take. */
const GRACE_MS = 2 * SECOND_MS;
/** Base makes a block in 2 seconds, Solana in less than one. */
const LAG_SECONDS = 60;

/**
 * Rejects when no node answers, and when those that do contradict each other. `newestSeconds` is
 * the Unix time of a node's newest block.
 */
export async function agreedEvidence<Node>(
  nodes: readonly Node[],
  clock: Clock,
  look: (node: Node) => Promise<Evidence>,
  newestSeconds: (node: Node) => Promise<number>,
): Promise<Evidence> {
  const [only] = nodes;
  if (only !== undefined && nodes.length === 1) return await look(only);
  const answers: { readonly node: Node; readonly evidence: Evidence }[] = [];
  const asked = nodes.map(async (node) => {
    answers.push({ node, evidence: await look(node) });
  });
  // A node without an answer has no say; when none has one, the first reason is the reason.
  await Promise.any(asked).catch((error: AggregateError) => {
    throw error.errors[0];
  });
  await endsWithin(clock, GRACE_MS, Promise.allSettled(asked));
  const heard = [...answers];
  const agreed = unanimous(heard.map(({ evidence }) => evidence));
  if (agreed !== undefined) return agreed;
  const nowSeconds = clock.nowMs() / SECOND_MS;
  const isCurrent = await Promise.all(
    heard.map(async ({ node }) => {
      // One that gives no block now has answered before: what it said stands.
      const seconds = await newestSeconds(node).catch(() => nowSeconds);
      return nowSeconds - seconds <= LAG_SECONDS;
    }),
  );
  const current = heard.filter((_, index) => isCurrent[index]);
  const left = unanimous(current.map(({ evidence }) => evidence));
  if (left !== undefined) return left;
  throw new Error('The nodes contradict each other about a payment');
}

/** One evidence when all say the same; `undefined` when they contradict each other. */
function unanimous(all: readonly Evidence[]): Evidence | undefined {
  const [first] = all;
  if (first === undefined) return undefined;
  if (first.kind === 'open') {
    const open = all.filter((one) => one.kind === 'open');
    if (open.length < all.length) return undefined;
    // Nodes know different waiting transactions: what one still has can be mined.
    const isSame = open.every(({ attempt }) => attempt === first.attempt);
    return isSame ? first : { kind: 'open', attempt: 'waiting' };
  }
  if (first.kind === 'final') return all.every(({ kind }) => kind === 'final') ? first : undefined;
  const paid = all.filter((one) => one.kind === 'paid');
  const isSame = paid.every(({ transaction }) => transaction === first.transaction);
  if (!isSame || paid.length < all.length) return undefined;
  // As deep as the one that sees it least deep.
  const height = paid.reduce((most, one) => (one.height > most ? one.height : most), first.height);
  return { ...first, height, isConfirmed: paid.every(({ isConfirmed }) => isConfirmed) };
}

/** What all nodes say is final; rejects when one of them does not tell. */
export async function leastHeight<Node>(
  nodes: readonly Node[],
  heightOf: (node: Node) => Promise<bigint>,
): Promise<bigint> {
  const heights = await Promise.all(nodes.map(heightOf));
  return heights.reduce((least, one) => (one < least ? one : least));
}
