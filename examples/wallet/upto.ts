/**
 * Pays for one chat on Base with a signed ceiling (the x402 scheme `upto`) and the official client. The
 * server moves the part of the maximum cost that the wallet's credit does not cover, or its minimum
 * payment if that is more. The wallet needs USDC and no ETH: the client reads the Permit2 allowance from
 * an RPC node and signs an approval if the allowance is too low.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/upto.ts
 */
import { decodePaymentResponseHeader } from '@x402/core/http';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);

const rpcUrl = process.env['BASE_RPC_URL'] ?? 'https://mainnet.base.org';
const scheme = new UptoEvmScheme(account, { rpcUrl });
const client = new x402Client().register('eip155:8453', scheme);
const chat = await wrapFetchWithPayment(fetch, client)(`${baseUrl}/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
const { amount } = decodePaymentResponseHeader(chat.headers.get('PAYMENT-RESPONSE') ?? '');
console.log('moved', Number(amount) / 1e6, 'USD');
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
