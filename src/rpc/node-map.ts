/** The capabilities of one node, found by calls of the server, for `farebox check`. */
import { type Family, hexNumber } from './catalogue.ts';
import type { Upstream } from './upstream.ts';

/** Optional methods; without params they fail without work for the node. */
const METHODS = ['eth_getBlockReceipts', 'debug_traceTransaction', 'trace_block'];
const ACCOUNT = `0x${'0'.repeat(40)}`;

/** Sentences about a node that has responded: blocks, history and missing methods. */
export async function nodeMap(node: Upstream, family: Family): Promise<string[]> {
  await node.pollHead();
  const { head } = node;
  if (head === undefined) return ['does not return its newest block'];
  if (family !== 'evm') return [`newest block ${head}`];
  const finalized = await node.blockAt('finalized');
  const hasState = (block: number): Promise<boolean> =>
    succeeds(node, 'eth_getBalance', [ACCOUNT, hexNumber(block)]);
  const hasLogs = (block: number): Promise<boolean> =>
    succeeds(node, 'eth_getLogs', [{ fromBlock: hexNumber(block), toBlock: hexNumber(block) }]);
  const missing: string[] = [];
  for (const method of METHODS) {
    const { error } = await node.query(method, '[]');
    if (error?.lack === 'method') missing.push(method);
  }
  return [
    `newest block ${head}`,
    ...(finalized === undefined ? [] : [`finalized ${finalized.number}`]),
    `state from block ${await oldest(head, hasState)}`,
    `logs from block ${await oldest(head, hasLogs)}`,
    ...(missing.length === 0 ? [] : [`lacks ${missing.join(', ')}`]),
  ];
}

async function succeeds(node: Upstream, method: string, params: unknown): Promise<boolean> {
  return (await node.query(method, JSON.stringify(params))).value !== undefined;
}

/** The oldest block that a node has, found by bisection; `unknown` if it lacks the newest one. */
async function oldest(
  head: number,
  has: (block: number) => Promise<boolean>,
): Promise<number | 'unknown'> {
  if (await has(1)) return 1;
  if (!(await has(head))) return 'unknown';
  let [lacks, found] = [1, head];
  while (found - lacks > 1) {
    const middle = Math.floor((lacks + found) / 2);
    if (await has(middle)) found = middle;
    else lacks = middle;
  }
  return found;
}
