/**
 * Pays for one chat on Base with a nonce that binds the signature to this server (extension `bound-nonce`).
 * The nonce is a hash of the origin, the resource and a salt, which is sent with the payment. Keep the
 * salt to prove later what the payment was for.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 PRIVATE_KEY=0x… npx node examples/wallet/bound-nonce.ts
 */
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { type Hex, bytesToHex, getAddress, keccak256, toBytes } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';

const TYPES = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const model = process.env['MODEL'] ?? 'default';
const account = privateKeyToAccount(process.env['PRIVATE_KEY'] as Hex);
// Taken from the URL that is called, because the 402 of another server could contain this server's URL.
const resource = new URL(`${baseUrl}/chat/completions`);

/** The official scheme, with a bound nonce if the server offers the extension. */
class BoundScheme extends ExactEvmScheme {
  override async createPaymentPayload(
    ...[version, option, context]: Parameters<ExactEvmScheme['createPaymentPayload']>
  ) {
    if (context?.extensions?.['bound-nonce'] === undefined) {
      return super.createPaymentPayload(version, option, context);
    }
    const salt = bytesToHex(crypto.getRandomValues(new Uint8Array(32)));
    const lines = ['x402 bound nonce v1', resource.origin, resource.href, salt];
    const nowSeconds = Math.floor(Date.now() / 1_000);
    const authorization = {
      from: account.address,
      to: getAddress(option.payTo),
      value: option.amount,
      validAfter: '0',
      validBefore: String(nowSeconds + option.maxTimeoutSeconds),
      nonce: keccak256(toBytes(lines.join('\n'))),
    };
    const { name, version: domainVersion } = option.extra as { name: string; version: string };
    const chainId = Number(option.network.split(':')[1]);
    const signature = await account.signTypedData({
      domain: {
        name,
        version: domainVersion,
        chainId,
        verifyingContract: getAddress(option.asset),
      },
      types: TYPES,
      primaryType: 'TransferWithAuthorization',
      message: {
        ...authorization,
        value: BigInt(authorization.value),
        validAfter: 0n,
        validBefore: BigInt(authorization.validBefore),
      },
    });
    console.log('salt', salt, 'nonce', authorization.nonce);
    const extensions = { 'bound-nonce': { info: { salt } } };
    return { x402Version: version, payload: { authorization, signature }, extensions };
  }
}

const client = new x402Client().register('eip155:8453', new BoundScheme(account));
const chat = await wrapFetchWithPayment(fetch, client)(resource, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Say hello' }] }),
});
console.log('chat', chat.status, await chat.text());
console.log('credit left', chat.headers.get('X-Balance-Remaining'), 'USD');
