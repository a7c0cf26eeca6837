/**
 * Several nodes of one chain: which one is asked, and when the next one is.
 *
 * They are asked in the order of the configuration. One that fails is asked last for a while, so
 * that a dead first node costs its time limit once and not for each call. Whether an error is a
 * node's failure or the chain's answer, which every node would give, the rail says.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { chainReason } from './chain-reason.ts';

/** How long a node that failed is asked last. */
const COOL_DOWN_MS = 30 * SECOND_MS;
/** Each of several nodes; one alone has all the time that a call may take. */
export const NODE_TIMEOUT_MS = 4 * SECOND_MS;

/**
 * Which nodes do not answer or serve another chain; `networkOf` gives the CAIP-2 name. One node of
 * another chain is enough not to believe the evidence of any. Rejects when none can be asked.
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

  /** The first answer; an error of the last node when all fail, or one that `isAnswer` at once. */
  async ask<T>(
    question: (node: Node) => Promise<T>,
    isAnswer: (error: unknown) => boolean,
  ): Promise<T> {
    const sinceMs = this.#clock.monotonicMs() - COOL_DOWN_MS;
    const isCooling = (node: Node): boolean => (this.#failedMs.get(node) ?? -Infinity) > sinceMs;
    const inOrder = this.#nodes.toSorted((a, b) => Number(isCooling(a)) - Number(isCooling(b)));
    let failure: unknown;
    for (const node of inOrder) {
      try {
        const answer = await question(node);
        this.#failedMs.delete(node);
        return answer;
      } catch (error) {
        if (isAnswer(error)) throw error;
        this.#failedMs.set(node, this.#clock.monotonicMs());
        failure = error;
      }
    }
    throw failure;
  }
}
