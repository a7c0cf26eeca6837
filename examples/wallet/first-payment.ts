/**
 * Pays for one chat on Base with the default settings of the official client, without an account or a
 * sign-in. The unused part of the payment becomes credit of the wallet.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/first-payment.ts
 */
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);

const client = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
const chat = await wrapFetchWithPayment(fetch, client)(`${baseUrl}/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
