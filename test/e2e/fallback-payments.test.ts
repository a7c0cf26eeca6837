/** Fallbacks of requests that a wallet pays: no fallback costs more than the payment covers. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import {
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  chatBody,
  creditOf,
  evmPayment,
  startWalletFixture,
} from './wallet-fixture.ts';

const TEXT = 'context: 8192, maxCompletionTokens: 64';
const USD_NANO = 1_000_000_000n;

describe('fallbacks of paid requests', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;
  let second: TestUpstream;

  before(async () => {
    second = await TestUpstream.start();
    fixture = await startWalletFixture();
    const settings = `
engines: { fake: { url: ${fixture.upstream.url} }, other: { url: ${fixture.upstream.url} }, second: { url: ${second.url} } }
models:
  - { id: cheap, fallbacks: [dear], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
  - { id: main, fallbacks: [dear, equal], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: other }] }
  - { id: equal, ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: second }] }
  - { id: dear, ${TEXT}, price: { input: 100, output: 200 }, replicas: [{ engine: second }] }
`;
    const yaml = fixture.yaml.replace(/\nengines:[\s\S]*?(?=payments:)/, settings);
    farebox = await startTestApp({ port: fixture.port, yaml });
    fixture.upstream.otherwise = { kind: 'status', status: 500 };
  });
  after(async () => {
    await farebox.audit();
    await assertLedgerIsChain(farebox, fixture);
    await farebox.stop();
    await fixture.stop();
    await second.kill();
  });

  async function pay(model: string) {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account, { authorization: { value: '5000000' } });
    const response = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment }, chatBody(model));
    return { response, credit: await creditOf(farebox, account.address) };
  }

  test('a fallback whose maximum cost exceeds the hold is skipped', async () => {
    const { response, credit } = await pay('cheap');
    assert.equal(response.status, 500, await response.text());
    assert.equal(second.seen.length, 0);
    assert.equal(credit, 5n * USD_NANO);
  });

  test('a fallback within the hold responds and is charged once', async () => {
    const { response, credit } = await pay('main');
    assert.equal(response.status, 200, await response.text());
    assert.equal(response.headers.get('x-svc-model-id'), 'equal');
    assert.equal(credit, 5n * USD_NANO - 22_000n);
  });
});
