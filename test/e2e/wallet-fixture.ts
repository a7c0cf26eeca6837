/**
 * Fixture of wallet tests: a private Base and Solana, an engine, a configuration with both rails on
 * its own port, wallets with tokens, and signed headers.
 */
import assert from 'node:assert/strict';
import {
  type KeyPairSigner,
  createKeyPairSignerFromPrivateKeyBytes,
  generateKeyPairSigner,
} from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import type { Hex } from 'viem';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';
import { freePort } from '../support/free-port.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { systemIds } from '../../src/core/ids.ts';
import { type TestApp, type TestAppOptions, startTestApp } from '../app/test-app.ts';
import { type AnvilChain, USDC, startAnvil } from '../chains/anvil.ts';
import { type SolanaChain, startSolana } from '../chains/solana.ts';

export const BASE = 'eip155:8453';
export const SOLANA = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
export const PAY_TO: Hex = '0x00000000000000000000000000000000000fa12b';
export const CHAT = chatBody('m');

/** Usage and cost of a chat with that model. */
export function chatBody(model: string): string {
  return JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }] });
}

export interface WalletFixture {
  readonly anvil: AnvilChain;
  readonly solana: SolanaChain;
  readonly upstream: TestUpstream;
  readonly receiver: KeyPairSigner;
  /** Sends the settlements on Base. */
  readonly gasAddress: Hex;
  /** Holds the USDC of refunds on Base. */
  readonly treasury: PrivateKeyAccount;
  readonly port: number;
  /** `http://127.0.0.1:<port>`. */
  readonly origin: string;
  /** Engine, model, rails; limits wide enough for a test. */
  readonly yaml: string;
  startApp(options?: TestAppOptions): Promise<TestApp>;
  evmWallet(units?: bigint): Promise<PrivateKeyAccount>;
  solanaWallet(units?: bigint): Promise<KeyPairSigner>;
  stop(): Promise<void>;
}

export async function startWalletFixture(
  paymentSettings = '',
  baseSettings = '',
): Promise<WalletFixture> {
  const anvil = await startAnvil();
  const solana = await startSolana();
  const upstream = await TestUpstream.start();
  const receiver = await generateKeyPairSigner();
  const gasKey = generatePrivateKey();
  const treasuryKey = generatePrivateKey();
  const treasury = privateKeyToAccount(treasuryKey);
  const feePayerKey = systemIds().hex(32);
  const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
  await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
  await anvil.mint(treasury.address, 1_000_000_000n);
  solana.airdrop(feePayer.address, 10_000_000_000n);
  await solana.setTokens(receiver.address, 0n);
  const port = await freePort();
  const yaml = `
engines: { fake: { url: ${upstream.url} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
payments:
  settleWaitSeconds: 2
  routesPerMinute: { topUp: 10000, balance: 10000, transactions: 10000, token: 10000 }
  base: { payTo: '${PAY_TO}', rpcUrl: ${anvil.rpcUrl}, gasKey: '${gasKey}', refundKey: '${treasuryKey}', maxFeeGwei: 50, warnBelowEth: 0${baseSettings} }
  solana: { payTo: ${receiver.address}, rpcUrl: ${solana.rpcUrl}, feePayerKey: ${feePayerKey}, warnBelowSol: 0 }
${paymentSettings}`;
  return {
    anvil,
    solana,
    upstream,
    receiver,
    gasAddress: privateKeyToAccount(gasKey).address,
    treasury,
    port,
    origin: `http://127.0.0.1:${port}`,
    yaml,
    startApp: (options = {}) =>
      startTestApp({
        port,
        ...options,
        yaml: `${yaml}\n${options.yaml ?? ''}`,
      }),
    evmWallet: async (units = 100_000_000n) => {
      const account = privateKeyToAccount(generatePrivateKey());
      await anvil.mint(account.address, units);
      return account;
    },
    solanaWallet: async (units = 100_000_000n) => {
      const signer = await generateKeyPairSigner();
      await solana.setTokens(signer.address, units);
      return signer;
    },
    stop: async () => {
      await upstream.kill();
      await anvil.stop();
      await solana.stop();
    },
  };
}

/** The official client with a wallet of Base. */
export function evmClient(account: PrivateKeyAccount): x402Client {
  const client = new x402Client().register(BASE, new ExactEvmScheme(account));
  client.setSpendControls({ maxAmountPerPayment: '$25' });
  return client;
}

/** The official client with a wallet of Solana. */
export function solanaClient(signer: KeyPairSigner, rpcUrl: string): x402Client {
  const client = new x402Client().register(SOLANA, new ExactSvmScheme(signer, { rpcUrl }));
  client.setSpendControls({ maxAmountPerPayment: '$25' });
  return client;
}

/** Adds the official sign-in extension. */
export function signingIn(client: x402Client, signer: unknown): x402Client {
  client.registerExtension(createSIWxClientExtension({ signers: [signer as never] }));
  return client;
}

export const encode = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString('base64');

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

export interface PaymentChanges {
  /** Signed with other content than what is sent. */
  readonly signed?: Readonly<Record<string, unknown>>;
  readonly authorization?: Readonly<Record<string, unknown>>;
  readonly accepted?: Readonly<Record<string, unknown>>;
  readonly payload?: Readonly<Record<string, unknown>>;
  readonly envelope?: Readonly<Record<string, unknown>>;
}

/** A payment header on Base, with changes for the worse. */
export async function evmPayment(
  account: PrivateKeyAccount,
  changes: PaymentChanges = {},
): Promise<string> {
  const authorization = {
    from: account.address as string,
    to: PAY_TO as string,
    value: '5000000',
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1000) + 600),
    nonce: generatePrivateKey() as string,
    ...changes.authorization,
  };
  const signature = await account
    .signTypedData({
      domain: { name: 'USD Coin', version: '2', chainId: 8453, verifyingContract: USDC },
      types: TYPES,
      primaryType: 'TransferWithAuthorization',
      message: { ...authorization, ...changes.signed } as never,
    })
    .catch(() => `0x${'11'.repeat(65)}`); // what cannot be signed is sent all the same
  return encode({
    x402Version: 2,
    accepted: {
      scheme: 'exact',
      network: BASE,
      asset: USDC,
      payTo: PAY_TO,
      amount: '5000000',
      ...changes.accepted,
    },
    payload: { authorization, signature, ...changes.payload },
    ...changes.envelope,
  });
}

/** A header of the scheme `upto` by the official client: a ceiling that this facilitator may move. */
export async function uptoPayment(
  account: PrivateKeyAccount,
  facilitatorAddress: Hex,
  amount = '20000000',
): Promise<string> {
  const accepted = {
    scheme: 'upto',
    network: BASE,
    asset: USDC,
    payTo: PAY_TO,
    amount,
    maxTimeoutSeconds: 300,
    extra: { facilitatorAddress },
  } as const;
  const { payload } = await new UptoEvmScheme(account).createPaymentPayload(2, accepted);
  return encode({ x402Version: 2, accepted, payload });
}

/** A fresh sign-in header of the text form. */
export async function signIn(account: PrivateKeyAccount, origin: string): Promise<string> {
  const message = createSiweMessage({
    address: account.address,
    chainId: 8453,
    domain: new URL(origin).host,
    nonce: generateSiweNonce(),
    uri: `${origin}/api/v1/chat/completions`,
    version: '1',
    issuedAt: new Date(),
  });
  const signature = await account.signMessage({ message });
  return encode({ address: account.address, message, signature, chainId: 8453 });
}

/** A chat with these headers. */
export async function chat(
  origin: string,
  headers: Readonly<Record<string, string>>,
  body = CHAT,
): Promise<Response> {
  return await fetch(`${origin}/api/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
}

export async function topUp(
  origin: string,
  headers: Readonly<Record<string, string>>,
): Promise<Response> {
  return await fetch(`${origin}/api/v1/x402/top-up`, { method: 'POST', headers });
}

/** Credit of a wallet in nano-USD, as the ledger has it. */
export async function creditOf(app: TestApp, wallet: string): Promise<bigint> {
  const id = wallet.startsWith('0x') ? wallet.toLowerCase() : wallet;
  return (await app.app.stores.ledger.balances(`wallet:${id}`)).usdNano;
}

/** Fails unless every token unit that arrived is credited, and nothing else is. */
export async function assertLedgerIsChain(app: TestApp, fixture: WalletFixture): Promise<void> {
  const rows = await app.app.stores.store.query<{ house: string; total: bigint }>(
    `SELECT debit_account AS house, CAST(SUM(amount_nano) AS BIGINT) AS total FROM ledger_transfer
     WHERE kind = 'TOP_UP' GROUP BY debit_account`,
  );
  const credited = new Map(rows.map(({ house, total }) => [house, total / 1_000n]));
  assert.equal(credited.get('house:top-up:base') ?? 0n, await fixture.anvil.balance(PAY_TO));
  const onSolana = await fixture.solana.tokens(fixture.receiver.address);
  assert.equal(credited.get('house:top-up:solana') ?? 0n, onSolana);
}
