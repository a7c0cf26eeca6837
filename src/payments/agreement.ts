/**
 * What several nodes report about one question, as one answer.
 *
 * The rule: every node is asked the whole question, so that no answer is mixed from two of them. With
 * several nodes an answer needs two of them that report the same, and no third that contradicts: one
 * node that lies must not be money because the others are slow or down. Until then the answer is
 * unknown, and a payment stays pending. A node that fails has no say. A node that lags has no say
 * against the others: its newest block is older than a minute by our own clock, which a lying node
 * cannot change. With one node configured, that node decides alone.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Contradictions } from './contradictions.ts';
import type { Evidence } from './rail.ts';
import { endsWithin } from './waiting.ts';

/** Nodes of several that must report the same. */
const VOICES = 2;
/** How much longer than the second answer the remaining nodes may take to contradict. */
const GRACE_MS = 2 * SECOND_MS;
/** Base makes a block in 2 seconds, Solana in less than one. */
const LAG_SECONDS = 60;

export interface AgreementOptions<Node> {
  readonly network: string;
  readonly nodes: readonly Node[];
  readonly clock: Clock;
  readonly contradictions: Contradictions;
  /** Unix time of a node's newest block. */
  readonly newestSeconds: (node: Node) => Promise<number>;
}

interface Voice<Node, T> {
  readonly node: Node;
  readonly answer: T;
}

export class Agreement<Node> {
  readonly #options: AgreementOptions<Node>;

  constructor(options: AgreementOptions<Node>) {
    this.#options = options;
  }

  /** Rejects when fewer than two of several nodes answer, and when they contradict each other. */
  async evidence(look: (node: Node) => Promise<Evidence>): Promise<Evidence> {
    return await this.#agreed('a payment', look, unanimous);
  }

  /** The same for any question whose answers are compared as values. */
  async value<T extends bigint | boolean | string>(
    subject: string,
    ask: (node: Node) => Promise<T>,
  ): Promise<T> {
    return await this.#agreed(subject, ask, (all) =>
      all.every((one) => one === all[0]) ? all[0] : undefined,
    );
  }

  async #agreed<T>(
    subject: string,
    ask: (node: Node) => Promise<T>,
    joined: (answers: readonly T[]) => T | undefined,
  ): Promise<T> {
    const { nodes, network, contradictions } = this.#options;
    const [only] = nodes;
    if (only !== undefined && nodes.length === 1) return await ask(only);
    const voices = await this.#voices(ask);
    let current = voices;
    let agreed = joined(voices.map(({ answer }) => answer));
    if (agreed === undefined) {
      current = await this.#current(voices);
      agreed = joined(current.map(({ answer }) => answer));
    }
    if (current.length < VOICES) {
      throw new Error(
        `Only ${current.length} of ${nodes.length} nodes can answer about ${subject}, two must agree`,
      );
    }
    if (agreed !== undefined) return agreed;
    contradictions.note(network, subject);
    throw new Error(`The nodes contradict each other about ${subject}`);
  }

  /** The answers of two nodes, and of those that answer soon after. Rejects when no node answers. */
  async #voices<T>(ask: (node: Node) => Promise<T>): Promise<readonly Voice<Node, T>[]> {
    const { nodes, clock } = this.#options;
    const voices: Voice<Node, T>[] = [];
    const enough = Promise.withResolvers<void>();
    const asked = nodes.map(async (node) => {
      voices.push({ node, answer: await ask(node) });
      if (voices.length >= VOICES) enough.resolve();
    });
    const all = Promise.allSettled(asked);
    // Each call to a node has a time limit, so all of them end.
    await Promise.race([enough.promise, all]);
    await endsWithin(clock, GRACE_MS, all);
    if (voices.length > 0) return [...voices];
    const [first] = await all;
    throw first?.status === 'rejected' ? first.reason : new Error('No node is configured');
  }

  /** The voices of nodes that do not lag. */
  async #current<T>(voices: readonly Voice<Node, T>[]): Promise<readonly Voice<Node, T>[]> {
    const { clock, newestSeconds } = this.#options;
    const nowSeconds = clock.nowMs() / SECOND_MS;
    const isCurrent = await Promise.all(
      voices.map(async ({ node }) => {
        // A node that gives no block now has answered before: its answer stands.
        const seconds = await newestSeconds(node).catch(() => nowSeconds);
        return nowSeconds - seconds <= LAG_SECONDS;
      }),
    );
    return voices.filter((_, index) => isCurrent[index]);
  }
}

/** One evidence when all report the same; `undefined` when they contradict each other. */
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
  if (first.kind === 'final') {
    const final = all.filter((one) => one.kind === 'final');
    if (final.length < all.length) return undefined;
    return { ...first, isConfirmed: final.every(({ isConfirmed }) => isConfirmed) };
  }
  const paid = all.filter((one) => one.kind === 'paid');
  const isSame = paid.every(({ transaction }) => transaction === first.transaction);
  if (!isSame || paid.length < all.length) return undefined;
  // As deep as the one that sees it least deep.
  const height = paid.reduce((most, one) => (one.height > most ? one.height : most), first.height);
  return { ...first, height, isConfirmed: paid.every(({ isConfirmed }) => isConfirmed) };
}
