/** Uses @solana/kit with Farebox as the RPC node: `FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/rpc/solana-kit.ts` */
import { address, createDefaultRpcTransport, createSolanaRpcFromTransport } from '@solana/kit';

const url = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = process.env['FAREBOX_KEY'] ?? '';

const rpc = createSolanaRpcFromTransport(
  createDefaultRpcTransport({
    url: `${url}/crypto/rpc/solana-mainnet`,
    headers: { authorization: `Bearer ${key}` },
  }),
);

// Large numbers such as lamports stay exact: Farebox passes results on without parsing them.
const { value } = await rpc.getBalance(address('11111111111111111111111111111111')).send();
console.log(`@solana/kit: ${value} lamports`);
