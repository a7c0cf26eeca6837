/**
 * For tests: new wallets with tokens on the private chains, and payment headers that the official
 * clients create from the offer of a fixture.
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
import { transferTypedData } from '../../src/payments/evm/chain.ts';
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
  network: `${string}:${string}` = BASE,
): Promise<TestPayment> {
  const account = privateKeyToAccount(privateKey);
  await chain.mint(account.address, TOKENS);
  const client = new x402Client().register(network, new ExactEvmScheme(account));
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
  return encodeHeader(payload);
}

export interface TransferChanges {
  /** Changes of what is signed, but not sent. */
  readonly signed?: Readonly<Record<string, unknown>>;
  readonly authorization?: Readonly<Record<string, unknown>>;
  readonly accepted?: Readonly<Record<string, unknown>>;
  readonly payload?: Readonly<Record<string, unknown>>;
  readonly envelope?: Readonly<Record<string, unknown>>;
}

/** An account of viem, of any copy of it. */
interface Signer {
  readonly address: Hex;
  signTypedData(typed: never): Promise<Hex>;
}

export const BAD_SIGNATURE: Hex = `0x${'11'.repeat(65)}`;

/** A payment of 5 USD from `account` to `payTo`, signed without an official client, so that it can be wrong. */
export async function transferHeader(
  account: Signer,
  payTo: Hex,
  changes: TransferChanges = {},
): Promise<string> {
  const offer = { network: BASE, asset: USDC, payTo, extra: { name: 'USD Coin', version: '2' } };
  const authorization = {
    from: account.address,
    to: payTo,
    value: '5000000',
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1000) + 600),
    nonce: generatePrivateKey(),
    ...changes.authorization,
  };
  const typed = transferTypedData(offer, { ...authorization, ...changes.signed } as never);
  // Data that cannot be signed is sent with an invalid signature.
  const signature = await account.signTypedData(typed as never).catch(() => BAD_SIGNATURE);
  const accepted = { scheme: 'exact', network: BASE, asset: USDC, payTo, ...changes.accepted };
  const payload = { authorization, signature, ...changes.payload };
  return encodeHeader({ x402Version: 2, accepted, payload, ...changes.envelope });
}

export function encodeHeader(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

/** Arguments of `transferWithAuthorization` for the payment of a header. */
export function transferArgs(header: string): readonly unknown[] {
  const { authorization: one, signature } = authorizationOf(header);
  const { r, s, yParity } = parseSignature(signature);
  const numbers = [BigInt(one.value), BigInt(one.validAfter), BigInt(one.validBefore)];
  return [one.from, one.to, ...numbers, one.nonce, 27 + yParity, r, s];
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
