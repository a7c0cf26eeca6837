/**
 * Calls an MCP tool and pays for it on Base with the official x402 client, without an account or API
 * key. The unused part of the payment becomes credit of the wallet.
 *
 *   FAREBOX_ORIGIN=https://api.example.com PRIVATE_KEY=0x… npx node examples/mcp/pay.ts
 */
import { x402Client } from '@x402/core/client';
import type { PaymentRequired } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { privateKeyToAccount } from 'viem/accounts';

const origin = process.env['FAREBOX_ORIGIN'] ?? 'http://127.0.0.1:8402';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);
const client = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
// The first offer is the suggested top-up amount; the client must allow payments of that size.
client.setSpendControls({ maxAmountPerPayment: '$10' });

interface ToolResult {
  readonly content: readonly { readonly text: string }[];
  readonly structuredContent?: unknown;
  readonly _meta?: Readonly<Record<string, unknown>>;
}

async function callTool(meta: object): Promise<ToolResult> {
  const response = await fetch(`${origin}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'chat',
        arguments: { prompt: 'Say hello', model: process.env['MODEL'] ?? 'default' },
        _meta: meta,
      },
    }),
  });
  const text = await response.text();
  // A long call returns server-sent events; the last event is the response.
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
  const { result, error } = JSON.parse(isStream ? (text.split('data: ').at(-1) ?? '') : text);
  if (error !== undefined) throw new Error(error.message);
  return result;
}

const rejected = await callTool({});
const payment = await client.createPaymentPayload(rejected.structuredContent as PaymentRequired);
const result = await callTool({ 'x402/payment': payment });
console.log('completion', result.content[0]?.text);
console.log('settled', result._meta?.['x402/payment-response']);
