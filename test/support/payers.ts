/**
 * For tests: fresh wallets with tokens on the private chains, and the payment headers that the
 * official clients make of a fixture's offer.
 */
import { generateKeyPairSigner } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { type Hex, parseSignature } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type AnvilChain, BASE_CHAIN, USDC } from '../chains/anvil.ts';
import type { SolanaChain } from '../chains/solana.ts';
import { BASE, SOLANA } from '../../src/payments/networks.ts';
import type { Fixture } from './payments.ts';

export interface TestPayment {
  readonly header: string;
  /** Identity of the wallet. */
  readonly wallet: string;
}

const TOKENS = 20_000_000n;

/** A payment of 5 USD by a wallet of Base, a new one by default. */
export async function evmPayment(
  chain: AnvilChain,
  fixture: Fixture,
  privateKey = generatePrivateKey(),
): Promise<TestPayment> {
  const account = privateKeyToAccount(privateKey);
  await chain.mint(account.address, TOKENS);
  const client = new x402Client().register(BASE, new ExactEvmScheme(account));
  return { header: await headerOf(client, fixture), wallet: account.address.toLowerCase() };
}

/** A payment of 5 USD by a new wallet of Solana. */
export async function solanaPayment(chain: SolanaChain, fixture: Fixture): Promise<TestPayment> {
  const signer = await generateKeyPairSigner();
  await chain.setTokens(signer.address, TOKENS);
  const scheme = new ExactSvmScheme(signer, { rpcUrl: chain.rpcUrl });
  const client = new x402Client().register(SOLANA, scheme);
  return { header: await headerOf(client, fixture), wallet: signer.address };
}

async function headerOf(client: x402Client, fixture: Fixture): Promise<string> {
  client.setSpendControls({ maxAmountPerPayment: '$25' });
  const resource = { path: '/api/v1/x402/top-up', description: 'x' };
  const { header } = await fixture.payments.requirements.topUp(resource);
  const payload = await client.createPaymentPayload(decodePaymentRequiredHeader(header));
  return Buffer.from(JSON.stringify(payload)).toString('base64');
}

/** The signed ERC-3009 authorization of a header. */
export function authorizationOf(header: string): {
  readonly authorization: Readonly<
    Record<'from' | 'to' | 'value' | 'validAfter' | 'validBefore' | 'nonce', `0x${string}`>
  >;
  readonly signature: `0x${string}`;
} {
  const payload = JSON.parse(Buffer.from(header, 'base64').toString()) as {
    payload: ReturnType<typeof authorizationOf>;
  };
  return payload.payload;
}

/** Cancels the authorization of a header in the next block. */
export async function cancelAuthorization(
  chain: AnvilChain,
  privateKey: Hex,
  header: string,
): Promise<void> {
  const account = privateKeyToAccount(privateKey);
  const { nonce } = authorizationOf(header).authorization;
  const cancel = await account.signTypedData({
    domain: { name: 'USD Coin', version: '2', chainId: BASE_CHAIN.id, verifyingContract: USDC },
    types: {
      CancelAuthorization: [
        { name: 'authorizer', type: 'address' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'CancelAuthorization',
    message: { authorizer: account.address, nonce },
  });
  const { r, s, yParity } = parseSignature(cancel);
  await chain.callToken('cancelAuthorization', [account.address, nonce, 27 + yParity, r, s]);
}
