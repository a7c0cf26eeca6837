/**
 * What several nodes show of one payment, as one piece of evidence.
 *
 * The rule: every node is asked for all of it, so that no verdict is mixed from two of them. Nodes
 * that fail have no say, nor has one that needs two seconds more than the first. What is left must
 * agree, or the evidence is not believed and the payment stays pending: money is credited, and a
 * payment is given up, only when no node contradicts. A node that lags does not contradict: its
 * newest block is older than a minute by our own clock, which a lying node cannot change.
 */
import { SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import type { Evidence } from './rail.ts';

/** One node as a witness. */
interface Witness {
  look(): Promise<Evidence>;
  /** Unix seconds of its newest block. */
  newestSeconds(): Promise<number>;
}

/** How much longer than the first answer the others may take. */
const GRACE_MS = 2 * SECOND_MS;
/** Base makes a block in 2 seconds, Solana in less than one. */
const LAG_SECONDS = 60;

/** Rejects when no node answers, and when those that do contradict each other. */
export async function agreedEvidence(
  witnesses: readonly Witness[],
  clock: Clock,
): Promise<Evidence> {
  const [only] = witnesses;
  if (only !== undefined && witnesses.length === 1) return await only.look();
  const answers = await gather(witnesses, clock);
  const agreed = unanimous(answers.map(({ evidence }) => evidence));
  if (agreed !== undefined) return agreed;
  const current = await withoutLagging(answers, clock);
  const left = unanimous(current.map(({ evidence }) => evidence));
  if (left !== undefined) return left;
  throw new Error('The nodes contradict each other about a payment');
}

interface Answer {
  readonly witness: Witness;
  readonly evidence: Evidence;
}

async function gather(witnesses: readonly Witness[], clock: Clock): Promise<readonly Answer[]> {
  const answers: Answer[] = [];
  let failure: unknown;
  const asked = witnesses.map(async (witness) => {
    try {
      answers.push({ witness, evidence: await witness.look() });
    } catch (error) {
      // A node without an answer has no say; when none has one, this is the reason.
      failure = error;
      throw error;
    }
  });
  const all = Promise.allSettled(asked);
  // Rejects only when every node failed.
  await Promise.any(asked).catch(() => undefined);
  await within(all, GRACE_MS, clock);
  if (answers.length === 0) throw failure;
  return [...answers];
}

async function within(work: Promise<unknown>, ms: number, clock: Clock): Promise<void> {
  await new Promise<void>((resolve) => {
    const cancel = clock.after(ms, resolve);
    void work.then(() => {
      cancel();
      resolve();
    });
  });
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

async function withoutLagging(
  answers: readonly Answer[],
  clock: Clock,
): Promise<readonly Answer[]> {
  const nowSeconds = clock.nowMs() / SECOND_MS;
  const isCurrent = await Promise.all(
    answers.map(async ({ witness }) => {
      try {
        return nowSeconds - (await witness.newestSeconds()) <= LAG_SECONDS;
      } catch {
        // It answered before: what it said stands.
        return true;
      }
    }),
  );
  return answers.filter((_, index) => isCurrent[index]);
}
