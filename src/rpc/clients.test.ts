/** Unmodified clients of the three families through the proxy, on real and on fake nodes. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';
import { address, createSolanaRpc } from '@solana/kit';
import { Connection, PublicKey } from '@solana/web3.js';
import * as ethers from 'ethers';
import { RpcProvider } from 'starknet';
import { createPublicClient, createWalletClient, http, parseEther } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { BASE_CHAIN } from '../../test/chains/anvil.ts';
import { startAnvil } from '../../test/rpc/anvil.ts';
import { makeRpc } from '../../test/rpc/bench.ts';
import { startRpcServer } from '../../test/rpc/rpc-server.ts';
import type { RpcServer } from '../../test/rpc/rpc-server.ts';
import { sendJson, sendText, startNode } from '../../test/rpc/node.ts';
import { systemClock } from '../core/clock.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { silentLog } from '../core/log.ts';

const mainnet = { ...BASE_CHAIN, id: 1, name: 'Ethereum' };

const closing: (() => Promise<unknown>)[] = [];
after(async () => {
  for (const close of closing.reverse()) await close();
});

async function serve(network: string, urls: readonly string[]): Promise<RpcServer> {
  const upstreams = urls.map((url, index) => ({ url, weight: index === 0 ? 1e6 : 1e-6 }));
  const rpc = makeRpc(
    { networks: { [network]: { upstreams } } },
    { clock: systemClock(), ids: seededIds(3), log: silentLog },
  );
  const started = await startRpcServer(rpc);
  closing.push(async () => rpc.close(), started.close);
  return started;
}

/** The first two accounts of anvil; their keys are public. */
const KEYS = [
  '0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80',
  '0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d',
] as const;
const TOPIC = `0x${'77'.repeat(32)}` as const;
/** Returns 42 and emits one log for any input. */
const CONTRACT = `0x60308060093d393df3602a6000527f${TOPIC.slice(2)}60206000a160206000f3` as const;

interface Pair {
  readonly urls: readonly string[];
  /** Kills the first node. */
  readonly killFirst: () => Promise<void>;
}

/** Two nodes with the same history: transactions to the first are repeated on the second. */
async function startPair(): Promise<Pair> {
  const [first, second] = await Promise.all([startAnvil(1), startAnvil(1)]);
  const relay = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const send = async (url: string): Promise<string> =>
        (
          await fetch(url, {
            method: 'POST',
            body,
            headers: { 'content-type': 'application/json' },
          })
        ).text();
      void (async () => {
        const text = await send(first.url);
        if (body.includes('eth_sendRawTransaction')) await send(second.url);
        sendText(response, text);
      })().catch(() => response.destroy());
    });
  });
  await new Promise<void>((resolve) => {
    relay.listen(0, '127.0.0.1', resolve);
  });
  const { port } = relay.address() as AddressInfo; // a TCP server has an address of this kind
  const killFirst = async (): Promise<void> => {
    await first.kill();
    relay.closeAllConnections();
    relay.close();
  };
  closing.push(killFirst, second.kill);
  return { urls: [`http://127.0.0.1:${port}`, second.url], killFirst };
}

describe('EVM clients while one of two nodes is killed', () => {
  test('viem: batch, deploy, send, wait, logs, trace', async () => {
    const pair = await startPair();
    const proxy = await serve('ethereum-mainnet', pair.urls);
    const transport = http(proxy.url('ethereum-mainnet'), {
      batch: { batchSize: 100 },
      retryCount: 0,
    });
    const account = privateKeyToAccount(KEYS[0]);
    const reader = createPublicClient({ chain: mainnet, transport, pollingInterval: 50 });
    const wallet = createWalletClient({ account, chain: mainnet, transport });
    const receiver = privateKeyToAccount(KEYS[1]).address;
    const deployed = await reader.waitForTransactionReceipt({
      hash: await wallet.deployContract({ abi: [], bytecode: CONTRACT }),
    });
    const contract = deployed.contractAddress!;
    const emitted = await reader.waitForTransactionReceipt({
      hash: await wallet.sendTransaction({ to: contract }),
    });
    assert.equal(emitted.logs[0]!.topics[0], TOPIC);

    const reads = Array.from({ length: 150 }, async (_, index) => {
      if (index === 75) await pair.killFirst();
      return reader.getBalance({ address: receiver });
    });
    assert.equal(new Set(await Promise.all(reads)).size, 1);

    const before = await reader.getBalance({ address: receiver });
    const hash = await wallet.sendTransaction({ to: receiver, value: parseEther('1') });
    const receipt = await reader.waitForTransactionReceipt({ hash });
    assert.equal(receipt.status, 'success');
    assert.equal(await reader.getBalance({ address: receiver }), before + parseEther('1'));
    const logs = await reader.getLogs({ address: contract, fromBlock: 0n });
    assert.equal(logs.length, 1);
    assert.equal((await reader.call({ to: contract })).data, `0x${'2a'.padStart(64, '0')}`);
    const trace = await reader.request({
      method: 'debug_traceTransaction',
      params: [hash, { tracer: 'callTracer' }],
    } as never);
    assert.equal((trace as { type: string }).type, 'CALL');
    await assert.rejects(reader.call({ to: contract, gas: 1n, data: '0x00' }));
    assert.ok(proxy.credits.every((credits) => credits % 5 === 0));
  });

  test('ethers: batch, deploy, send, wait, logs, trace', async () => {
    const pair = await startPair();
    const proxy = await serve('ethereum-mainnet', pair.urls);
    const provider = new ethers.JsonRpcProvider(proxy.url('ethereum-mainnet'), 1, {
      staticNetwork: true,
      polling: true,
      pollingInterval: 50,
      batchMaxCount: 100,
      cacheTimeout: -1,
    });
    closing.push(async () => provider.destroy());
    const wallet = new ethers.Wallet(KEYS[0], provider);
    const receiver = new ethers.Wallet(KEYS[1]).address;
    const deployment = await new ethers.ContractFactory([], CONTRACT, wallet).deploy();
    await deployment.waitForDeployment();
    const contract = await deployment.getAddress();
    await (await wallet.sendTransaction({ to: contract }))?.wait();

    const reads = Array.from({ length: 150 }, async (_, index) => {
      if (index === 75) await pair.killFirst();
      return provider.getBalance(receiver);
    });
    assert.equal(new Set(await Promise.all(reads)).size, 1);

    const before = await provider.getBalance(receiver);
    const sent = await wallet.sendTransaction({ to: receiver, value: ethers.parseEther('1') });
    const receipt = await sent.wait();
    assert.equal(receipt!.status, 1);
    assert.equal(await provider.getBalance(receiver), before + ethers.parseEther('1'));
    assert.equal((await provider.getLogs({ address: contract, fromBlock: 0 })).length, 1);
    const trace: unknown = await provider.send('debug_traceTransaction', [
      sent.hash,
      { tracer: 'callTracer' },
    ]);
    assert.equal((trace as { type: string }).type, 'CALL');
  });
});

const U64_MAX = 18_446_744_073_709_551_615n;

describe('Solana clients', () => {
  test('@solana/kit and @solana/web3.js read u64::MAX exactly', async () => {
    const node = await startNode(
      '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d',
      (request, response) => {
        const items = request.calls.map(
          (call) =>
            `{"jsonrpc":"2.0","result":{"context":{"apiVersion":"3.0.0","slot":1},"value":{"data":["","base64"],"executable":false,"lamports":${U64_MAX},"owner":"11111111111111111111111111111111","rentEpoch":${U64_MAX},"space":0}},"id":${JSON.stringify(call.id)}}`,
        );
        sendText(response, request.isBatch ? `[${items.join(',')}]` : items.join(''));
      },
    );
    const proxy = await serve('solana-mainnet', [node.url]);
    closing.push(node.close);
    const url = proxy.url('solana-mainnet');
    const system = '11111111111111111111111111111111';
    const { value } = await createSolanaRpc(url)
      .getAccountInfo(address(system), { encoding: 'base64' })
      .send();
    assert.equal(value!.lamports, U64_MAX);
    let text = '';
    const connection = new Connection(url, {
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        text = await response.clone().text();
        return response;
      },
    });
    const account = await connection.getAccountInfo(new PublicKey(system));
    // web3.js 1 parses numbers as doubles, so the test also checks the digits in the response body.
    assert.equal(account!.rentEpoch, Number(U64_MAX));
    assert.match(text, /"rentEpoch":18446744073709551615/);
    assert.deepEqual(proxy.credits, [30, 30]);
  });
});

describe('Starknet clients', () => {
  test('starknet.js reads alone and in a batch', async () => {
    const results: Readonly<Record<string, unknown>> = {
      starknet_specVersion: '0.8.1',
      starknet_chainId: '0x534e5f4d41494e',
      starknet_blockNumber: 4_242,
      starknet_getNonce: '0x2a',
      starknet_getClassHashAt: '0x123',
    };
    const node = await startNode('0x534e5f4d41494e', (request, response) => {
      const items = request.calls.map((call) => ({
        jsonrpc: '2.0',
        id: call.id,
        result: results[call.method],
      }));
      sendJson(response, request.isBatch ? items : items[0]);
    });
    const proxy = await serve('starknet-mainnet', [node.url]);
    closing.push(node.close);
    const nodeUrl = proxy.url('starknet-mainnet');
    const provider = new RpcProvider({ nodeUrl, batch: 0 });
    const [nonce, classHash] = await Promise.all([
      provider.getNonceForAddress('0x1'),
      provider.getClassHashAt('0x1'),
    ]);
    assert.equal(nonce, '0x2a');
    assert.equal(classHash, '0x123');
    assert.equal(await new RpcProvider({ nodeUrl }).getBlockNumber(), 4_242);
    assert.ok(node.requests.some((request) => request.isBatch && request.calls.length > 1));
  });
});
