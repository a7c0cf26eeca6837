/**
 * Bad payments, each with its documented code: malformed, for somebody else, out of bounds, or
 * refused by the chain's rules. None opens a row, none moves money, none is a 500.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { generateKeyPairSigner } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import fc from 'fast-check';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil, USDC } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { BASE, SOLANA } from './networks.ts';
import { openFixture } from '../../test/support/payments.ts';
import type { Fixture } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const account = privateKeyToAccount(generatePrivateKey());
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');

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

interface Changes {
  /** Signed with other content than what is sent. */
  readonly signed?: Record<string, unknown>;
  readonly authorization?: Record<string, unknown>;
  readonly accepted?: Record<string, unknown>;
  readonly payload?: Record<string, unknown>;
  readonly envelope?: Record<string, unknown>;
}

async function evmHeader(changes: Changes = {}): Promise<string> {
  const authorization = {
    from: account.address as string,
    to: payTo as string,
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
      payTo,
      amount: '5000000',
      ...changes.accepted,
    },
    payload: { authorization, signature, ...changes.payload },
    ...changes.envelope,
  });
}

describe('bad payments', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let fixture: Fixture;
  let receiver: KeyPairSigner;
  let buyer: KeyPairSigner;
  let stranger: KeyPairSigner;
  let feePayer: string;
  const gasKey = generatePrivateKey();

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    [receiver, buyer, stranger] = [
      await generateKeyPairSigner(),
      await generateKeyPairSigner(),
      await generateKeyPairSigner(),
    ];
    for (const one of [receiver, stranger]) await solana.setTokens(one.address, 0n);
    await solana.setTokens(buyer.address, 100_000_000n);
    await anvil.mint(account.address, 100_000_000n);
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    fixture = await openFixture({
      settings: {
        base: {
          network: BASE,
          payTo,
          rpcUrl: anvil.rpcUrl,
          gasKey,
          maxGas: 300_000,
          maxFeeGwei: 50,
          warnBelowEth: 0,
        },
        solana: {
          network: SOLANA,
          payTo: receiver.address,
          rpcUrl: solana.rpcUrl,
          feePayerKey: systemIds().hex(32),
          maxPriorityFeeMicroLamports: 100_000,
          maxComputeUnits: 200_000,
          warnBelowSol: 0,
        },
      },
    });
    const { body } = await fixture.payments.requirements.discovery({
      path: '/x',
      description: 'x',
    });
    const accepts = body['accepts'] as { network: string; extra: { feePayer: string } }[];
    feePayer = accepts.find(({ network }) => network === SOLANA)?.extra.feePayer ?? '';
  });

  after(async () => {
    await fixture.close();
    await anvil.stop();
    await solana.stop();
  });

  /** A Solana payment as the official client signs it, for a requirement with changes. */
  async function solanaHeader(
    changes: Record<string, unknown> = {},
    payload?: object,
    signer = buyer,
  ): Promise<string> {
    const accepted = {
      scheme: 'exact',
      network: SOLANA,
      asset: 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v',
      amount: '5000000',
      payTo: receiver.address,
      maxTimeoutSeconds: 300,
      extra: { name: 'USD Coin', version: '2', feePayer },
      ...changes,
    };
    const client = new x402Client().register(
      SOLANA,
      new ExactSvmScheme(signer, { rpcUrl: solana.rpcUrl }),
    );
    client.setSpendControls({ maxAmountPerPayment: '$1000000' });
    const signed = await client.createPaymentPayload({
      x402Version: 2,
      resource: { url: 'http://x', description: '', mimeType: '' },
      accepts: [accepted as never],
    });
    const own = { scheme: 'exact', network: SOLANA };
    return encode({ ...signed, accepted: own, payload: payload ?? signed.payload });
  }

  async function codeOf(header: string): Promise<string> {
    try {
      await fixture.payments.headers.topUp(header);
    } catch (error) {
      assert.ok(error instanceof Fault, `not a Fault: ${String(error)}`);
      const body = error.options.body as { error: string; message: string };
      assert.equal(body.error, error.code);
      assert.ok(body.message.length > 10);
      return error.code;
    }
    return 'credited';
  }

  const soon = String(Math.floor(Date.now() / 1000) + 3_000);
  const cases: [string, string, () => string | Promise<string>][] = [
    ['not base64', 'INVALID_PAYMENT_FORMAT', () => '%%%'],
    ['base64 of no JSON', 'INVALID_PAYMENT_FORMAT', () => Buffer.from('pay').toString('base64')],
    ['a JSON list', 'INVALID_PAYMENT_FORMAT', () => encode([])],
    ['longer than 12 KB', 'INVALID_PAYMENT_FORMAT', () => 'A'.repeat(13_000)],
    ['version 3', 'INVALID_PAYMENT_FORMAT', () => evmHeader({ envelope: { x402Version: 3 } })],
    ['no payload', 'INVALID_PAYMENT_FORMAT', () => evmHeader({ envelope: { payload: undefined } })],
    [
      'accepted that is a list',
      'INVALID_PAYMENT_FORMAT',
      () => evmHeader({ envelope: { accepted: [1] } }),
    ],
    [
      'a payment identifier of three letters',
      'INVALID_PAYMENT_FORMAT',
      () =>
        evmHeader({ envelope: { extensions: { 'payment-identifier': { info: { id: 'abc' } } } } }),
    ],
    ['scheme upto', 'UNSUPPORTED_SCHEME', () => evmHeader({ accepted: { scheme: 'upto' } })],
    [
      'Ethereum mainnet',
      'UNSUPPORTED_NETWORK',
      () => evmHeader({ accepted: { network: 'eip155:1' } }),
    ],
    [
      'a network that is none',
      'UNSUPPORTED_NETWORK',
      () => evmHeader({ accepted: { network: 'mars' } }),
    ],
    ['an empty inner payload', 'INVALID_PAYMENT', () => evmHeader({ envelope: { payload: {} } })],
    ['no signature', 'INVALID_PAYMENT', () => evmHeader({ payload: { signature: undefined } })],
    [
      'a signature of ten bytes',
      'INVALID_PAYMENT',
      () => evmHeader({ payload: { signature: '0x11111111111111111111' } }),
    ],
    [
      'the Permit2 shape',
      'INVALID_PAYMENT',
      () => evmHeader({ payload: { permit2Authorization: {} } }),
    ],
    [
      'a nonce of eight bytes',
      'INVALID_PAYMENT',
      () => evmHeader({ authorization: { nonce: '0x1122334455667788' } }),
    ],
    [
      'validBefore that is a word',
      'INVALID_PAYMENT',
      () => evmHeader({ authorization: { validBefore: 'later' } }),
    ],
    [
      'a value that is a word',
      'INVALID_AMOUNT',
      () => evmHeader({ authorization: { value: 'five' } }),
    ],
    [
      'a negative value',
      'INVALID_AMOUNT',
      () => evmHeader({ authorization: { value: '-5000000' } }),
    ],
    ['a value of zero', 'INVALID_AMOUNT', () => evmHeader({ authorization: { value: '0' } })],
    [
      'a value above 256 bits',
      'INVALID_AMOUNT',
      () => evmHeader({ authorization: { value: '9'.repeat(78) } }),
    ],
    ['4.999999 USD', 'AMOUNT_TOO_LOW', () => evmHeader({ authorization: { value: '4999999' } })],
    [
      '10,000.000001 USD',
      'AMOUNT_TOO_HIGH',
      () => evmHeader({ authorization: { value: '10000000001' } }),
    ],
    [
      'another receiver',
      'INVALID_PAYMENT_RECIPIENT',
      () => evmHeader({ authorization: { to: account.address } }),
    ],
    [
      'another receiver in accepted',
      'INVALID_PAYMENT_RECIPIENT',
      () => evmHeader({ accepted: { payTo: account.address } }),
    ],
    [
      'a receiver that is no address',
      'INVALID_PAYMENT_RECIPIENT',
      () => evmHeader({ authorization: { to: '0x12' } }),
    ],
    [
      'a payer that is no address',
      'INVALID_PAYMENT_PAYER',
      () => evmHeader({ authorization: { from: 7 } }),
    ],
    [
      'the receiver as payer',
      'INVALID_PAYMENT_PAYER',
      () => evmHeader({ authorization: { from: payTo } }),
    ],
    ['another token', 'UNSUPPORTED_TOKEN', () => evmHeader({ accepted: { asset: payTo } })],
    [
      'a signature over another amount',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmHeader({ signed: { value: '6000000' } }),
    ],
    [
      'the signature of nobody',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmHeader({ payload: { signature: `0x${'11'.repeat(65)}` } }),
    ],
    [
      'expired',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmHeader({ authorization: { validBefore: '1000' } }),
    ],
    [
      'not valid yet',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmHeader({ authorization: { validAfter: soon } }),
    ],
    [
      'more than the balance',
      'PAYMENT_VERIFICATION_FAILED',
      () => evmHeader({ authorization: { value: '200000000' } }),
    ],
    [
      'a Solana transaction that is no base64',
      'INVALID_PAYMENT',
      () => solanaHeader({}, { transaction: '***' }),
    ],
    [
      'a Solana transaction of zeros',
      'INVALID_PAYMENT',
      () => solanaHeader({}, { transaction: Buffer.alloc(200).toString('base64') }),
    ],
    ['a Solana payload without transaction', 'INVALID_PAYMENT', () => solanaHeader({}, {})],
    [
      'Solana, another receiver',
      'INVALID_PAYMENT_RECIPIENT',
      () => solanaHeader({ payTo: stranger.address }),
    ],
    ['Solana, 4 USD', 'AMOUNT_TOO_LOW', () => solanaHeader({ amount: '4000000' })],
    ['Solana, 20,000 USD', 'AMOUNT_TOO_HIGH', () => solanaHeader({ amount: '20000000000' })],
    [
      'Solana, another fee payer',
      'INVALID_PAYMENT',
      () => solanaHeader({ extra: { name: 'USD Coin', version: '2', feePayer: stranger.address } }),
    ],
    [
      'Solana, more than the balance',
      'PAYMENT_VERIFICATION_FAILED',
      () => solanaHeader({ amount: '500000000' }),
    ],
    [
      'Solana, a changed buyer signature',
      'PAYMENT_VERIFICATION_FAILED',
      async () => await tampered(),
    ],
  ];

  test('a wallet with too little of the token is told so, on both rails', async () => {
    const headers = {
      invalid_exact_evm_insufficient_balance: [
        await evmHeader({ authorization: { value: '200000000' } }),
      ],
      invalid_exact_svm_insufficient_balance: [
        await solanaHeader({ amount: '500000000' }),
        await solanaHeader({}, undefined, await generateKeyPairSigner()),
      ],
    };
    for (const [reason, shown] of Object.entries(headers)) {
      for (const header of shown) {
        await assert.rejects(fixture.payments.headers.topUp(header), (error: Fault) => {
          assert.equal(error.code, 'PAYMENT_VERIFICATION_FAILED');
          assert.equal(
            error.message,
            `The payment was not accepted: the wallet has less of the token than the signed amount (${reason}); no money has moved`,
          );
          assert.deepEqual((error.options.body as { details: unknown }).details, { reason });
          return true;
        });
      }
    }
  });

  async function tampered(): Promise<string> {
    const payload = JSON.parse(Buffer.from(await solanaHeader(), 'base64').toString()) as {
      payload: { transaction: string };
    };
    const wire = Buffer.from(payload.payload.transaction, 'base64');
    wire.fill(7, 65, 129);
    return encode({ ...payload, payload: { transaction: wire.toString('base64') } });
  }

  for (const [name, code, make] of cases) {
    test(`${name}: ${code}`, async () => {
      assert.equal(await codeOf(await make()), code);
    });
  }

  test('garbage of every kind is refused with a Fault and nothing else', async () => {
    const anything = fc.anything().map((value) => safe(value));
    const garbage = fc.oneof(
      fc.string({ maxLength: 300 }),
      anything.map((value) => encode(value ?? null)),
      anything.map((payload) =>
        encode({ x402Version: 2, accepted: { scheme: 'exact', network: BASE }, payload }),
      ),
      fc
        .dictionary(
          fc.constantFrom('from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'),
          anything,
        )
        .map((authorization) =>
          encode({
            x402Version: 1,
            scheme: 'exact',
            network: 'base',
            payload: { authorization, signature: `0x${'11'.repeat(65)}` },
          }),
        ),
      fc
        .base64String({ minLength: 100, maxLength: 900 })
        .map((transaction) =>
          encode({ x402Version: 1, scheme: 'exact', network: 'solana', payload: { transaction } }),
        ),
    );
    await fc.assert(
      fc.asyncProperty(garbage, async (header) => {
        assert.notEqual(await codeOf(header), 'credited');
      }),
      { numRuns: 600 },
    );
  });

  test('nothing of all this opened a row or moved money', async () => {
    const rows = await fixture.store.query('SELECT payment_key FROM payments_topup');
    assert.deepEqual(rows, []);
    assert.equal(await fixture.postings(), 0);
    assert.equal(await anvil.balance(payTo), 0n);
    assert.equal(await solana.tokens(receiver.address), 0n);
  });

  test('without rails there are no payments: opening them says X402_NOT_CONFIGURED', async () => {
    await assert.rejects(
      openFixture({ settings: {} }),
      (error: Fault) => error.code === 'X402_NOT_CONFIGURED',
    );
  });
});

/** JSON cannot carry everything that fast-check makes. */
function safe(value: unknown): unknown {
  try {
    return JSON.parse(
      JSON.stringify(value, (_key, entry: unknown) =>
        typeof entry === 'bigint' ? String(entry) : entry,
      ),
    ) as unknown;
  } catch {
    // `undefined`, functions, cycles.
    return null;
  }
}
