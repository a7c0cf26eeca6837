/** Uses @solana/web3.js with Farebox as the RPC node: `FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/rpc/web3-js.ts` */
import { Connection, PublicKey } from '@solana/web3.js';

const url = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = process.env['FAREBOX_KEY'] ?? '';

const connection = new Connection(`${url}/crypto/rpc/solana-mainnet`, {
  commitment: 'confirmed',
  httpHeaders: { authorization: `Bearer ${key}` },
  // Do not retry a 429 at once: X-RateLimit-Reset contains the time of the next attempt.
  disableRetryOnRateLimit: true,
});

const lamports = await connection.getBalance(new PublicKey('11111111111111111111111111111111'));
console.log(`web3.js: ${lamports} lamports`);
