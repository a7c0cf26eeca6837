/** Uses ethers with Farebox as the RPC node: `FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/rpc/ethers.ts` */
import { FetchRequest, JsonRpcProvider, Network } from 'ethers';

const url = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = process.env['FAREBOX_KEY'] ?? '';

const request = new FetchRequest(`${url}/crypto/rpc/ethereum-mainnet`);
request.setHeader('authorization', `Bearer ${key}`);

const provider = new JsonRpcProvider(request, 1, {
  staticNetwork: Network.from(1),
  // Polls eth_getLogs for events; Farebox rejects filters, because they need state on one node.
  polling: true,
  batchMaxCount: 100,
});

const [block, balance] = await Promise.all([
  provider.getBlockNumber(),
  provider.getBalance('0x0000000000000000000000000000000000000000'),
]);
console.log(`ethers: block ${block}, balance ${balance}`);
provider.destroy();
