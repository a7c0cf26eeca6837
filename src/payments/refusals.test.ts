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
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { BASE, SOLANA } from './networks.ts';
import {
  BAD_SIGNATURE,
  type TransferChanges,
  encodeHeader,
  transferHeader,
} from '../../test/support/payers.ts';
import { openFixture, baseRail, solanaRail } from '../../test/support/payments.ts';
import type { Fixture } from '../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const account = privateKeyToAccount(generatePrivateKey());
const EXACT = { scheme: 'exact', network: BASE };
const TOKEN = { name: 'USD Coin', version: '2' };
const stranger = await generateKeyPairSigner();

interface SolanaChanges {
  /** Changes of the requirement that the official client signs for. */
  readonly solana: Record<string, unknown>;
  readonly payload?: object;
}

describe('bad payments', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let fixture: Fixture;
  let receiver: KeyPairSigner;
  let buyer: KeyPairSigner;
  let feePayer: string;
  const gasKey = generatePrivateKey();

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    receiver = await generateKeyPairSigner();
    buyer = await generateKeyPairSigner();
    for (const one of [receiver, stranger]) await solana.setTokens(one.address, 0n);
    await solana.setTokens(buyer.address, 100_000_000n);
    await anvil.mint(account.address, 100_000_000n);
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    fixture = await openFixture({
      settings: {
        base: baseRail({ payTo, rpcUrl: anvil.rpcUrl, gasKey }),
        solana: solanaRail({
          payTo: receiver.address,
          rpcUrl: solana.rpcUrl,
          feePayerKey: systemIds().hex(32),
        }),
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
      extra: { ...TOKEN, feePayer },
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
    const sent = { scheme: 'exact', network: SOLANA };
    return encodeHeader({ ...signed, accepted: sent, payload: payload ?? signed.payload });
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
  const cases: Record<string, Record<string, string | TransferChanges | SolanaChanges>> = {
    INVALID_PAYMENT_FORMAT: {
      'text that is not base64': '%%%',
      'base64 of text that is not JSON': Buffer.from('pay').toString('base64'),
      'a JSON list': encodeHeader([]),
      'a header longer than 12 KB': 'A'.repeat(13_000),
      'two headers, which arrive as one': `${encodeHeader({})}, ${encodeHeader({})}`,
      'version 3': { envelope: { x402Version: 3 } },
      'no payload': { envelope: { payload: undefined } },
      'an `accepted` that is a list': { envelope: { accepted: [1] } },
      'a payment identifier of three letters': {
        envelope: { extensions: { 'payment-identifier': { info: { id: 'abc' } } } },
      },
    },
    UNSUPPORTED_SCHEME: { 'the scheme upto': { accepted: { scheme: 'upto' } } },
    UNSUPPORTED_NETWORK: {
      'Ethereum mainnet': { accepted: { network: 'eip155:1' } },
      'an unknown network': { accepted: { network: 'mars' } },
    },
    UNSUPPORTED_TOKEN: { 'another token': { accepted: { asset: payTo } } },
    INVALID_PAYMENT: {
      'an empty inner payload': { envelope: { payload: {} } },
      'no signature': { payload: { signature: undefined } },
      'a signature of ten bytes': { payload: { signature: '0x11111111111111111111' } },
      'a Permit2 payload': { payload: { permit2Authorization: {} } },
      'a nonce of eight bytes': { authorization: { nonce: '0x1122334455667788' } },
      'a validBefore that is a word': { authorization: { validBefore: 'later' } },
      'a Solana transaction that is not base64': { solana: {}, payload: { transaction: '***' } },
      'a Solana transaction of zeros': {
        solana: {},
        payload: { transaction: Buffer.alloc(200).toString('base64') },
      },
      'a Solana payload without a transaction': { solana: {}, payload: {} },
      'another fee payer on Solana': {
        solana: { extra: { ...TOKEN, feePayer: stranger.address } },
      },
    },
    INVALID_AMOUNT: {
      'a value that is a word': { authorization: { value: 'five' } },
      'a negative value': { authorization: { value: '-5000000' } },
      'a value of zero': { authorization: { value: '0' } },
      'a value with an exponent': { authorization: { value: '5e6' } },
      'a value in hexadecimal': { authorization: { value: '0x4c4b40' } },
      'a value with a sign': { authorization: { value: '+5000000' } },
      'a value with a space': { authorization: { value: ' 5000000' } },
      'a value in digits of another script': { authorization: { value: '５000000' } },
      'a number that is not exact': { authorization: { value: 2 ** 53 } },
      'a value above 256 bits': { authorization: { value: '9'.repeat(78) } },
    },
    AMOUNT_TOO_LOW: {
      '4.999999 USD': { authorization: { value: '4999999' } },
      '4 USD on Solana': { solana: { amount: '4000000' } },
    },
    AMOUNT_TOO_HIGH: {
      '10,000.000001 USD': { authorization: { value: '10000000001' } },
      '20,000 USD on Solana': { solana: { amount: '20000000000' } },
    },
    INVALID_PAYMENT_RECIPIENT: {
      'another receiver': { authorization: { to: account.address } },
      'another receiver in `accepted`': { accepted: { payTo: account.address } },
      'a malformed receiver': { authorization: { to: '0x12' } },
      'another receiver on Solana': { solana: { payTo: stranger.address } },
    },
    INVALID_PAYMENT_PAYER: {
      'a malformed payer': { authorization: { from: 7 } },
      'the receiver as the payer': { authorization: { from: payTo } },
    },
    PAYMENT_VERIFICATION_FAILED: {
      'a signature of another amount': { signed: { value: '6000000' } },
      'a signature that nobody made': { payload: { signature: BAD_SIGNATURE } },
      'an expired authorization': { authorization: { validBefore: '1000' } },
      'an authorization that is not valid yet': { authorization: { validAfter: soon } },
      'more than the balance': { authorization: { value: '200000000' } },
      'more than the balance on Solana': { solana: { amount: '500000000' } },
    },
  };
  for (const [code, ofCode] of Object.entries(cases)) {
    for (const [name, bad] of Object.entries(ofCode)) {
      test(`a payment with ${name} is refused with ${code}`, async () => {
        assert.equal(await codeOf(await headerWith(bad)), code);
      });
    }
  }

  async function headerWith(bad: string | TransferChanges | SolanaChanges): Promise<string> {
    if (typeof bad === 'string') return bad;
    return await ('solana' in bad
      ? solanaHeader(bad.solana, bad.payload)
      : transferHeader(account, payTo, bad));
  }

  test('a Solana payment with a changed buyer signature is refused', async () => {
    const { payload, ...rest } = JSON.parse(
      Buffer.from(await solanaHeader(), 'base64').toString(),
    ) as { payload: { transaction: string } };
    const wire = Buffer.from(payload.transaction, 'base64');
    wire.fill(7, 65, 129);
    const changed = encodeHeader({ ...rest, payload: { transaction: wire.toString('base64') } });
    assert.equal(await codeOf(changed), 'PAYMENT_VERIFICATION_FAILED');
  });

  test('a payment above the balance says so, on both rails', async () => {
    const headers = {
      invalid_exact_evm_insufficient_balance: [
        await transferHeader(account, payTo, { authorization: { value: '200000000' } }),
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

  test('garbage of every kind is refused with a `Fault` and nothing else', async () => {
    const anything = fc.anything().map((value) => safe(value));
    const garbage = fc.oneof(
      fc.string({ maxLength: 300 }),
      anything.map((value) => encodeHeader(value ?? null)),
      anything.map((payload) => encodeHeader({ x402Version: 2, accepted: EXACT, payload })),
      fc
        .dictionary(
          fc.constantFrom('from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'),
          anything,
        )
        .map((authorization) =>
          encodeHeader({
            x402Version: 1,
            scheme: 'exact',
            network: 'base',
            payload: { authorization, signature: BAD_SIGNATURE },
          }),
        ),
      fc.base64String({ minLength: 100, maxLength: 900 }).map((transaction) =>
        encodeHeader({
          x402Version: 1,
          scheme: 'exact',
          network: 'solana',
          payload: { transaction },
        }),
      ),
    );
    await fc.assert(
      fc.asyncProperty(garbage, async (header) => {
        assert.notEqual(await codeOf(header), 'credited');
      }),
      { numRuns: 600 },
    );
  });

  test('the refused payments opened no row and moved no money', async () => {
    const rows = await fixture.store.query('SELECT payment_key FROM payments_topup');
    assert.deepEqual(rows, []);
    assert.equal(await fixture.postings(), 0);
    assert.equal(await anvil.balance(payTo), 0n);
    assert.equal(await solana.tokens(receiver.address), 0n);
  });

  test('`openPayments` without rails rejects with X402_NOT_CONFIGURED', async () => {
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
