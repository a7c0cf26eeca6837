/**
 * Signed offers and receipts of the whole server: fetched by their payer, verified by the official
 * functions and by `farebox verify`; and what a paid request that is not served leaves behind.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import {
  decodeSignedOffers,
  extractOffersFromPaymentRequired,
  extractReceiptFromResponse,
  verifyOfferSignatureEIP712,
  verifyOfferSignatureJWS,
  verifyReceiptMatchesOffer,
  verifyReceiptSignatureEIP712,
  verifyReceiptSignatureJWS,
} from '@x402/extensions/offer-receipt';
import { runCommand } from '../../src/cli/cli.ts';
import type { TestApp } from '../app/test-app.ts';
import {
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  creditOf,
  evmPayment,
  signIn,
  startWalletFixture,
} from './wallet-fixture.ts';

interface Signed {
  readonly usage: { readonly requestId: string; readonly cost: { readonly usd: string } };
  readonly receipts: readonly [{ readonly format: 'jws' }, { readonly format: 'eip712' }];
}

describe('signed receipts', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp();
  });
  after(async () => {
    await farebox.audit();
    await assertLedgerIsChain(farebox, fixture);
    await farebox.stop();
    await fixture.stop();
  });

  async function verify(
    argv: readonly string[],
    given: { readonly stdin?: string; readonly authorization?: string } = {},
  ) {
    const said = { out: '', err: '' };
    const { stdin, authorization } = given;
    const code = await runCommand({
      argv: ['verify', ...argv],
      env: authorization === undefined ? {} : { FAREBOX_AUTHORIZATION: authorization },
      cwd: farebox.config.dataFolder,
      stdout: { write: (text) => void (said.out += text) },
      stderr: { write: (text) => void (said.err += text) },
      ...(stdin === undefined
        ? {}
        : {
            stdin: async function* () {
              yield await Promise.resolve(stdin);
            },
          }),
      onSignal: () => undefined,
    });
    return { code, ...said };
  }

  async function paidChat() {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account, { authorization: { value: '1000000' } });
    const answer = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    assert.equal(answer.status, 200, await answer.clone().text());
    return { account, answer, requestId: answer.headers.get('x-request-id') ?? '' };
  }

  test('a payer proves the cost of a request: official functions and `farebox verify` agree', async () => {
    const { account, answer, requestId } = await paidChat();
    const path = `${fixture.origin}/api/v1/usage/${requestId}/signed`;
    const fetched = await fetch(path, {
      headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
    });
    assert.equal(fetched.status, 200, await fetched.clone().text());
    const text = await fetched.text();
    const signed = JSON.parse(text) as Signed;
    const { usage, model } = (await answer.json()) as Record<string, Record<string, unknown>>;
    assert.deepEqual(signed.usage, {
      requestId,
      createdAt: (signed.usage as unknown as { createdAt: string }).createdAt,
      kind: 'chat',
      model,
      status: 'completed',
      tokens: {
        prompt: usage?.['prompt_tokens'],
        completion: usage?.['completion_tokens'],
        cached: 0,
        cacheWrite: 0,
        reasoning: 0,
        countedBy: 'engine',
      },
      priceVersion: (signed.usage as unknown as { priceVersion: string }).priceVersion,
      unitPrices: { input: '1', output: '2' },
      lines: [
        { kind: 'input_tokens', quantity: 12, per: 1_000_000, price: '1', usd: '0.000012' },
        { kind: 'output_tokens', quantity: 5, per: 1_000_000, price: '2', usd: '0.00001' },
      ],
      cost: { usd: '0.000022000', diem: '0.000000000' },
      extras: {},
    });
    const [jws, eip712] = signed.receipts as unknown as [never, never];
    const claims = (await verifyReceiptSignatureJWS(jws)) as unknown as Record<string, unknown>;
    assert.equal(claims['payer'], account.address.toLowerCase());
    assert.equal(claims['network'], 'eip155:8453');
    const { signer, payload } = await verifyReceiptSignatureEIP712(eip712);
    assert.equal(payload.resourceUrl, claims['resourceUrl']);
    const keys = await fetch(`${fixture.origin}/.well-known/did.json`);
    assert.ok((await keys.text()).includes(`eip155:1:${signer}`));

    writeFileSync(join(farebox.config.dataFolder, 'receipt.json'), text);
    const good = await verify(['receipt.json', '--issuer', fixture.origin]);
    assert.equal(good.code, 0, good.err);
    assert.match(good.out, new RegExp(`Verified: signed by ${fixture.origin} and unchanged`));
    const piped = await verify(['-', '--json'], { stdin: text.replace('0.000022000', '0.0022') });
    assert.equal(piped.code, 1);
    const { ok, items } = JSON.parse(piped.out) as { ok: boolean; items: { problem: string }[] };
    assert.equal(ok, false);
    assert.match(items[0]?.problem ?? '', /its digest is different/);
    const stranger = await fixture.evmWallet();
    const refused = await fetch(path, {
      headers: { 'SIGN-IN-WITH-X': await signIn(stranger, fixture.origin) },
    });
    assert.equal(refused.status, 400);
  });

  test('an account verifies its receipt by URL, and every mistake is reported', async () => {
    const authorization = `Bearer ${(await farebox.account('1')).secret}`;
    const answer = await chat(fixture.origin, { authorization });
    const url = `${fixture.origin}/api/v1/usage/${answer.headers.get('x-request-id')}/signed`;
    const good = await verify([url], { authorization });
    assert.equal(good.code, 0, good.err);
    assert.match(good.out, /payer +account:/);
    assert.match(good.out, /ledger:prepaid/);
    const cases: [string[], RegExp, number][] = [
      [[], /<source> is missing: file, URL/, 2],
      [['receipt.json', '--issuer', 'me'], /--issuer must be a URL/, 2],
      [['nothing.json'], /The file nothing\.json cannot be read/, 1],
      [[url], /returned status 402.*FAREBOX_AUTHORIZATION/, 1],
      [[`${fixture.origin}/nothing`], /returned status 404/, 1],
      [['receipt.json', '--keys', 'receipt.json'], /must be a DID document/, 1],
    ];
    for (const [argv, expected, code] of cases) {
      const bad = await verify(argv);
      assert.equal(bad.code, code, argv.join(' '));
      assert.match(bad.err, expected, argv.join(' '));
    }
  });

  test('the receipt of a payment contains the offer and the payer', async () => {
    const offered = (await (await chat(fixture.origin, {})).json()) as never;
    const [offer] = decodeSignedOffers(extractOffersFromPaymentRequired(offered));
    const { account, answer } = await paidChat();
    const receipt = extractReceiptFromResponse(answer);
    assert.ok(receipt?.format === 'jws' && offer !== undefined);
    await verifyReceiptSignatureJWS(receipt);
    assert.ok(verifyReceiptMatchesOffer(receipt, offer, [account.address]));
    assert.ok(!verifyReceiptMatchesOffer(receipt, offer, [fixture.treasury.address]));
    const header = answer.headers.get('PAYMENT-RESPONSE') ?? '';
    assert.equal((await verify(['-', '--issuer', fixture.origin], { stdin: header })).code, 0);
  });

  test('the 402 of a priced route has each option signed, for anonymous callers and for wallets without credit', async () => {
    const account = await fixture.evmWallet();
    const signedIn = { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) };
    for (const headers of [{}, signedIn]) {
      const answer = await chat(fixture.origin, headers);
      const header = answer.headers.get('PAYMENT-REQUIRED') ?? '';
      assert.ok(header.length <= 3_600);
      assert.deepEqual(extractOffersFromPaymentRequired(decodePaymentRequiredHeader(header)), []);
      const text = await answer.text();
      const offers = extractOffersFromPaymentRequired(JSON.parse(text));
      assert.equal(offers.length, 8);
      for (const offer of offers) {
        const claims =
          offer.format === 'jws'
            ? await verifyOfferSignatureJWS(offer)
            : (await verifyOfferSignatureEIP712(offer)).payload;
        assert.equal(claims.resourceUrl, `${fixture.origin}/api/v1/chat/completions`);
      }
      const good = await verify(['-'], { stdin: text });
      assert.equal(good.code, 0, good.out + good.err);
    }
  });

  test('the payment of a request that no engine serves becomes credit immediately', async () => {
    fixture.upstream.otherwise = { kind: 'status', status: 500 };
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account, { authorization: { value: '1000000' } });
    const answer = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    assert.ok(answer.status >= 500, String(answer.status));
    assert.equal(await creditOf(farebox, account.address), 1_000_000_000n);
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    const served = await chat(fixture.origin, {
      'SIGN-IN-WITH-X': await signIn(account, fixture.origin),
    });
    assert.equal(served.status, 200);
  });
});
