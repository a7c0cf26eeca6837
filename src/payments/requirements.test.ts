/** The 402 objects: shapes for stock clients, one configured origin, and their size. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { PaymentRequiredV2Schema } from '@x402/core/schemas';
import {
  extractOffersFromPaymentRequired,
  findAcceptsObjectFromSignedOffer,
  isEIP712SignedOffer,
  verifyOfferSignatureEIP712,
} from '@x402/extensions/offer-receipt';
import { openTestStore } from '../../test/databases/stores.ts';
import { systemClock } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import { PAYMENTS_MIGRATIONS } from './migrations.ts';
import { MachinePayments } from './extensions/mpp.ts';
import { BASE, SOLANA, unitsAbove } from './networks.ts';
import { Requirements } from './requirements.ts';
import type { RailOffer } from './requirements.ts';
import { Signing, openSigning } from './extensions/signing.ts';

const offers: RailOffer[] = [
  {
    network: BASE,
    asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    payTo: '0x1111111111111111111111111111111111111111',
    extra: { name: 'USD Coin', version: '2' },
  },
  {
    network: SOLANA,
    asset: 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v',
    payTo: 'So11111111111111111111111111111111111111112',
    extra: {
      name: 'USD Coin',
      version: '2',
      feePayer: 'Vote111111111111111111111111111111111111111',
    },
  },
];
const resource = { path: '/api/v1/chat/completions', description: 'Chat completions' };
const options = {
  publicUrl: 'https://api.example.com',
  basePath: '/api/v1',
  serviceName: 'svc',
  docsUrl: 'https://api.example.com/docs',
  keysUrl: 'https://api.example.com/console',
  amounts: {
    minimumTopUp: usdToNano(5),
    suggestedTopUp: usdToNano(10),
    maximumTopUp: usdToNano(10_000),
    minimumBalance: usdToNano('0.1'),
    firstPayment: usdToNano(1),
    firstPaymentVersionOne: usdToNano('0.1'),
  },
  maxTimeoutSeconds: 300,
  signing: undefined,
  refundNetworks: [BASE],
  headerBytes: 3_500,
  clock: { nowMs: () => Date.UTC(2026, 10, 21) },
  ids: { hex: () => 'ab'.repeat(16) },
  offers: () => offers,
};
const requirements = new Requirements(options);
const { 'sign-in-with-x': challenge } = (await requirements.discovery(resource)).body[
  'extensions'
] as {
  'sign-in-with-x': { info: Record<string, string>; supportedChains: unknown };
};

const amountsOf = ({ accepts }: { readonly accepts: readonly { readonly amount: string }[] }) =>
  accepts.map(({ amount }) => amount);

/** Header name, separator and value as they travel. */
const sizeBytes = (header: string): number => `PAYMENT-REQUIRED: ${header}\r\n`.length;

describe('payment required', () => {
  test('the discovery response is valid for official clients and below 4 KB', async () => {
    const { body, header } = await requirements.discovery(resource);
    const decoded = decodePaymentRequiredHeader(header);
    assert.ok(PaymentRequiredV2Schema.safeParse(decoded).success);
    assert.ok(sizeBytes(header) < 4_096, `${sizeBytes(header)} bytes`);
    assert.deepEqual(
      decoded.accepts.map(({ network, amount, payTo }) => [network, amount, payTo]),
      [
        [BASE, '10000000', offers[0]?.payTo],
        [SOLANA, '10000000', offers[1]?.payTo],
        [BASE, '1000000', offers[0]?.payTo],
        [SOLANA, '1000000', offers[1]?.payTo],
      ],
    );
    const { authOptions, ...rest } = body;
    assert.deepEqual(rest, decoded);
    assert.deepEqual(Object.keys(authOptions as object), ['apiKey', 'x402Wallet']);
  });

  test('a header without space for all networks has the first ones, and the body has all', async () => {
    const networks = ['1', '10', '137', '480', '42161', '42220', '43114', '143', '999', '1000'];
    const [template] = offers;
    assert.ok(template);
    const many = networks.map((id) => ({ ...template, network: `eip155:${id}` }));
    const made = new Requirements({ ...options, offers: () => many });
    const { header, body } = await made.discovery(resource);
    assert.ok(header.length <= 3_500);
    const decoded = decodePaymentRequiredHeader(header);
    assert.ok(PaymentRequiredV2Schema.safeParse(decoded).success);
    const shown = decoded.accepts.map(({ network }) => network);
    assert.deepEqual(
      shown,
      networks.slice(0, shown.length).map((id) => `eip155:${id}`),
    );
    assert.ok(shown.length >= 5, `${shown.length} networks`);
    assert.equal((body['accepts'] as unknown[]).length, networks.length * 2);
  });

  test('the challenge lists eip191 before eip1271 and lasts five minutes', () => {
    assert.deepEqual(challenge.supportedChains, [
      { chainId: BASE, type: 'eip191' },
      { chainId: BASE, type: 'eip1271' },
      { chainId: SOLANA, type: 'ed25519' },
    ]);
    assert.equal(challenge.info['domain'], 'api.example.com');
    assert.equal(challenge.info['uri'], 'https://api.example.com/api/v1/chat/completions');
    assert.equal(
      Date.parse(challenge.info['expirationTime']!) - Date.parse(challenge.info['issuedAt']!),
      300_000,
    );
  });

  test('the top-up response offers the minimum or the first payment, with the same JSON in header and body', async () => {
    const { body, header } = await requirements.topUp(resource);
    const decoded = decodePaymentRequiredHeader(header);
    assert.deepEqual(decoded, body);
    assert.ok(PaymentRequiredV2Schema.safeParse(decoded).success);
    assert.ok(sizeBytes(header) < 4_096, `${sizeBytes(header)} bytes`);
    assert.deepEqual(amountsOf(decoded), ['5000000', '5000000', '1000000', '1000000']);
    const topUps = { minimumTopUpUsd: 5, suggestedTopUpUsd: 10 };
    assert.deepEqual(
      decoded.accepts.map(({ extra }) => extra),
      [...offers, ...offers].map(({ extra }) => ({ ...extra, ...topUps })),
    );
  });

  test('the insufficient-credit body has every field of the specification, and of the header', async () => {
    const credit = { balance: usdToNano('0.05'), needed: usdToNano('0.1') };
    const { body, header } = await requirements.insufficientCredit(resource, credit);
    const decoded = decodePaymentRequiredHeader(header);
    assert.ok(PaymentRequiredV2Schema.safeParse(decoded).success);
    const { message, topUpInstructions, siwxChallenge, ...others } = body;
    const { x402Version, accepts, resource: described, extensions, ...rest } = others;
    assert.deepEqual(
      { x402Version, accepts, resource: described, extensions, error: rest['error'] },
      decoded,
    );
    assert.deepEqual(rest, {
      error: 'Payment required',
      code: 'PAYMENT_REQUIRED',
      reason: 'insufficient_balance',
      currentBalanceUsd: 0.05,
      minimumBalanceUsd: 0.1,
      description: 'Chat completions',
      suggestedTopUpUsd: 10,
      minimumTopUpUsd: 5,
      supportedTokens: ['USDC'],
      supportedChains: ['base', 'solana'],
    });
    assert.equal(typeof message, 'string');
    assert.deepEqual(siwxChallenge, challenge);
    const { step1, step2, step3, ...instructions } = topUpInstructions as Record<string, unknown>;
    for (const step of [step1, step2, step3]) assert.equal(typeof step, 'string');
    assert.deepEqual(instructions, {
      receiverWallet: offers[0]?.payTo,
      tokenAddress: offers[0]?.asset,
      tokenDecimals: 6,
      network: BASE,
      minimumAmountUsd: 5,
    });
  });

  test('both amounts of a refused request cover its missing credit, in whole first payments', async () => {
    const amountsFor = async (needed: string) => {
      const credit = { balance: usdToNano('0.5'), needed: usdToNano(needed) };
      const { header } = await requirements.insufficientCredit(resource, credit);
      return amountsOf(decodePaymentRequiredHeader(header));
    };
    assert.deepEqual(await amountsFor('0.7'), ['10000000', '10000000', '1000000', '1000000']);
    assert.deepEqual(await amountsFor('2.000000001'), [
      '10000000',
      '10000000',
      '2000000',
      '2000000',
    ]);
    assert.deepEqual(await amountsFor('5.0'), ['10000000', '10000000', '5000000', '5000000']);
    const exact = await amountsFor('6.000000001');
    assert.deepEqual(exact, ['10000000', '10000000', '5500001', '5500001']);
    assert.deepEqual(await amountsFor('20.5'), ['20000000', '20000000'], 'one amount is said once');
  });

  test('the version 1 body carries slugs and maxAmountRequired', () => {
    const optionsFor = (kind: 'topUp' | 'discovery') => {
      const body = requirements.versionOne(resource, kind);
      assert.equal(body['x402Version'], 1);
      const accepts = body['accepts'] as Record<string, unknown>[];
      return accepts.map((entry) => [entry['network'], entry['maxAmountRequired']]);
    };
    const topUp = [
      ['base', '5000000'],
      ['solana', '5000000'],
    ];
    assert.deepEqual(optionsFor('topUp'), topUp);
    assert.deepEqual(optionsFor('discovery'), [['base', '100000'], ['solana', '100000'], ...topUp]);
  });

  test('the header has signed offers in both formats, in one or in none, depending on its size', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-offers-'));
    const store = await openTestStore(`sqlite:${join(folder, 'test.db')}`);
    await store.migrate(PAYMENTS_MIGRATIONS);
    const clock = systemClock();
    const signing = await openSigning({ ...options, clock, store, configured: undefined });
    // As large as that of a chat.
    const discovered = { full: { words: 'x'.repeat(1_500) }, slim: { words: 'x'.repeat(250) } };
    const offersIn = async (rails: RailOffer[], headerBytes: number) => {
      const made = new Requirements({ ...options, signing, headerBytes, offers: () => rails });
      const { header, body } = await made.discovery({ ...resource, discovered });
      assert.ok(header.length <= headerBytes);
      const required = decodePaymentRequiredHeader(header);
      assert.ok('bazaar' in (required.extensions ?? {}));
      assert.equal(extractOffersFromPaymentRequired(body as never).length, rails.length * 4);
      return { required, offers: extractOffersFromPaymentRequired(required) };
    };
    const { required, offers: offered } = await offersIn(offers, 8_000);
    assert.deepEqual(
      offered.map(({ acceptIndex }) => acceptIndex),
      [0, 1, 2, 3],
    );
    for (const offer of offered) {
      assert.ok(isEIP712SignedOffer(offer));
      await verifyOfferSignatureEIP712(offer);
      const option = findAcceptsObjectFromSignedOffer(offer, required.accepts);
      assert.equal(option, required.accepts[offer.acceptIndex ?? -1]);
    }
    assert.equal((await offersIn(offers, 3_500)).offers.length, 0);
    assert.equal((await offersIn(offers.slice(0, 1), 3_500)).offers.length, 2);
    assert.equal((await offersIn(offers.slice(0, 1), 8_000)).offers.length, 4);
    await store.close();
    rmSync(folder, { recursive: true });
  });

  test('the payment headers together stay within their bound; a client can still pay and sign in', async () => {
    const upto = {
      facilitatorAddress: '0x2222222222222222222222222222222222222222',
      takesApproval: true,
    };
    const rails = offers.map((offer) => (offer.network === BASE ? { ...offer, upto } : offer));
    const made = new Requirements({ ...options, offers: () => rails });
    const discovered = { full: { words: 'x'.repeat(1_500) }, slim: { words: 'x'.repeat(250) } };
    const mpp = new MachinePayments({
      ...options,
      secret: 'secret',
      realm: 'api.example.com',
      offers: () => rails,
    });
    for (const path of [resource.path, `/api/v1/crypto/rpc/${'x'.repeat(300)}`]) {
      const asked = { ...resource, path, discovered, tags: ['Chat'] };
      const credit = { balance: usdToNano('0.5'), needed: usdToNano('12.345678') };
      for (const [answer, least] of [
        [await made.discovery(asked), usdToNano(1)],
        [await made.topUp(asked), usdToNano(1)],
        [await made.insufficientCredit(asked, credit), usdToNano('11.845678')],
      ] as const) {
        const challenge = mpp.challenge(answer.charge, 'Payment-Authorization') ?? '';
        const beside = `www-authenticate: ${challenge}\r\n`.length;
        const header = answer.headerBeside(beside);
        assert.ok(beside > 500);
        assert.ok(sizeBytes(header) + beside <= 3_500, `${sizeBytes(header) + beside} bytes`);
        assert.ok(sizeBytes(answer.header) <= 3_500);
        const decoded = decodePaymentRequiredHeader(header);
        assert.ok(PaymentRequiredV2Schema.safeParse(decoded).success);
        assert.ok('sign-in-with-x' in (decoded.extensions ?? {}));
        const networks = new Set(decoded.accepts.map(({ network }) => network));
        assert.deepEqual(networks, new Set([BASE, SOLANA]));
        const amounts = decoded.accepts.map(({ amount }) => BigInt(amount));
        assert.ok(amounts.every((amount) => amount >= unitsAbove(least)));
      }
    }
  });

  test('the manifest names the receivers and the paid endpoints of the configured origin', () => {
    const manifest = requirements.manifest([resource]);
    assert.equal(manifest['origin'], 'https://api.example.com');
    assert.equal(manifest['topUp'], 'https://api.example.com/api/v1/x402/top-up');
    assert.equal((manifest['resources'] as unknown[]).length, 1);
    assert.doesNotMatch(JSON.stringify(manifest), /localhost|127\.0\.0\.1/);
  });

  test('the manifest names the receipts where they are signed, and only there', () => {
    const extensionsOf = (signing: Signing | undefined): unknown =>
      new Requirements({ ...options, signing }).manifest([])['extensions'];
    assert.deepEqual(extensionsOf(new Signing({} as never, {} as never)), [
      'sign-in-with-x',
      'payment-identifier',
      'refund-policy',
      'bound-nonce',
      'offer-receipt',
    ]);
    assert.deepEqual(extensionsOf(undefined), [
      'sign-in-with-x',
      'payment-identifier',
      'refund-policy',
      'bound-nonce',
    ]);
    const { refundPolicy } = requirements.manifest([]);
    assert.deepEqual(refundPolicy, {
      unservedRequest: 'credit-at-once',
      partlyServedRequest: 'pays-what-was-delivered',
      restOfPayment: 'credit-at-once',
      creditExpires: false,
      creditToWallet: 'on-request',
      creditToWalletNetworks: [BASE],
      docs: 'https://api.example.com/docs',
    });
  });
});
