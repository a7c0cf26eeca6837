/** The proxy in front of nodes of our own: one for each answer, the first one preferred. */
import assert from 'node:assert/strict';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { memoryLog } from '../support/memory-log.ts';
import type { LogLine } from '../support/memory-log.ts';
import { RpcSection } from '../../src/config/rpc-section.ts';
import { Rpc } from '../../src/rpc/rpc.ts';
import type { RpcResponse, RpcDependencies, RpcSettings } from '../../src/rpc/rpc.ts';
import { startNode } from './node.ts';
import type { NodeResponse, TestNode } from './node.ts';

export const NETWORK = 'ethereum-mainnet';
export const CHAINS: Readonly<Record<string, string>> = {
  'ethereum-mainnet': '0x1',
  'zksync-mainnet': '0x144',
  'solana-mainnet': '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d',
  'starknet-mainnet': '0x534e5f4d41494e',
};

type FullUpstream = RpcSettings['networks'][string]['upstreams'][number];

/** A node in the settings of a test: what is left out has its default. */
export type TestUpstream = Pick<FullUpstream, 'url'> & Partial<FullUpstream>;

export interface TestSettings extends Partial<Omit<RpcSettings, 'networks'>> {
  readonly networks: Readonly<Record<string, { readonly upstreams: readonly TestUpstream[] }>>;
}

/** The proxy with the settings of a test, which may be smaller than an operator's. */
export function makeRpc(
  { networks, ...more }: TestSettings,
  dependencies: Omit<RpcDependencies, 'proxyOf'>,
): Rpc {
  const upstream = { kind: 'node', weight: 1, maxBatch: 100, ratePerSecond: 0, timeoutMs: 30_000 };
  const full = Object.entries(networks).map(([slug, { upstreams }]) => [
    slug,
    { upstreams: upstreams.map((one) => ({ ...upstream, ...one })) },
  ]);
  const settings = { ...RpcSection.parse({}), ...more, networks: Object.fromEntries(full) };
  return new Rpc(settings, { ...dependencies, proxyOf: () => undefined });
}

export interface Bench {
  readonly rpc: Rpc;
  readonly nodes: readonly TestNode[];
  readonly lines: LogLine[];
  ask(body: unknown, caller?: string): Promise<RpcResponse>;
}

export interface BenchOptions extends Partial<Omit<RpcSettings, 'networks'>> {
  readonly network?: string;
  readonly clock?: Clock;
  readonly upstream?: Partial<TestUpstream>;
}

/** Makes benches; `close` ends all that it made and what was put into `closing`. */
export function benches(): {
  readonly bench: (answers: readonly NodeResponse[], options?: BenchOptions) => Promise<Bench>;
  readonly closing: (() => Promise<void>)[];
  readonly close: () => Promise<void>;
} {
  const closing: (() => Promise<void>)[] = [];
  return {
    bench: async (answers, options = {}) => {
      const made = await makeBench(answers, options);
      closing.push(async () => {
        await made.rpc.close();
        await Promise.all(made.nodes.map(async (node) => node.close()));
      });
      return made;
    },
    closing,
    close: async () => {
      for (const close of closing) await close();
    },
  };
}

async function makeBench(answers: readonly NodeResponse[], options: BenchOptions): Promise<Bench> {
  const network = options.network ?? NETWORK;
  const nodes = await Promise.all(
    answers.map(async (answer) => startNode(CHAINS[network]!, answer)),
  );
  const upstreams = nodes.map((node, index) => ({
    url: node.url,
    weight: index === 0 ? 1e6 : 1e-6,
    ...options.upstream,
  }));
  const lines: LogLine[] = [];
  const { upstream: _upstream, network: _network, clock = systemClock(), ...settings } = options;
  const rpc = makeRpc(
    { networks: { [network]: { upstreams } }, publicNodes: false, ...settings },
    { clock, ids: seededIds(7), log: memoryLog(lines) },
  );
  return {
    rpc,
    nodes,
    lines,
    ask: async (body, caller = 'alice') => {
      const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
      return rpc.run(rpc.parse(network, bytes), { caller });
    },
  };
}

export function call(method: string, id: unknown = 1, params: readonly unknown[] = []): object {
  return { jsonrpc: '2.0', id, method, params };
}

export interface ReplyItem {
  readonly id: unknown;
  readonly result?: unknown;
  readonly error: { readonly code: number; readonly message: string };
}

export function json(answer: RpcResponse): ReplyItem {
  assert.equal(answer.rest, undefined);
  return JSON.parse(answer.body.toString()) as ReplyItem; // what the assertions then look into
}

export function list(answer: RpcResponse): ReplyItem[] {
  const items: unknown = json(answer);
  assert.ok(Array.isArray(items));
  return items as ReplyItem[]; // what the assertions then look into
}

export async function fault(promise: Promise<unknown>): Promise<Fault> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof Fault, String(error));
    return error;
  }
  return assert.fail('no fault');
}
