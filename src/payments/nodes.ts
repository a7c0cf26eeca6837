/**
 * Several nodes of one chain: which one is asked, and when the next one is.
 *
 * They are asked in the order of the configuration. One that fails is asked last for a while, so
 * that a dead first node costs its time limit once and not for each call. Whether an error is a
 * node's failure or the chain's answer, which every node would give, the rail says.
 */
import { SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import { chainReason } from './chain-reason.ts';

/** How long a node that failed is asked last. */
const COOL_DOWN_MS = 30 * SECOND_MS;
/** Each of several nodes; one alone has all the time that a call may take. */
export const NODE_TIMEOUT_MS = 4 * SECOND_MS;

/** `rpcUrl` of the configuration is one address or a list. */
export function nodeUrls(setting: string | readonly string[]): readonly string[] {
  return typeof setting === 'string' ? [setting] : setting;
}

/** What each node serves, in CAIP-2, or why it cannot be asked. Rejects when none can. */
export async function servedBy<Node>(
  nodes: readonly Node[],
  networkOf: (node: Node) => Promise<string>,
): Promise<readonly PromiseSettledResult<string>[]> {
  const served = await Promise.allSettled(nodes.map(networkOf));
  const [first] = served;
  if (first?.status === 'rejected' && served.every(({ status }) => status === 'rejected')) {
    throw first.reason;
  }
  return served;
}

/** One node of another chain is enough not to believe the evidence of any. */
export function chainProblems(
  served: readonly PromiseSettledResult<string>[],
  network: string,
): { readonly problems: string[]; readonly isRight: boolean } {
  const nameOf = (index: number): string =>
    served.length === 1 ? 'The node' : `Node ${index + 1} of ${served.length}`;
  const problems: string[] = [];
  let isRight = true;
  for (const [index, one] of served.entries()) {
    if (one.status === 'rejected') {
      problems.push(`${nameOf(index)} does not answer: ${chainReason(one.reason)}`);
    } else if (one.value !== network) {
      isRight = false;
      const what = one.value.startsWith('eip155:') ? `chain ${one.value.slice(7)}` : one.value;
      problems.push(`${nameOf(index)} serves ${what}, not ${network}`);
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
    let failure: unknown;
    for (const node of this.#inOrder()) {
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

  #inOrder(): readonly Node[] {
    const sinceMs = this.#clock.monotonicMs() - COOL_DOWN_MS;
    const isCooling = (node: Node): boolean => (this.#failedMs.get(node) ?? -Infinity) > sinceMs;
    return this.#nodes.toSorted((a, b) => Number(isCooling(a)) - Number(isCooling(b)));
  }
}
