/**
 * Several nodes of one chain.
 *
 * - `Failover` sends a call to one node, in the order of the configuration, and to the next one after
 *   a failure. A node that failed is called last for a while, so that each call does not wait for it. So is
 *   one that is far behind two others: it would accept transactions that no other node ever sees.
 * - `Agreement` sends a call to every node. With several nodes a result needs two nodes that return the
 *   same and no third that contradicts them: one lying node must not create money while others are slow
 *   or down. A node whose newest block is older than a minute has no vote against the others. A single
 *   configured node decides alone.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { endsWithin } from './bounded.ts';
import { type Contradictions, chainReason } from './chain-log.ts';
import type { Evidence } from './rail.ts';

const COOL_DOWN_MS = 30 * SECOND_MS;
/** Time limit of a call to one of several nodes. */
export const NODE_TIMEOUT_MS = 4 * SECOND_MS;
const VOTES = 2;
/** Time after the second response in which the remaining nodes may contradict. */
const GRACE_MS = 2 * SECOND_MS;
/** Base has a block every 2 seconds, Solana more often. */
const LAG_SECONDS = 60;

/**
 * Finds nodes that do not respond or serve another chain; `networkOf` returns the CAIP-2 name. `isRight` is
 * false if a node serves another chain, which invalidates all evidence. Rejects if no node responds.
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
      problems.push(`${name} does not respond: ${chainReason(one.reason)}`);
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
  #lagging: ReadonlySet<number> = new Set();

  constructor(nodes: readonly Node[], clock: Clock) {
    this.#nodes = nodes;
    this.#clock = clock;
  }

  /** Calls these nodes last, until the next such call. */
  readonly avoid = (lagging: ReadonlySet<number>): void => {
    this.#lagging = lagging;
  };

  /**
   * Returns the first result. Rejects with the last error if all nodes fail, and at once with an error that
   * every node would return (`isFinal`). `isForAll`: a node that accepts a transaction may not pass it on, so
   * the others get it too, and their results do not count.
   */
  async call<T>(
    call: (node: Node) => Promise<T>,
    isFinal: (error: unknown) => boolean,
    isForAll = false,
  ): Promise<T> {
    const sinceMs = this.#clock.monotonicMs() - COOL_DOWN_MS;
    const late = this.#nodes.filter(
      (node, index) =>
        this.#lagging.has(index) || (this.#failedMs.get(node) ?? -Infinity) > sinceMs,
    );
    const inOrder = [...this.#nodes.filter((node) => !late.includes(node)), ...late];
    let failure: unknown;
    for (const node of inOrder) {
      try {
        const result = await call(node);
        this.#failedMs.delete(node);
        if (isForAll) {
          const others = inOrder.filter((other) => other !== node && !late.includes(other));
          for (const other of others) void call(other).catch(() => undefined); // it may have it already
        }
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
  /** The nodes that have a vote. */
  #nodes: readonly Node[];

  constructor(options: AgreementOptions<Node>) {
    this.#options = options;
    this.#nodes = options.nodes;
  }

  /**
   * The positions of the nodes whose newest block is more than a minute older than those of two others. They
   * have no vote until the next call.
   */
  async lagging(): Promise<ReadonlySet<number>> {
    const { nodes, newestSeconds } = this.#options;
    const times = await Promise.all(
      // A node that fails is not late: it may be current again at once.
      nodes.map((node) => newestSeconds(node).catch(() => Infinity)),
    );
    const known = times.filter((seconds) => seconds !== Infinity).toSorted((a, b) => b - a);
    const least = (known.at(VOTES - 1) ?? -Infinity) - LAG_SECONDS;
    const late = new Set(times.keys().filter((index) => (times[index] ?? 0) < least));
    this.#nodes = nodes.filter((_, index) => !late.has(index));
    return late;
  }

  /** Rejects if fewer than two of several nodes respond, or if they contradict each other. */
  async evidence(find: (node: Node) => Promise<Evidence>): Promise<Evidence> {
    return await this.#agreed('a payment', find, unanimous);
  }

  /** As `evidence`, for results that are compared as values. */
  async value<T extends bigint | boolean | string>(
    subject: string,
    call: (node: Node) => Promise<T>,
  ): Promise<T> {
    return await this.#agreed(subject, call, (all) =>
      all.every((one) => one === all[0]) ? all[0] : undefined,
    );
  }

  /**
   * The largest number that two nodes have reached, or the only node. Rejects as `evidence`. A further node
   * cannot contradict, so none is waited for.
   */
  async reached(subject: string, call: (node: Node) => Promise<bigint>): Promise<bigint> {
    const second = (all: readonly bigint[]): bigint | undefined =>
      all.toSorted((one, other) => (one > other ? -1 : 1)).at(VOTES - 1);
    return await this.#agreed(subject, call, second, 0);
  }

  async #agreed<T>(
    subject: string,
    call: (node: Node) => Promise<T>,
    joined: (results: readonly T[]) => T | undefined,
    graceMs = GRACE_MS,
  ): Promise<T> {
    const { network, contradictions } = this.#options;
    const nodes = this.#nodes;
    const [only] = nodes;
    if (only !== undefined && nodes.length === 1) return await call(only);
    let votes = await this.#votes(call, graceMs);
    let agreed = joined(votes.map(({ result }) => result));
    if (agreed === undefined) {
      votes = await this.#withoutLagging(votes);
      agreed = joined(votes.map(({ result }) => result));
    }
    if (votes.length < VOTES) {
      throw new Error(
        `Only ${votes.length} of ${nodes.length} nodes returned ${subject}; two must agree`,
      );
    }
    if (agreed !== undefined) return agreed;
    contradictions.note(network, subject);
    throw new Error(`The nodes contradict each other about ${subject}`);
  }

  /** The results of two nodes, and of those that respond within the grace. Rejects if all fail. */
  async #votes<T>(
    call: (node: Node) => Promise<T>,
    graceMs: number,
  ): Promise<readonly Vote<Node, T>[]> {
    const { clock } = this.#options;
    const votes: Vote<Node, T>[] = [];
    const enough = Promise.withResolvers<void>();
    const calls = this.#nodes.map(async (node) => {
      votes.push({ node, result: await call(node) });
      if (votes.length >= VOTES) enough.resolve();
    });
    // Each call to a node has a time limit, so all of them end.
    const all = Promise.allSettled(calls);
    await Promise.race([enough.promise, all]);
    if (graceMs > 0) await endsWithin(clock, graceMs, all);
    if (votes.length > 0) return [...votes];
    const [first] = await all;
    throw first?.status === 'rejected' ? first.reason : new Error('No node is configured');
  }

  async #withoutLagging<T>(votes: readonly Vote<Node, T>[]): Promise<readonly Vote<Node, T>[]> {
    const { clock, newestSeconds } = this.#options;
    const nowSeconds = clock.nowMs() / SECOND_MS;
    const isCurrent = await Promise.all(
      votes.map(async ({ node }) => {
        // The node has returned a result before, so its vote counts.
        const seconds = await newestSeconds(node).catch(() => nowSeconds);
        return nowSeconds - seconds <= LAG_SECONDS;
      }),
    );
    return votes.filter((_, index) => isCurrent[index]);
  }
}

/** One evidence if all nodes return the same; `undefined` if they contradict each other. */
function unanimous(all: readonly Evidence[]): Evidence | undefined {
  const [first] = all;
  const isSameKind = all.every(({ kind }) => kind === first?.kind);
  if (first === undefined || !isSameKind) return undefined;
  if (first.kind === 'open') {
    // Nodes know different waiting transactions; one that only one node has can still be mined.
    const isSame = all.every((one) => one.kind === 'open' && one.attempt === first.attempt);
    return isSame ? first : { kind: 'open', attempt: 'waiting' };
  }
  const isConfirmed = all.every((one) => one.kind !== 'open' && one.isConfirmed);
  if (first.kind === 'final') return { ...first, isConfirmed };
  const paid = all.filter((one) => one.kind === 'paid');
  if (!paid.every(({ transaction }) => transaction === first.transaction)) return undefined;
  const height = paid.reduce((most, one) => (one.height > most ? one.height : most), first.height);
  return { ...first, height, isConfirmed };
}
