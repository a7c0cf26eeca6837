/**
 * Several nodes of one chain.
 *
 * - `Failover` sends a call to one node, in the order of the configuration, and to the next one after
 *   a failure. A node that failed is called last for a while, so that a dead first node does not cost
 *   its time limit on each call.
 * - `Agreement` sends a question to every node. With several nodes a result needs two that report the
 *   same and no third that contradicts: one lying node must not create money because others are slow
 *   or down. A node whose newest block is older than a minute by our clock has no vote against the
 *   others. A single configured node decides alone.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { endsWithin } from './bounded.ts';
import { type Contradictions, chainReason } from './chain-log.ts';
import type { Evidence } from './rail.ts';

const COOL_DOWN_MS = 30 * SECOND_MS;
/** Time limit of a call to one of several nodes. */
export const NODE_TIMEOUT_MS = 4 * SECOND_MS;
/** Nodes of several that must report the same. */
const VOTES = 2;
/** How long after the second response the remaining nodes may contradict. */
const GRACE_MS = 2 * SECOND_MS;
/** Base makes a block in 2 seconds, Solana in less than one. */
const LAG_SECONDS = 60;

/**
 * Which nodes do not respond or serve another chain; `networkOf` returns the CAIP-2 name. One node of
 * another chain invalidates the evidence of all. Rejects when no node responds.
 */
export async function chainProblems<Node>(
  nodes: readonly Node[],
  network: string,
  networkOf: (node: Node) => Promise<string>,
): Promise<{ readonly problems: string[]; readonly isRight: boolean }> {
  const served = await Promise.allSettled(nodes.map(networkOf));
  const failures = served.filter((one) => one.status === 'rejected');
  if (failures.length === served.length) throw failures[0]?.reason;
  const problems: string[] = [];
  let isRight = true;
  for (const [index, one] of served.entries()) {
    const name = served.length === 1 ? 'The node' : `Node ${index + 1} of ${served.length}`;
    if (one.status === 'rejected') {
      problems.push(`${name} does not answer: ${chainReason(one.reason)}`);
    } else if (one.value !== network) {
      isRight = false;
      problems.push(`${name} serves ${one.value.replace(/^eip155:/, 'chain ')}, not ${network}`);
    }
  }
  return { problems, isRight };
}

export class Failover<Node> {
  readonly #nodes: readonly Node[];
  readonly #clock: Clock;
  readonly #failedMs = new Map<Node, number>();

  constructor(nodes: readonly Node[], clock: Clock) {
    this.#nodes = nodes;
    this.#clock = clock;
  }

  /**
   * The first result. Rejects with the last error when all nodes fail, and at once with an error that
   * is the chain's own result (`isFinal`), because every node would report it.
   */
  async call<T>(
    call: (node: Node) => Promise<T>,
    isFinal: (error: unknown) => boolean,
  ): Promise<T> {
    const sinceMs = this.#clock.monotonicMs() - COOL_DOWN_MS;
    const isCooling = (node: Node): boolean => (this.#failedMs.get(node) ?? -Infinity) > sinceMs;
    const inOrder = this.#nodes.toSorted((a, b) => Number(isCooling(a)) - Number(isCooling(b)));
    let failure: unknown;
    for (const node of inOrder) {
      try {
        const result = await call(node);
        this.#failedMs.delete(node);
        return result;
      } catch (error) {
        if (isFinal(error)) throw error;
        this.#failedMs.set(node, this.#clock.monotonicMs());
        failure = error;
      }
    }
    throw failure;
  }
}

export interface AgreementOptions<Node> {
  readonly network: string;
  readonly nodes: readonly Node[];
  readonly clock: Clock;
  readonly contradictions: Contradictions;
  readonly newestSeconds: (node: Node) => Promise<number>;
}

interface Vote<Node, T> {
  readonly node: Node;
  readonly result: T;
}

export class Agreement<Node> {
  readonly #options: AgreementOptions<Node>;

  constructor(options: AgreementOptions<Node>) {
    this.#options = options;
  }

  /** Rejects when fewer than two of several nodes respond, and when they contradict each other. */
  async evidence(look: (node: Node) => Promise<Evidence>): Promise<Evidence> {
    return await this.#agreed('a payment', look, unanimous);
  }

  /** As `evidence`, for results that are compared as values. */
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
    joined: (results: readonly T[]) => T | undefined,
  ): Promise<T> {
    const { nodes, network, contradictions } = this.#options;
    const [only] = nodes;
    if (only !== undefined && nodes.length === 1) return await ask(only);
    let votes = await this.#votes(ask);
    let agreed = joined(votes.map(({ result }) => result));
    if (agreed === undefined) {
      votes = await this.#withoutLagging(votes);
      agreed = joined(votes.map(({ result }) => result));
    }
    if (votes.length < VOTES) {
      throw new Error(
        `Only ${votes.length} of ${nodes.length} nodes can answer about ${subject}, two must agree`,
      );
    }
    if (agreed !== undefined) return agreed;
    contradictions.note(network, subject);
    throw new Error(`The nodes contradict each other about ${subject}`);
  }

  /** The results of two nodes, and of those that respond soon after. Rejects when all fail. */
  async #votes<T>(ask: (node: Node) => Promise<T>): Promise<readonly Vote<Node, T>[]> {
    const { nodes, clock } = this.#options;
    const votes: Vote<Node, T>[] = [];
    const enough = Promise.withResolvers<void>();
    const asked = nodes.map(async (node) => {
      votes.push({ node, result: await ask(node) });
      if (votes.length >= VOTES) enough.resolve();
    });
    const all = Promise.allSettled(asked);
    // Each call to a node has a time limit, so all of them end.
    await Promise.race([enough.promise, all]);
    await endsWithin(clock, GRACE_MS, all);
    if (votes.length > 0) return [...votes];
    const [first] = await all;
    throw first?.status === 'rejected' ? first.reason : new Error('No node is configured');
  }

  async #withoutLagging<T>(votes: readonly Vote<Node, T>[]): Promise<readonly Vote<Node, T>[]> {
    const { clock, newestSeconds } = this.#options;
    const nowSeconds = clock.nowMs() / SECOND_MS;
    const isCurrent = await Promise.all(
      votes.map(async ({ node }) => {
        // A node that returns no block now has responded before: its vote stands.
        const seconds = await newestSeconds(node).catch(() => nowSeconds);
        return nowSeconds - seconds <= LAG_SECONDS;
      }),
    );
    return votes.filter((_, index) => isCurrent[index]);
  }
}

/** One evidence when all report the same; `undefined` when they contradict each other. */
function unanimous(all: readonly Evidence[]): Evidence | undefined {
  const [first] = all;
  const isSameKind = all.every(({ kind }) => kind === first?.kind);
  if (first === undefined || !isSameKind) return undefined;
  if (first.kind === 'open') {
    // Nodes know different waiting transactions: what one still has can be mined.
    const isSame = all.every((one) => one.kind === 'open' && one.attempt === first.attempt);
    return isSame ? first : { kind: 'open', attempt: 'waiting' };
  }
  const isConfirmed = all.every((one) => one.kind !== 'open' && one.isConfirmed);
  if (first.kind === 'final') return { ...first, isConfirmed };
  const paid = all.filter((one) => one.kind === 'paid');
  if (!paid.every(({ transaction }) => transaction === first.transaction)) return undefined;
  // As deep as the node that reports the smallest depth.
  const height = paid.reduce((most, one) => (one.height > most ? one.height : most), first.height);
  return { ...first, height, isConfirmed };
}
