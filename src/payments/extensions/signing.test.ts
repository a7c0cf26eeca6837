/** Offers and receipts against the official functions of the extension, keys, and their rotation. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  type JWSSignedOffer,
  extractOfferPayload,
  findAcceptsObjectFromSignedOffer,
  verifyOfferSignatureEIP712,
  verifyOfferSignatureJWS,
  verifyReceiptSignatureEIP712,
  verifyReceiptSignatureJWS,
} from '@x402/extensions/offer-receipt';
import { memoryLog } from '../../../test/support/memory-log.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { type Store, openStore } from '../../db/db.ts';
import { PAYMENTS_MIGRATIONS } from '../migrations.ts';
import { PUBLISHED_BEFORE_MS, listSigningKeys, rotateSigningKey } from './signing-keys.ts';
import { type Signing, openSigning } from './signing.ts';
import { verifySigned } from './verify.ts';

const ORIGIN = 'https://api.example.com';
const ACCEPTS = [
  {
    scheme: 'exact',
    network: 'eip155:8453',
    asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    payTo: '0x1111111111111111111111111111111111111111',
    amount: '1000000',
    maxTimeoutSeconds: 300,
    extra: {},
  },
];
const USAGE = {
  requestId: 'r1',
  model: 'm',
  priceVersion: 'p1',
  tokens: { prompt: 10, completion: 6 },
  cost: { usd: '0.000022000', diem: '0.000000000' },
};
const USED = { requestId: 'r1', payer: '0xabc', network: 'eip155:8453', usage: USAGE };

describe('signing', () => {
  let folder: string;
  let store: Store;
  let signing: Signing;
  const clock = new TestClock();

  const open = (configured?: string): Promise<Signing> =>
    openSigning({ store, clock, publicUrl: ORIGIN, basePath: '/api/v1', configured });

  const check = (text: string, from = signing, issuer?: string) =>
    verifySigned(text, { issuer, keysOf: async () => from.didDocument() });

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'farebox-signing-'));
    const parts = { clock, ids: systemIds(), log: memoryLog([]) };
    store = await openStore({ url: `sqlite:${join(folder, 'test.db')}`, ...parts });
    await store.migrate(PAYMENTS_MIGRATIONS);
    signing = await open();
  });
  after(async () => {
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  });

  test('every option is offered in both forms, and the official functions verify them', async () => {
    const offers = await signing.offers(`${ORIGIN}/api/v1/chat/completions`, ACCEPTS);
    assert.deepEqual(
      offers.map(({ format, acceptIndex }) => [format, acceptIndex]),
      [
        ['jws', 0],
        ['eip712', 0],
      ],
    );
    const [jws, eip712] = offers as unknown as [JWSSignedOffer, never];
    const claims = await verifyOfferSignatureJWS(jws);
    assert.equal(claims.resourceUrl, `${ORIGIN}/api/v1/chat/completions`);
    assert.equal(claims.amount, '1000000');
    assert.equal(claims.validUntil, Math.floor(clock.nowMs() / 1000) + 300);
    const { signer, payload } = await verifyOfferSignatureEIP712(eip712);
    assert.deepEqual(payload, extractOfferPayload(jws));
    assert.match(JSON.stringify(signing.didDocument()), new RegExp(`eip155:1:${signer}`));
    assert.deepEqual(findAcceptsObjectFromSignedOffer(jws, ACCEPTS as never), ACCEPTS[0]);
  });

  test('a short offer is signed again before it has expired', async () => {
    const short = [{ ...ACCEPTS[0]!, maxTimeoutSeconds: 30 }];
    await signing.offers('/short', short);
    clock.advance(29_000);
    const [, offer] = await signing.offers('/short', short);
    const { validUntil } = extractOfferPayload(offer as never) as { validUntil: number };
    assert.ok(validUntil * SECOND_MS >= clock.nowMs() + 15_000, `${validUntil}`);
  });

  test('offers are signed once a minute, and never for less than most of their time', async () => {
    const [first] = await signing.offers('/a', ACCEPTS);
    clock.advance(MINUTE_MS - 1);
    assert.equal((await signing.offers('/a', ACCEPTS))[0], first);
    clock.advance(1);
    assert.notDeepEqual((await signing.offers('/a', ACCEPTS))[0], first);
    const dearer = [{ ...ACCEPTS[0]!, amount: '2000000' }];
    assert.notDeepEqual((await signing.offers('/a', dearer))[0], first);
  });

  test('the receipt of a request verifies in both forms, and both hold all of the usage', async () => {
    const signed = await signing.used(USED);
    const [jws, eip712] = signed.receipts as unknown as [never, never];
    const claims = (await verifyReceiptSignatureJWS(jws)) as unknown as Record<string, unknown>;
    assert.deepEqual(claims['usage'], USAGE);
    const { payload } = await verifyReceiptSignatureEIP712(eip712);
    assert.equal(payload.payer, '0xabc');
    assert.equal(payload.resourceUrl, claims['resourceUrl']);
    assert.match(payload.resourceUrl, /\/api\/v1\/usage\/r1\?sha256=[0-9a-f]{64}$/);
    const verified = await check(JSON.stringify(signed));
    assert.deepEqual(
      [verified.ok, verified.issuer, verified.items.length, verified.usage],
      [true, ORIGIN, 2, USAGE],
    );
  });

  test('a JWS alone, a settlement header and a 402 are verified too', async () => {
    const { receipts } = await signing.used(USED);
    const alone = await check(receipts[0]!.signature);
    assert.deepEqual([alone.ok, alone.usage], [true, USAGE]);
    const receipt = await signing.settled({
      network: 'eip155:8453',
      payer: '0xabc',
      transaction: '0x1',
    });
    const settlement = { success: true, extensions: { 'offer-receipt': { info: { receipt } } } };
    const header = Buffer.from(JSON.stringify(settlement)).toString('base64');
    assert.equal((await check(header)).ok, true);
    const offers = await signing.offers(`${ORIGIN}/x`, ACCEPTS);
    const required = { accepts: ACCEPTS, extensions: { 'offer-receipt': { info: { offers } } } };
    const { ok, items } = await check(JSON.stringify(required));
    assert.equal(ok, true);
    assert.deepEqual(new Set(items.map(({ kind }) => kind)), new Set(['offer']));
  });

  test('every changed field is reported', async () => {
    const signed = await signing.used(USED);
    const [jws, eip712] = signed.receipts;
    assert.ok(jws?.format === 'jws' && eip712?.format === 'eip712');
    const [head, body, signature] = jws.signature.split('.');
    const claims = JSON.parse(Buffer.from(body ?? '', 'base64url').toString()) as object;
    const forged = Buffer.from(JSON.stringify({ ...claims, payer: '0xdef' })).toString('base64url');
    const cheaper = { ...USAGE, cost: { usd: '9', diem: '0' } };
    const cases: [string, unknown, RegExp][] = [
      ['the usage', { ...signed, usage: cheaper }, /its digest is different/],
      [
        'a claim of the JWS',
        { format: 'jws', signature: `${head}.${forged}.${signature}` },
        /does not match/,
      ],
      [
        'a claim of EIP-712',
        { ...eip712, payload: { ...eip712.payload, payer: '0xdef' } },
        /does not match/,
      ],
      ['the usage left out', eip712, /is missing/],
    ];
    for (const [what, value, expected] of cases) {
      const { ok, items } = await check(JSON.stringify(value));
      assert.equal(ok, false, what);
      assert.match(items.map(({ problem }) => problem).join('; '), expected, what);
    }
    const others = await open('11'.repeat(32));
    const strange = await verifySigned(JSON.stringify(await others.used(USED)), {
      issuer: undefined,
      keysOf: async () => ({ verificationMethod: [] }),
    });
    assert.match(strange.items[0]?.problem ?? '', /does not publish/);
    const wrong = await check(JSON.stringify(signed), signing, 'https://other.example.com');
    assert.match(wrong.items[0]?.problem ?? '', /The service is https:\/\/api\.example\.com, not /);
    for (const nothing of ['', '{}', 'hello', '{"receipts":[]}', '{"receipts":[1]}']) {
      await assert.rejects(check(nothing), /must be a signed receipt/, nothing);
    }
  });

  test('a new key is published, then signs; what the old one signed stays good', async () => {
    const old = await signing.used(USED);
    const before = (await listSigningKeys(store, clock.nowMs(), undefined)).find(
      (key) => key.isCurrent,
    );
    const made = await rotateSigningKey(store, clock.nowMs());
    await signing.keys.refresh();
    assert.match(JSON.stringify(signing.jwks()), new RegExp(made.identifier));
    assert.equal(kidOf(await signing.used(USED)), before?.identifier, 'not before it is known');
    clock.advance(PUBLISHED_BEFORE_MS);
    await signing.keys.refresh();
    const fresh = await signing.used(USED);
    assert.equal(kidOf(fresh), made.identifier);
    for (const one of [old, fresh]) assert.equal((await check(JSON.stringify(one))).ok, true);
    const again = await open();
    assert.equal(kidOf(await again.used(USED)), made.identifier, 'after a restart');
  });

  test('a key of the configuration signs, is published, and leaves the others published', async () => {
    const configured = await open('22'.repeat(32));
    const signed = await configured.used(USED);
    assert.equal((await check(JSON.stringify(signed), configured)).ok, true);
    await signing.keys.refresh();
    assert.equal((await check(JSON.stringify(signed), signing)).ok, true, 'by another process');
    assert.notEqual(kidOf(await signing.used(USED)), kidOf(signed), 'whose key it is not');
  });
});

function kidOf({ receipts }: { readonly receipts: readonly { readonly signature: string }[] }) {
  const [head = ''] = receipts[0]?.signature.split('.') ?? [];
  const { kid } = JSON.parse(Buffer.from(head, 'base64url').toString()) as { kid: string };
  return kid.split('#').at(-1);
}
