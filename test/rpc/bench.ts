/** The proxy in front of test nodes: one for each `NodeResponse`, in order of preference. */
import assert from 'node:assert/strict';
import type { Cancelling } from '../../src/core/cancellation.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import type { SharedStore } from '../../src/db/db.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { memoryLog } from '../support/memory-log.ts';
import type { LogLine } from '../support/memory-log.ts';
import { RpcSection } from '../../src/config/rpc-section.ts';
import { Rpc, RpcFigures } from '../../src/rpc/rpc.ts';
import type { RpcResponse } from '../../src/rpc/rpc-response.ts';
import type { RpcDependencies, RpcSettings } from '../../src/rpc/rpc.ts';
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

/** Settings of a node with defaults for tests. */
export type TestUpstream = Pick<FullUpstream, 'url'> & Partial<FullUpstream>;

export interface TestSettings extends Partial<Omit<RpcSettings, 'networks'>> {
  readonly networks: Readonly<Record<string, { readonly upstreams: readonly TestUpstream[] }>>;
}

/** Creates the proxy with settings of a test, which can be below the minimum of the configuration. */
export function makeRpc(
  { networks, ...more }: TestSettings,
  dependencies: Omit<RpcDependencies, 'proxyOf' | 'figures'>,
  figures = new RpcFigures(),
): Rpc {
  const upstream = { kind: 'node', weight: 1, maxBatch: 100, ratePerSecond: 0, timeoutMs: 30_000 };
  const full = Object.entries(networks).map(([slug, { upstreams }]) => [
    slug,
    { upstreams: upstreams.map((one) => ({ ...upstream, ...one })) },
  ]);
  // Second calls depend on the speed of the machine, so a test must enable them.
  const settings = {
    ...RpcSection.parse({}),
    hedgeShare: 0,
    ...more,
    networks: Object.fromEntries(full),
  };
  return new Rpc(settings, { ...dependencies, figures, proxyOf: () => undefined });
}

export interface Bench {
  readonly rpc: Rpc;
  readonly nodes: readonly TestNode[];
  readonly lines: LogLine[];
  readonly figures: RpcFigures;
  /** Sends a body as JSON text, bytes, or a value to stringify. */
  send(body: unknown, caller?: string, signal?: Cancelling): Promise<RpcResponse>;
}

export interface BenchOptions extends Partial<Omit<RpcSettings, 'networks'>> {
  readonly network?: string;
  readonly clock?: Clock;
  readonly upstream?: Partial<TestUpstream>;
  readonly sharedStore?: SharedStore;
}

/** Creates benches; `close` closes them and calls the functions in `closing`. */
export function benches(): {
  readonly bench: (responses: readonly NodeResponse[], options?: BenchOptions) => Promise<Bench>;
  readonly closing: (() => Promise<void>)[];
  readonly proxyTo: (
    upstreams: readonly TestUpstream[],
    options?: Pick<BenchOptions, 'network' | 'clock' | 'sharedStore'>,
  ) => Omit<Bench, 'nodes'>;
  readonly close: () => Promise<void>;
} {
  const closing: (() => Promise<void>)[] = [];
  return {
    bench: async (responses, options = {}) => {
      const made = await makeBench(responses, options);
      closing.push(async () => {
        await made.rpc.close();
        await Promise.all(made.nodes.map(async (node) => node.close()));
      });
      return made;
    },
    closing,
    proxyTo: (upstreams, { network = NETWORK, clock = systemClock(), sharedStore } = {}) => {
      const networks = { [network]: { upstreams } };
      const proxy = makeProxy(network, { networks }, clock, sharedStore);
      closing.unshift(() => proxy.rpc.close());
      return proxy;
    },
    close: async () => {
      for (const close of closing) await close();
    },
  };
}

async function makeBench(
  responses: readonly NodeResponse[],
  options: BenchOptions,
): Promise<Bench> {
  const network = options.network ?? NETWORK;
  const nodes = await Promise.all(
    responses.map(async (respond) => startNode(CHAINS[network]!, respond)),
  );
  const upstreams = nodes.map((node, index) => ({
    url: node.url,
    weight: index === 0 ? 1e6 : 1e-6,
    ...options.upstream,
  }));
  const { upstream: _upstream, network: _network, ...more } = options;
  const { clock = systemClock(), sharedStore, ...settings } = more;
  const networks = { [network]: { upstreams } };
  const proxy = makeProxy(network, { networks, ...settings }, clock, sharedStore);
  return { nodes, ...proxy };
}

function makeProxy(
  network: string,
  settings: TestSettings,
  clock: Clock,
  sharedStore?: SharedStore,
): Omit<Bench, 'nodes'> {
  const lines: LogLine[] = [];
  const figures = new RpcFigures();
  const rpc = makeRpc(
    { publicNodes: false, ...settings },
    { clock, ids: seededIds(7), log: memoryLog(lines), sharedStore },
    figures,
  );
  return {
    rpc,
    lines,
    figures,
    send: async (body, caller = 'alice', signal) =>
      rpc.run(rpc.parse(network, bytesOf(body)), { caller, signal }),
  };
}

function bytesOf(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  return Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
}

export function call(method: string, id: unknown = 1, params: readonly unknown[] = []): object {
  return { jsonrpc: '2.0', id, method, params };
}

export interface ReplyItem {
  readonly id: unknown;
  readonly result?: unknown;
  readonly error: { readonly code: number; readonly message: string };
}

export function json(response: RpcResponse): ReplyItem {
  assert.equal(response.rest, undefined);
  return JSON.parse(response.body.toString()) as ReplyItem; // the assertions check the value
}

export function list(response: RpcResponse): ReplyItem[] {
  const items: unknown = json(response);
  assert.ok(Array.isArray(items));
  return items as ReplyItem[]; // the assertions check the value
}

/** The ids and results of a batch response in one list: `[1, 'first', 2, 'second']`. */
export function idsAndResults(response: RpcResponse): unknown[] {
  return list(response).flatMap(({ id, result }) => [id, result]);
}

/** Number of requests that each node has received. */
export function requestCounts({ nodes }: Pick<Bench, 'nodes'>): number[] {
  return nodes.map(({ requests }) => requests.length);
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
