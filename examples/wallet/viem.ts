/**
 * Tops up with USDC on Base and chats, with viem and without an x402 library, to show the protocol.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/viem.ts
 */
import { randomBytes } from 'node:crypto';
import { privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const amountUsd = 5;
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as `0x${string}`);

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');

interface Requirement {
  network: string;
  asset: `0x${string}`;
  payTo: `0x${string}`;
  maxTimeoutSeconds: number;
  extra: { name: string; version: string };
}

// 1. Read the payment requirements of a top-up.
const required = await fetch(`${baseUrl}/x402/top-up`, { method: 'POST' });
const { accepts } = (await required.json()) as { accepts: Requirement[] };
const accepted = accepts.find(({ network }) => network === 'eip155:8453');
if (accepted === undefined) throw new Error('This server takes no payments on Base');

// 2. Sign an ERC-3009 authorization: sender, receiver, amount, expiry, and a nonce that is used once.
const authorization = {
  from: account.address,
  to: accepted.payTo,
  value: BigInt(amountUsd * 1_000_000),
  validAfter: 0n,
  validBefore: BigInt(Math.floor(Date.now() / 1000) + accepted.maxTimeoutSeconds),
  nonce: `0x${randomBytes(32).toString('hex')}` as const,
};
const signature = await account.signTypedData({
  domain: { ...accepted.extra, chainId: 8453, verifyingContract: accepted.asset },
  types: {
    TransferWithAuthorization: [
      { name: 'from', type: 'address' },
      { name: 'to', type: 'address' },
      { name: 'value', type: 'uint256' },
      { name: 'validAfter', type: 'uint256' },
      { name: 'validBefore', type: 'uint256' },
      { name: 'nonce', type: 'bytes32' },
    ],
  },
  primaryType: 'TransferWithAuthorization',
  message: authorization,
});
const payment = encode({
  x402Version: 2,
  accepted,
  payload: {
    signature,
    authorization: {
      ...authorization,
      value: String(authorization.value),
      validAfter: '0',
      validBefore: String(authorization.validBefore),
    },
  },
});

// 3. Send it. Repeat the same header while the response is 202 or 503: a new signature would pay twice.
for (;;) {
  const response = await fetch(`${baseUrl}/x402/top-up`, {
    method: 'POST',
    headers: { 'PAYMENT-SIGNATURE': payment },
  });
  console.log('top-up', response.status, await response.text());
  if (response.status !== 202 && response.status !== 503) break;
  const seconds = Number(response.headers.get('Retry-After') ?? 5);
  await new Promise((resolve) => {
    setTimeout(resolve, seconds * 1000);
  });
}

// 4. Chat. Sign each request with a new nonce.
const url = `${baseUrl}/chat/completions`;
const message = createSiweMessage({
  address: account.address,
  chainId: 8453,
  domain: new URL(url).host,
  nonce: generateSiweNonce(),
  uri: url,
  version: '1',
  issuedAt: new Date(),
});
const proof = encode({
  address: account.address,
  message,
  signature: await account.signMessage({ message }),
  chainId: 8453,
});
const chat = await fetch(url, {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'SIGN-IN-WITH-X': proof },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
