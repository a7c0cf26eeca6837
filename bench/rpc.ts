/**
 * JSON-RPC through a server with all features enabled, compared with the bare proxy on the same
 * node: single calls, batches of 100, and one caller at a time.
 *
 * Run: node bench/rpc.ts
 */
import { compare, report, startPair, startProcess, stopAll } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const BATCH_ITEMS = 100;
const RPC_PATH = '/crypto/rpc/ethereum-mainnet';

const call = (id: number): string =>
  `{"jsonrpc":"2.0","id":${id},"method":"eth_call","params":[{"to":"0x6b175474e89094c44da98b954eedeac495271d0f","data":"0x18160ddd"},"latest"]}`;
const single = Buffer.from(call(1));
const batch = Buffer.from(
  `[${Array.from({ length: BATCH_ITEMS }, (_, at) => call(at)).join(',')}]`,
);

const node = await startProcess('./rpc-node.ts');
const targets = await startPair(node, {
  BENCH_YAML: `rpc:
  networks: { ethereum-mainnet: { upstreams: [{ url: ${node.url} }] } }
  publicNodes: false
  requestsPerMinute: 100000000
  staffRequestsPerMinute: 100000000
  creditsPerDay: 1000000000000000`,
});
try {
  const load = { path: RPC_PATH, connections: 64, windowMs: 1_000 };
  report('RPC, single calls', await compare(targets, { ...load, body: single }, ROUNDS));
  report(
    `RPC, batches of ${BATCH_ITEMS}`,
    await compare(targets, { ...load, body: batch }, ROUNDS),
  );
  report(
    'RPC, one caller',
    await compare(targets, { ...load, connections: 1, body: single }, ROUNDS),
  );
} finally {
  await stopAll();
}
