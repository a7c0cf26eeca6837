/**
 * Uses an OpenAI SDK with the credit of a wallet: one signature returns a token that is valid for an hour.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/openai-sdk.ts
 *
 * The wallet needs credit; fetch.ts and viem.ts show a top-up.
 */
import OpenAI from 'openai';
import { privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);

// 1. Sign in and get a token.
const url = `${baseUrl}/x402/token`;
const message = createSiweMessage({
  address: account.address,
  chainId: 8453,
  domain: new URL(url).host,
  nonce: generateSiweNonce(),
  uri: url,
  version: '1',
  issuedAt: new Date(),
});
const proof = { address: account.address, message, chainId: 8453 };
const signature = await account.signMessage({ message });
const response = await fetch(url, {
  method: 'POST',
  headers: {
    'SIGN-IN-WITH-X': Buffer.from(JSON.stringify({ ...proof, signature })).toString('base64'),
  },
});
if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
const { data } = (await response.json()) as { data: { token: string; expiresAt: string } };
console.log('token until', data.expiresAt);

// 2. Use the token as the API key.
const openai = new OpenAI({ baseURL: baseUrl, apiKey: data.token });
const stream = await openai.chat.completions.create({
  model,
  messages: [{ role: 'user', content: 'Say hello' }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
process.stdout.write('\n');
