/** The examples of `docs/callers/json-rpc.md` run as they are, each in a process of its own. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { systemClock } from '../../src/core/clock.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Rpc } from '../../src/rpc/rpc.ts';
import { makeRpc } from './bench.ts';
import { startRpcServer } from './rpc-server.ts';
import type { RpcServer } from './rpc-server.ts';
import { echoNode, startNode } from './node.ts';
import type { TestNode } from './node.ts';

const run = promisify(execFile);
const FOLDER = join(import.meta.dirname, '../../examples/rpc');
const RESULTS: Readonly<Record<string, unknown>> = {
  eth_chainId: '0x1',
  eth_blockNumber: '0x1f',
  eth_getBalance: '0x2a',
  getBalance: { context: { slot: 1 }, value: 42 },
  starknet_blockNumber: 31,
  starknet_chainId: '0x534e5f4d41494e',
  starknet_specVersion: '0.8.1',
};
const CHAINS = {
  'ethereum-mainnet': '0x1',
  'solana-mainnet': '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d',
  'starknet-mainnet': '0x534e5f4d41494e',
};

describe('examples', () => {
  const nodes: TestNode[] = [];
  let rpc: Rpc;
  let server: RpcServer;

  before(async () => {
    const networks: Record<string, { upstreams: { url: string }[] }> = {};
    for (const [network, chainId] of Object.entries(CHAINS)) {
      const node = await startNode(
        chainId,
        echoNode((call) => RESULTS[call.method]),
      );
      nodes.push(node);
      networks[network] = { upstreams: [{ url: node.url }] };
    }
    rpc = makeRpc({ networks }, { clock: systemClock(), ids: seededIds(1), log: silentLog });
    server = await startRpcServer(rpc);
  });

  after(async () => {
    await server.close();
    await rpc.close();
    for (const node of nodes) await node.close();
  });

  const examples: Readonly<Record<string, RegExp>> = {
    'viem.ts': /chain 1, block 31/,
    'ethers.ts': /block 31, balance 42/,
    'web3-js.ts': /42 lamports/,
    'solana-kit.ts': /42 lamports/,
    'starknet.ts': /chain 0x534e5f4d41494e, block 31/,
  };
  for (const [file, expected] of Object.entries(examples)) {
    test(`${file} runs against a server`, async () => {
      const env = { ...process.env, FAREBOX_URL: server.url('api/v1'), FAREBOX_KEY: 'a-key' };
      const { stdout } = await run(process.execPath, [join(FOLDER, file)], {
        env,
        timeout: 30_000,
      });
      assert.match(stdout, expected);
    });
  }
});
