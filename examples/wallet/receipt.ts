/**
 * Chats with an API key, fetches the signed receipt, and verifies both signatures with the official
 * functions of x402 and the keys that the server publishes.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 API_KEY=… npx node examples/wallet/receipt.ts
 */
import {
  type EIP712SignedReceipt,
  type JWSSignedReceipt,
  verifyReceiptSignatureEIP712,
  verifyReceiptSignatureJWS,
} from '@x402/extensions/offer-receipt';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const headers = {
  authorization: `Bearer ${process.env['API_KEY'] ?? ''}`,
  'content-type': 'application/json',
};

const chat = await fetch(`${baseUrl}/chat/completions`, {
  method: 'POST',
  headers,
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
const requestId = chat.headers.get('x-request-id') ?? '';
console.log('chat', chat.status, requestId);

const response = await fetch(`${baseUrl}/usage/${requestId}/signed`, { headers });
const signed = (await response.json()) as {
  usage: { cost: { usd: string } };
  receipts: [JWSSignedReceipt, EIP712SignedReceipt];
};
const [jws, eip712] = signed.receipts;
const claims = await verifyReceiptSignatureJWS(jws);
const { signer, payload } = await verifyReceiptSignatureEIP712(eip712);
console.log('cost', signed.usage.cost.usd, 'USD, paid by', claims.payer);

// A valid signature alone proves nothing about the signer, so compare its key with the published keys.
const keys = await (await fetch(new URL('/.well-known/did.json', baseUrl))).text();
const [header = ''] = jws.signature.split('.');
const { kid } = JSON.parse(Buffer.from(header, 'base64url').toString());
const isOurs = keys.includes(kid.split('#')[1]) && keys.includes(signer);
console.log('signed by the server', isOurs && claims.resourceUrl === payload.resourceUrl);
