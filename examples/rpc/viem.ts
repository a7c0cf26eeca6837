/** Uses viem with Farebox as the RPC node: `FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/rpc/viem.ts` */
import { createPublicClient, http } from 'viem';
import { mainnet } from 'viem/chains';

const url = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = process.env['FAREBOX_KEY'] ?? '';

const client = createPublicClient({
  chain: mainnet,
  transport: http(`${url}/crypto/rpc/ethereum-mainnet`, {
    // Farebox accepts at most 100 calls per batch; the default of viem is 1,000.
    batch: { batchSize: 100 },
    fetchOptions: { headers: { authorization: `Bearer ${key}` } },
  }),
});

const [chainId, block] = await Promise.all([client.getChainId(), client.getBlockNumber()]);
console.log(`viem: chain ${chainId}, block ${block}`);
