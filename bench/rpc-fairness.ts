/**
 * The share of one honest account of a node whose rate is limited, while other accounts send as many
 * batches of 100 as they can: its items per second as a multiple of an equal share, and its latency
 * in turns. In a turn, the node serves one batch of each other account.
 *
 * Run: node bench/rpc-fairness.ts
 */
import { Pool } from 'undici';
import { startGateway, startProcess, stopAll } from './harness.ts';

const WINDOW_MS = Number(process.env['WINDOW_MS'] ?? '15000');
const OTHERS = [1, 3, 7];
const BATCH_ITEMS = 100;
const ITEMS_PER_SECOND = 500;
/** Concurrent requests of an account that sends batches. */
const CONNECTIONS = 8;
const RPC_PATH = '/api/v1/crypto/rpc/ethereum-mainnet';

const call = (id: number): object => ({ jsonrpc: '2.0', id, method: 'eth_gasPrice', params: [] });
const single = JSON.stringify(call(1));
const batch = JSON.stringify(Array.from({ length: BATCH_ITEMS }, (_, id) => call(id)));

const node = await startProcess('./rpc-node.ts');
const gateway = await startGateway(node, {
  env: {
    BENCH_YAML: `rpc:
  networks: { ethereum-mainnet: { upstreams: [{ url: ${node.url}, ratePerSecond: ${ITEMS_PER_SECOND} }] } }
  publicNodes: false
  requestsPerMinute: 100000000
  staffRequestsPerMinute: 100000000
  creditsPerDay: 1000000000000000`,
  },
});
const pool = new Pool(new URL(gateway.url).origin, { connections: 256, pipelining: 1 });

interface Data {
  readonly data: { readonly id: string; readonly apiKey: string };
}

async function post(key: string, path: string, body: string): Promise<Data> {
  const { statusCode, body: reply } = await pool.request({
    method: 'POST',
    path,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body,
  });
  const text = await reply.text();
  if (statusCode >= 300) throw new Error(`${path}: ${statusCode} ${text.slice(0, 200)}`);
  return JSON.parse(text) as Data;
}

/** Creates an account with credit; returns its key. */
async function account(name: string): Promise<string> {
  const admin = (path: string, body: object): Promise<Data> =>
    post(gateway.key, `/api/v1/admin/accounts${path}`, JSON.stringify(body));
  const { id } = (await admin('', { name, plan: 'staff' })).data;
  await admin(`/${id}/credit`, { amountUsd: '1000000', reference: name });
  return (await admin(`/${id}/keys`, { description: name, apiKeyType: 'INFERENCE' })).data.apiKey;
}

function at({ timesMs }: Sent, part: number): number {
  return timesMs[Math.floor(timesMs.length * part)] ?? 0;
}

interface Sent {
  readonly perSecond: number;
  readonly timesMs: readonly number[];
}

/** Sends one body over and over on some connections, until the time is over. */
async function load(key: string, body: string, connections: number, ms: number): Promise<Sent> {
  const timesMs: number[] = [];
  let inTime = 0;
  const untilMs = performance.now() + ms;
  const work = async (): Promise<void> => {
    for (let fromMs = performance.now(); fromMs < untilMs; fromMs = performance.now()) {
      await post(key, RPC_PATH, body);
      timesMs.push(performance.now() - fromMs);
      if (performance.now() < untilMs) inTime += 1;
    }
  };
  await Promise.all(Array.from({ length: connections }, work));
  return { perSecond: (inTime * 1_000) / ms, timesMs: timesMs.sort((a, b) => a - b) };
}

try {
  const honest = await account('honest');
  const others: string[] = [];
  const alone = await load(honest, single, 1, WINDOW_MS / 5);
  console.log(`alone: p50 ${at(alone, 0.5).toFixed(1)} ms, p99 ${at(alone, 0.99).toFixed(1)} ms`);
  console.log('others  items/s ÷ equal share  single p50  single p99 in turns');
  for (const count of OTHERS) {
    while (others.length < count) others.push(await account(`other-${others.length}`));
    const beside = async (body: string, connections: number): Promise<Sent> => {
      const flood = others.map((key) => load(key, batch, CONNECTIONS, WINDOW_MS + 1_000));
      const sent = await load(honest, body, connections, WINDOW_MS);
      await Promise.all(flood);
      return sent;
    };
    const { perSecond } = await beside(batch, CONNECTIONS);
    const share = (perSecond * BATCH_ITEMS * (count + 1)) / ITEMS_PER_SECOND;
    const sent = await beside(single, 1);
    const turnMs = (count * BATCH_ITEMS * 1_000) / ITEMS_PER_SECOND;
    const inTurns = (part: number): string => (at(sent, part) / turnMs).toFixed(2);
    console.log(
      String(count).padEnd(8) +
        share.toFixed(2).padEnd(23) +
        inTurns(0.5).padEnd(12) +
        inTurns(0.99),
    );
  }
} finally {
  await pool.destroy();
  await stopAll();
}
