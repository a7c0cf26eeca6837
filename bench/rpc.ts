/**
 * How fast is the RPC proxy next to a bare relay? Single calls and batches of 100, one run.
 *
 * The node, the bare relay (`node:http` + undici `Pool.dispatch`, no look at the bytes) and the
 * proxy each run in a process of their own; the load comes from this one, over keep-alive
 * connections. Windows of A and B alternate; the result is the median of their ratios, with CPU
 * time for each request beside it. Stops by itself: `node bench/rpc.ts`.
 */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';
import { startFace } from '../test/rpc/face.ts';
import { systemClock } from '../src/kernel/clock.ts';
import { systemIds } from '../src/kernel/ids.ts';
import { silentLog } from '../src/kernel/log.ts';
import { Rpc } from '../src/rpc/rpc.ts';

const WINDOW_MS = 700;
const PAIRS = 7;
const CONNECTIONS = 32;
const BATCH_ITEMS = 100;

type Role = 'node' | 'relay' | 'proxy';

interface Measure {
  readonly requestsPerSecond: number;
  readonly cpuMicros: number;
}

async function serve(name: string, upstream: string): Promise<void> {
  const url = await startRole(name, upstream);
  process.on('message', (message) => {
    if (message === 'cpu') process.send?.({ cpu: process.cpuUsage() });
  });
  process.on('disconnect', () => process.exit(0));
  process.send?.({ url });
}

async function startRole(name: string, upstream: string): Promise<string> {
  if (name === 'node') return listen(answerAsNode);
  if (name === 'relay') return startRelay(upstream);
  const rpc = new Rpc(
    { networks: { 'ethereum-mainnet': { upstreams: [{ url: upstream }] } } },
    { clock: systemClock(), ids: systemIds(), log: silentLog },
  );
  return (await startFace(rpc)).url('ethereum-mainnet');
}

async function listen(handle: (body: Buffer, response: ServerResponse) => void): Promise<string> {
  const server = createServer((request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => handle(Buffer.concat(chunks), response));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a TCP server has an address of this kind
  return `http://127.0.0.1:${port}`;
}

const SINGLE = Buffer.from(
  '{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x6b175474e89094c44da98b954eedeac495271d0f","data":"0x18160ddd"},"latest"]}',
);
const BATCH = Buffer.from(
  `[${Array.from({ length: BATCH_ITEMS }, (_, id) => SINGLE.toString().replace('"id":1', `"id":${id}`)).join(',')}]`,
);
const RESULT = `"0x${'0'.repeat(40)}d3c21bcecceda1000000aabb"`;
const SINGLE_REPLY = Buffer.from(`{"jsonrpc":"2.0","id":1,"result":${RESULT}}`);
const BATCH_REPLY = Buffer.from(
  `[${Array.from({ length: BATCH_ITEMS }, (_, id) => `{"jsonrpc":"2.0","id":${id},"result":${RESULT}}`).join(',')}]`,
);
const IDENTITY_REPLY = Buffer.from('{"jsonrpc":"2.0","id":1,"result":"0x1"}');

function answerAsNode(body: Buffer, response: ServerResponse): void {
  const isBatch = body[0] === 0x5b;
  const reply = isBatch
    ? BATCH_REPLY
    : body.includes('eth_chainId')
      ? IDENTITY_REPLY
      : SINGLE_REPLY;
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': reply.length });
  response.end(reply);
}

async function startRelay(upstream: string): Promise<string> {
  const pool = new Pool(upstream, { connections: 128 });
  const headers = ['content-type', 'application/json'];
  return listen((body, response) => {
    const chunks: Buffer[] = [];
    pool.dispatch(
      { path: '/', method: 'POST', headers, body },
      {
        onRequestStart: () => undefined,
        onResponseStart: () => undefined,
        onResponseData: (_controller, chunk) => void chunks.push(chunk),
        onResponseEnd: () => {
          response.setHeader('content-type', 'application/json');
          response.end(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
        },
        onResponseError: () => response.destroy(),
      },
    );
  });
}

class Server {
  readonly #child: ChildProcess;
  readonly url: string;

  constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  static async start(name: Role, upstream = ''): Promise<Server> {
    const child = fork(import.meta.filename, [name, upstream]);
    const [message] = (await once(child, 'message')) as [{ url: string }]; // what `serve` sends first
    return new Server(child, message.url);
  }

  async cpuMicros(): Promise<number> {
    this.#child.send('cpu');
    const [message] = (await once(this.#child, 'message')) as [{ cpu: NodeJS.CpuUsage }]; // its answer
    return message.cpu.user + message.cpu.system;
  }

  stop(): void {
    this.#child.disconnect();
  }
}

/** Keeps all connections busy for one window. */
async function measure(server: Server, pool: Pool, path: string, body: Buffer): Promise<Measure> {
  const cpuBefore = await server.cpuMicros();
  const startedMs = performance.now();
  const endMs = startedMs + WINDOW_MS;
  let count = 0;
  const ask = async (): Promise<void> =>
    new Promise((resolve, reject) => {
      pool.dispatch(
        { path, method: 'POST', headers: ['content-type', 'application/json'], body },
        {
          onRequestStart: () => undefined,
          onResponseStart: (_controller, status) => {
            if (status !== 200) reject(new Error(`status ${status}`));
          },
          onResponseData: () => undefined,
          onResponseEnd: () => resolve(),
          onResponseError: (_controller, error) => reject(error),
        },
      );
    });
  const work = async (): Promise<void> => {
    while (performance.now() < endMs) {
      await ask();
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, work));
  const seconds = (performance.now() - startedMs) / 1000;
  const cpu = (await server.cpuMicros()) - cpuBefore;
  return { requestsPerSecond: count / seconds, cpuMicros: cpu / count };
}

async function main(): Promise<void> {
  const node = await Server.start('node');
  const relay = await Server.start('relay', node.url);
  const proxy = await Server.start('proxy', node.url);
  const pools = [relay, proxy].map(
    (server) => new Pool(new URL(server.url).origin, { connections: CONNECTIONS }),
  );
  try {
    for (const [name, body] of [
      ['single call', SINGLE],
      [`batch of ${BATCH_ITEMS}`, BATCH],
    ] as const) {
      await compare(name, body, relay, proxy, pools);
    }
  } finally {
    await Promise.all(pools.map(async (pool) => pool.destroy()));
    for (const server of [proxy, relay, node]) server.stop();
  }
}

async function compare(
  name: string,
  body: Buffer,
  relay: Server,
  proxy: Server,
  pools: readonly Pool[],
): Promise<void> {
  const [relayPool, proxyPool] = pools;
  if (relayPool === undefined || proxyPool === undefined) return;
  const proxyPath = new URL(proxy.url).pathname;
  const ratios: number[] = [];
  const relays: Measure[] = [];
  const proxies: Measure[] = [];
  for (let pair = -1; pair < PAIRS; pair += 1) {
    const bare = await measure(relay, relayPool, '/', body);
    const ours = await measure(proxy, proxyPool, proxyPath, body);
    if (pair < 0) continue; // the first pair warms both up
    ratios.push(ours.requestsPerSecond / bare.requestsPerSecond);
    relays.push(bare);
    proxies.push(ours);
  }
  const rate = (list: readonly Measure[]): string =>
    median(list.map((one) => one.requestsPerSecond)).toFixed(0);
  const cpu = (list: readonly Measure[]): string =>
    median(list.map((one) => one.cpuMicros)).toFixed(0);
  console.log(
    `${name}: ${median(ratios).toFixed(2)} of the bare relay | ${rate(proxies)}/s against ${rate(relays)}/s | CPU ${cpu(proxies)} against ${cpu(relays)} µs a request`,
  );
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

const [role, upstreamUrl] = process.argv.slice(2);
if (role === undefined) await main();
else await serve(role, upstreamUrl ?? '');
