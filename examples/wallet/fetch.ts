/**
 * Tops up with USDC on Base and chats, with the official x402 client.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/fetch.ts
 *
 * The wallet needs USDC on Base; it needs no ETH, because the server pays the gas.
 */
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { wrapFetchWithPayment } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);

// 1. Top up. The client rejects payments above 1 USD unless you raise its limit.
const payer = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
payer.setSpendControls({ maxAmountPerPayment: '$25' });
const toppedUp = await wrapFetchWithPayment(fetch, payer)(`${baseUrl}/x402/top-up`, {
  method: 'POST',
});
console.log('top-up', toppedUp.status, await toppedUp.text());

// 2. Chat. The sign-in extension responds to the 402 with a signature instead of a payment.
const signer = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
signer.registerExtension(createSIWxClientExtension({ signers: [account] }));
const chat = await wrapFetchWithPayment(fetch, signer)(`${baseUrl}/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
