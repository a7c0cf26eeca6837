/**
 * Tops up with USDC on Solana and chats, with the official x402 client.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 KEYPAIR=~/.config/solana/id.json \
 *   SOLANA_RPC_URL=https://… npx node examples/wallet/solana.ts
 *
 * The wallet needs USDC; it needs no SOL, because the server pays the fee.
 */
import { readFileSync } from 'node:fs';
import { createKeyPairSignerFromBytes } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { wrapFetchWithPayment } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm/exact/client';

const NETWORK = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const rpcUrl = process.env['SOLANA_RPC_URL'] ?? 'https://api.mainnet-beta.solana.com';
const keypair = JSON.parse(readFileSync(process.env['KEYPAIR'] ?? '', 'utf8')) as number[];
const signer = await createKeyPairSignerFromBytes(Uint8Array.from(keypair));

// 1. Top up. The client rejects payments above 1 USD unless you raise its limit.
const payer = new x402Client().register(NETWORK, new ExactSvmScheme(signer, { rpcUrl }));
payer.setSpendControls({ maxAmountPerPayment: '$25' });
const toppedUp = await wrapFetchWithPayment(fetch, payer)(`${baseUrl}/x402/top-up`, {
  method: 'POST',
});
console.log('top-up', toppedUp.status, await toppedUp.text());

// 2. Chat. The sign-in extension responds to the 402 with a signature instead of a payment.
const signIn = new x402Client().register(NETWORK, new ExactSvmScheme(signer, { rpcUrl }));
// The extension accepts any signer with `signMessages`; its types allow only one kind.
signIn.registerExtension(createSIWxClientExtension({ signers: [signer as never] }));
const chat = await wrapFetchWithPayment(fetch, signIn)(`${baseUrl}/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
