/** Uses starknet.js with Farebox as the RPC node: `FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/rpc/starknet.ts` */
import { RpcProvider } from 'starknet';

const url = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = process.env['FAREBOX_KEY'] ?? '';

const provider = new RpcProvider({
  nodeUrl: `${url}/crypto/rpc/starknet-mainnet`,
  headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
  // Sends the calls of one event loop turn as one batch.
  batch: 0,
});

const [block, chainId] = await Promise.all([provider.getBlockNumber(), provider.getChainId()]);
console.log(`starknet.js: chain ${chainId}, block ${block}`);
