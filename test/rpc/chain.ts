/** A chain that grows with time, and nodes that follow it at a distance, for tests of the head. */
import type { Clock } from '../../src/core/clock.ts';
import {
  type JsonRpcCall,
  type NodeResponse,
  replyWith,
  startNode,
  type TestNode,
} from './node.ts';

export interface TestChain {
  /** The newest block of the chain. */
  readonly head: () => number;
  /** Starts a node `behind()` blocks behind the chain. */
  readonly node: (behind: () => number) => Promise<TestNode>;
}

export function testChain(clock: Clock, blockMs: number, first = 1_000): TestChain {
  const startMs = clock.monotonicMs();
  const head = (): number => first + Math.floor((clock.monotonicMs() - startMs) / blockMs);
  return {
    head,
    node: async (behind) => {
      const own = (): number => head() - behind();
      const node = await startNode('0x1', chainNode(own));
      node.head = () => `0x${own().toString(16)}`;
      return node;
    },
  };
}

/** Replies as a node whose newest block is `head()`, with one log in each block. */
function chainNode(head: () => number): NodeResponse {
  return replyWith(({ method, params = [] }: JsonRpcCall) => {
    const newest = head();
    const numberOf = (tag: unknown): number =>
      tag === undefined || tag === 'latest' ? newest : Number(tag);
    if (method === 'eth_getLogs') {
      // The tests send a filter in the first position.
      const { fromBlock, toBlock } = params[0] as Readonly<Record<string, unknown>>;
      const logs: unknown[] = [];
      for (let at = numberOf(fromBlock); at <= Math.min(newest, numberOf(toBlock)); at += 1)
        logs.push({ blockNumber: `0x${at.toString(16)}` });
      return { result: logs };
    }
    if (method !== 'eth_getBlockByNumber') return { result: `${method} done` };
    const number = numberOf(params[0]);
    return { result: number > newest ? null : { number: `0x${number.toString(16)}` } };
  });
}
