/**
 * Bad sign-ins and bad payments over HTTP, each with its documented status and code: none is
 * served, none is a 500, none moves money.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage } from 'viem/siwe';
import { base58Encode } from '../../src/core/base58.ts';
import { call } from '../app/call.ts';
import type { TestApp } from '../app/test-app.ts';
import {
  PAY_TO,
  SOLANA,
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  creditOf,
  encode,
  evmPayment,
  signIn,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

const account = privateKeyToAccount(generatePrivateKey());
const other = privateKeyToAccount(generatePrivateKey());
const MINUTE_MS = 60_000;
const ago = (ms: number): Date => new Date(Date.now() - ms);

interface ProofChanges {
  readonly message?: Readonly<Record<string, unknown>>;
  /** Edits the text after it was made, before it is signed. */
  readonly text?: (text: string) => string;
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly signer?: typeof account;
}

describe('error responses to wallets', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    await fixture.anvil.mint(account.address, 100_000_000n);
    farebox = await fixture.startApp({ yaml: 'limits: { guard: { failures: 100000 } }' });
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });

  let nonces = 0;
  const freshNonce = (): string => `nonce${String((nonces += 1)).padStart(8, '0')}`;

  async function proof(changes: ProofChanges = {}): Promise<string> {
    const made = createSiweMessage({
      address: account.address,
      chainId: 8453,
      domain: new URL(fixture.origin).host,
      nonce: freshNonce(),
      uri: `${fixture.origin}/api/v1/chat/completions`,
      version: '1',
      issuedAt: new Date(),
      ...(changes.message as object),
    });
    const message = changes.text?.(made) ?? made;
    const signature = await (changes.signer ?? account).signMessage({ message });
    return encode({
      address: account.address,
      message,
      signature,
      chainId: 8453,
      ...changes.fields,
    });
  }

  const solanaKeys = generateKeyPairSync('ed25519');
  const solanaAddress = base58Encode(
    Buffer.from(solanaKeys.publicKey.export({ format: 'jwk' }).x ?? '', 'base64url'),
  );

  function solanaProof(changes: { signature?: string; chain?: string } = {}): string {
    const chain = changes.chain ?? SOLANA;
    const lines = [
      `${new URL(fixture.origin).host} wants you to sign in with your Solana account:`,
      solanaAddress,
      '',
      `URI: ${fixture.origin}`,
      'Version: 1',
      `Chain ID: ${chain.slice('solana:'.length)}`,
      `Nonce: ${freshNonce()}`,
      `Issued At: ${new Date().toISOString()}`,
    ];
    const message = lines.join('\n');
    const signature =
      changes.signature ?? base58Encode(sign(null, Buffer.from(message), solanaKeys.privateKey));
    return encode({ address: solanaAddress, message, signature, chainId: chain, type: 'ed25519' });
  }

  const bad = (reason: string): string => `X402_SIGN_IN_${reason}`;
  const dropLine =
    (start: string) =>
    (text: string): string =>
      text
        .split('\n')
        .filter((line) => !line.startsWith(start))
        .join('\n');

  const proofs: [string, string, () => string | Promise<string>][] = [
    ['not base64', bad('INVALID_PAYLOAD'), () => '%%%'],
    ['base64 of no JSON', bad('INVALID_PAYLOAD'), () => Buffer.from('me').toString('base64')],
    ['a JSON list', bad('INVALID_PAYLOAD'), () => encode([])],
    ['a JSON null', bad('INVALID_PAYLOAD'), () => encode(null)],
    ['longer than 8 KB', bad('INVALID_PAYLOAD'), () => 'A'.repeat(9_000)],
    ['no signature', bad('INVALID_PAYLOAD'), () => proof({ fields: { signature: undefined } })],
    ['no address', bad('INVALID_PAYLOAD'), () => proof({ fields: { address: undefined } })],
    ['a type that is none', bad('INVALID_PAYLOAD'), () => proof({ fields: { type: 'rsa' } })],
    ['a timestamp in words', bad('INVALID_PAYLOAD'), () => proof({ fields: { timestamp: 'now' } })],
    ['a text that is no message', bad('PARSE_ERROR'), () => proof({ text: () => 'let me in' })],
    [
      'version 2',
      bad('INVALID_MESSAGE'),
      () => proof({ text: (t) => t.replace('Version: 1', 'Version: 2') }),
    ],
    [
      'a nonce of three letters',
      bad('INVALID_MESSAGE'),
      () => proof({ text: (t) => t.replace(/Nonce: \w+/, 'Nonce: abc') }),
    ],
    [
      'a time that is none',
      bad('INVALID_MESSAGE'),
      () => proof({ text: (t) => t.replace(/Issued At: .*/, 'Issued At: today') }),
    ],
    ['no nonce', bad('MISSING_NONCE'), () => proof({ text: dropLine('Nonce:') })],
    [
      'another address beside',
      bad('ADDRESS_MISMATCH'),
      () => proof({ fields: { address: other.address } }),
    ],
    [
      'an address that is none',
      bad('INVALID_WALLET'),
      () => proof({ fields: { address: '0x12' } }),
    ],
    [
      'a wrong checksum',
      bad('INVALID_WALLET'),
      () => proof({ fields: { address: flipCase(account.address) } }),
    ],
    [
      'a chain that is a list',
      bad('INVALID_CHAIN_ID'),
      () => proof({ fields: { chainId: [8453] } }),
    ],
    [
      'a chain with a space',
      bad('INVALID_CHAIN_ID'),
      () => proof({ fields: { chainId: 'eip155: 1' } }),
    ],
    ['another chain beside', bad('CHAIN_MISMATCH'), () => proof({ fields: { chainId: 1 } })],
    [
      'Ethereum mainnet',
      bad('UNSUPPORTED_CHAIN'),
      () => proof({ message: { chainId: 1 }, fields: { chainId: 1 } }),
    ],
    [
      'Solana devnet',
      bad('UNSUPPORTED_CHAIN'),
      () => solanaProof({ chain: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1' }),
    ],
    [
      'another domain',
      bad('DOMAIN_MISMATCH'),
      () => proof({ message: { domain: 'evil.example' } }),
    ],
    [
      'the domain without its port',
      bad('DOMAIN_MISMATCH'),
      () => proof({ message: { domain: '127.0.0.1' } }),
    ],
    [
      'a timestamp of another time',
      bad('TIMESTAMP_MISMATCH'),
      () => proof({ fields: { timestamp: Date.now() - MINUTE_MS } }),
    ],
    ['six minutes old', bad('EXPIRED'), () => proof({ message: { issuedAt: ago(6 * MINUTE_MS) } })],
    ['over', bad('EXPIRED'), () => proof({ message: { expirationTime: ago(1_000) } })],
    [
      'a minute ahead',
      bad('FUTURE_TIMESTAMP'),
      () => proof({ message: { issuedAt: ago(-MINUTE_MS) } }),
    ],
    ['not valid yet', bad('NOT_BEFORE'), () => proof({ message: { notBefore: ago(-MINUTE_MS) } })],
    ['signed by another key', bad('INVALID_SIGNATURE'), () => proof({ signer: other })],
    [
      'a signature of nobody',
      bad('INVALID_SIGNATURE'),
      () => proof({ fields: { signature: `0x${'11'.repeat(65)}` } }),
    ],
    [
      'a signature in words',
      bad('INVALID_SIGNATURE'),
      () => proof({ fields: { signature: 'yes' } }),
    ],
    [
      'a Solana signature of zeros',
      bad('INVALID_SIGNATURE'),
      () => solanaProof({ signature: base58Encode(Buffer.alloc(64)) }),
    ],
  ];

  for (const [name, code, make] of proofs) {
    test(`sign-in, ${name}: 401 ${code}`, async () => {
      const answer = await chat(fixture.origin, { 'SIGN-IN-WITH-X': await make() });
      const body = (await answer.json()) as { code: string; error: string };
      assert.deepEqual([answer.status, body.code], [401, code]);
      assert.match(body.error, /^[A-Z].*[^.]$/);
    });
  }

  test('a valid proof on both chains authenticates once', async () => {
    for (const made of [await proof(), solanaProof()]) {
      // 402: known, without credit.
      assert.equal((await chat(fixture.origin, { 'SIGN-IN-WITH-X': made })).status, 402);
      const again = await chat(fixture.origin, { 'X-Sign-In-With-X': made });
      const { code } = (await again.json()) as { code: string };
      assert.deepEqual([again.status, code], [401, 'X402_SIGN_IN_NONCE_REUSED']);
    }
  });

  const soon = String(Math.floor(Date.now() / 1000) + 3_000);
  const value = (amount: string) => () => evmPayment(account, { authorization: { value: amount } });
  const payments: [string, string, () => string | Promise<string>][] = [
    ['not base64', 'INVALID_PAYMENT_FORMAT', () => '%%%'],
    ['base64 of no JSON', 'INVALID_PAYMENT_FORMAT', () => Buffer.from('pay').toString('base64')],
    ['a JSON list', 'INVALID_PAYMENT_FORMAT', () => encode([])],
    ['longer than 12 KB', 'INVALID_PAYMENT_FORMAT', () => 'A'.repeat(13_000)],
    [
      'version 3',
      'INVALID_PAYMENT_FORMAT',
      () => evmPayment(account, { envelope: { x402Version: 3 } }),
    ],
    [
      'no payload',
      'INVALID_PAYMENT_FORMAT',
      () => evmPayment(account, { envelope: { payload: undefined } }),
    ],
    [
      'accepted that is a list',
      'INVALID_PAYMENT_FORMAT',
      () => evmPayment(account, { envelope: { accepted: [1] } }),
    ],
    [
      'an identifier of three letters',
      'INVALID_PAYMENT_FORMAT',
      () =>
        evmPayment(account, {
          envelope: { extensions: { 'payment-identifier': { info: { id: 'abc' } } } },
        }),
    ],
    [
      'scheme upto',
      'UNSUPPORTED_SCHEME',
      () => evmPayment(account, { accepted: { scheme: 'upto' } }),
    ],
    [
      'Ethereum mainnet',
      'UNSUPPORTED_NETWORK',
      () => evmPayment(account, { accepted: { network: 'eip155:1' } }),
    ],
    [
      'a network that is none',
      'UNSUPPORTED_NETWORK',
      () => evmPayment(account, { accepted: { network: 'mars' } }),
    ],
    [
      'an empty inner payload',
      'INVALID_PAYMENT',
      () => evmPayment(account, { envelope: { payload: {} } }),
    ],
    [
      'no signature',
      'INVALID_PAYMENT',
      () => evmPayment(account, { payload: { signature: undefined } }),
    ],
    [
      'a short signature',
      'INVALID_PAYMENT',
      () => evmPayment(account, { payload: { signature: '0x1111' } }),
    ],
    [
      'the Permit2 shape',
      'INVALID_PAYMENT',
      () => evmPayment(account, { payload: { permit2Authorization: {} } }),
    ],
    [
      'a short nonce',
      'INVALID_PAYMENT',
      () => evmPayment(account, { authorization: { nonce: '0x11' } }),
    ],
    [
      'validBefore in words',
      'INVALID_PAYMENT',
      () => evmPayment(account, { authorization: { validBefore: 'later' } }),
    ],
    [
      'a Solana transaction of zeros',
      'INVALID_PAYMENT',
      () =>
        encode({
          x402Version: 1,
          scheme: 'exact',
          network: 'solana',
          payload: { transaction: Buffer.alloc(200).toString('base64') },
        }),
    ],
    ['a value in words', 'INVALID_AMOUNT', value('five')],
    ['a negative value', 'INVALID_AMOUNT', value('-5000000')],
    ['a value of zero', 'INVALID_AMOUNT', value('0')],
    ['a value above 256 bits', 'INVALID_AMOUNT', value('9'.repeat(78))],
    ['0.099999 USD', 'AMOUNT_TOO_LOW', value('99999')],
    ['10,000.000001 USD', 'AMOUNT_TOO_HIGH', value('10000000001')],
    [
      'another receiver',
      'INVALID_PAYMENT_RECIPIENT',
      () => evmPayment(account, { authorization: { to: other.address } }),
    ],
    [
      'another receiver in accepted',
      'INVALID_PAYMENT_RECIPIENT',
      () => evmPayment(account, { accepted: { payTo: other.address } }),
    ],
    [
      'a payer that is no address',
      'INVALID_PAYMENT_PAYER',
      () => evmPayment(account, { authorization: { from: 7 } }),
    ],
    [
      'the receiver as payer',
      'INVALID_PAYMENT_PAYER',
      () => evmPayment(account, { authorization: { from: PAY_TO } }),
    ],
    [
      'another token',
      'UNSUPPORTED_TOKEN',
      () => evmPayment(account, { accepted: { asset: PAY_TO } }),
    ],
    [
      'a signature over another amount',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmPayment(account, { signed: { value: '6000000' } }),
    ],
    [
      'the signature of nobody',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmPayment(account, { payload: { signature: `0x${'11'.repeat(65)}` } }),
    ],
    [
      'expired',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmPayment(account, { authorization: { validBefore: '1000' } }),
    ],
    [
      'not valid yet',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmPayment(account, { authorization: { validAfter: soon } }),
    ],
    ['more than the balance', 'PAYMENT_VERIFICATION_FAILED', value('200000000')],
  ];

  for (const [name, code, make] of payments) {
    test(`payment, ${name}: 400 ${code}, on the top-up and on a paid route`, async () => {
      const header = await make();
      for (const send of [topUp, chat]) {
        const answer = await send(fixture.origin, { 'PAYMENT-SIGNATURE': header });
        const body = (await answer.json()) as { error: string; message: string };
        assert.deepEqual([answer.status, body.error], [400, code]);
        assert.match(body.message, /^[A-Z].*[^.]$/);
      }
    });
  }

  test('after all errors no money was transferred, and the wallet can still pay', async () => {
    await assertLedgerIsChain(farebox, fixture);
    assert.equal(await creditOf(farebox, account.address), 0n);
    const paid = await topUp(fixture.origin, { 'X-402-Payment': await evmPayment(account) });
    assert.equal(paid.status, 200);
    const proofHeader = await signIn(account, fixture.origin);
    assert.equal((await chat(fixture.origin, { 'SIGN-IN-WITH-X': proofHeader })).status, 200);
    await assertLedgerIsChain(farebox, fixture);
  });

  test('the wallet of a disabled account is rejected, with and without a payment', async () => {
    const { identity } = farebox.app.stores;
    const opened = await identity.findAccount(await identity.openWalletAccount(account.address));
    assert.ok(opened !== undefined);
    const before = await creditOf(farebox, account.address);
    for (const disabled of [true, false]) {
      await identity.updateAccount({ ...opened, disabled });
      const expected = disabled ? 403 : 200;
      const proofHeader = await signIn(account, fixture.origin);
      const signedIn = await chat(fixture.origin, { 'SIGN-IN-WITH-X': proofHeader });
      assert.equal(signedIn.status, expected, await signedIn.text());
      const paid = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
      assert.equal(paid.status, expected, await paid.text());
      if (disabled) assert.equal(await creditOf(farebox, account.address), before);
    }
    await assertLedgerIsChain(farebox, fixture);
  });

  test('a budget of the account limits its wallet, by signature, token and payment', async () => {
    const { identity } = farebox.app.stores;
    const accountId = await identity.openWalletAccount(account.address);
    const admin = await farebox.key({ accountId, kind: 'ADMIN' });
    const budgets = (method: string, path: string, body?: object) =>
      call(farebox, `/budgets${path}`, { method, secret: admin, ...(body && { body }) });
    const signed = async () => ({ 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) });
    const exchanged = await call(farebox, '/x402/token', {
      method: 'POST',
      headers: await signed(),
    });
    const bearer = { authorization: `Bearer ${exchanged.body.data.token}` };
    assert.equal((await chat(fixture.origin, bearer)).status, 200);
    const made = await budgets('POST', '', { period: 'LIFETIME', usd: 0.001 });
    assert.equal(made.status, 200, made.text);
    const { id, spentUsd } = made.body.data;
    assert.ok(spentUsd > 0, 'what it has spent counts');
    assert.equal((await chat(fixture.origin, await signed())).status, 200);
    await budgets('PATCH', `/${id}`, { usd: 0.000001 });
    const payment = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
    const credit = await creditOf(farebox, account.address);
    for (const headers of [await signed(), bearer, payment]) {
      const refused = await chat(fixture.origin, headers);
      assert.equal(refused.status, 402);
      assert.match(await refused.text(), new RegExp(`The budget ${id} is reached`));
    }
    assert.equal(await creditOf(farebox, account.address), credit, 'the payment was not taken');
    assert.equal((await budgets('DELETE', `/${id}`)).status, 200);
    for (const headers of [await signed(), bearer]) {
      assert.equal((await chat(fixture.origin, headers)).status, 200);
    }
    await assertLedgerIsChain(farebox, fixture);
  });
});

/** The same address with one letter in the other case. */
function flipCase(address: string): string {
  const at = address.slice(2).search(/[a-fA-F]/) + 2;
  const letter = address.charAt(at);
  const flipped = letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase();
  return address.slice(0, at) + flipped + address.slice(at + 1);
}
