/** Payment by card in the console: the page of the provider, the live balance, the saved card. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { type StripeEvent, StripeDouble } from '../support/stripe-double.ts';
import { until } from '../support/until.ts';
import { Visitor } from './console-fixture.ts';

/** The stream of events is read once a second; the rest is for a slow machine. */
const MAX_LIVE_MS = 5_000;

describe('cards in the console', () => {
  let browser: Browser;
  let stripe: StripeDouble;
  let farebox: TestApp;
  let origin: string;
  const waiting: StripeEvent[] = [];

  before(async () => {
    [browser, stripe] = await Promise.all([launchChromium(), StripeDouble.start()]);
    stripe.onEvent = (event) => waiting.push(event);
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    farebox = await startTestApp({
      port,
      yaml: `service: { publicUrl: "${origin}" }\npayments: { ${stripe.yaml()} }`,
    });
    await fetch(origin);
  });
  after(async () => {
    await browser.close();
    await farebox.audit();
    await farebox.stop();
    await stripe.stop();
  });

  async function deliverAll(): Promise<void> {
    for (const event of waiting.splice(0)) await stripe.deliver(event, farebox.url);
  }

  for (const { name, width, isDark } of [
    { name: 'a desktop', width: 1280, isDark: false },
    { name: 'a phone in the dark', width: 390, isDark: true },
  ]) {
    test(`on ${name} a payment raises the balance in the open page, and its card is saved`, async (t) => {
      const { accountId } = await farebox.account('1');
      const key = await farebox.key({ accountId, kind: 'ADMIN' });
      const visitor = await Visitor.open(browser, origin, {
        width,
        isDark,
        host: new URL(stripe.url).host,
      });
      const { page } = visitor;
      await visitor.signIn(key);
      await visitor.open('/console/credit');
      await visitor.settled();
      await page.getByText('Save a card with your next payment').waitFor();
      await visitor.checkAccess('credit');
      await page.getByRole('button', { name: 'Add credit' }).click();
      await page.getByText('$50', { exact: true }).click();
      await page.getByText('Save the card for automatic top-ups').click();
      await visitor.checkAccess('add credit');
      await visitor.checkWidth('add credit');
      await page.getByRole('button', { name: 'Continue to payment' }).click();
      await page.getByRole('button', { name: 'Pay $50' }).click();
      await page.getByText('Waiting for the payment', { exact: true }).waitFor();
      const balance = page.locator('dl.tiles').getByText('$51.00').first();
      assert.equal(await balance.count(), 0, 'only a webhook of Stripe credits');
      const sentMs = performance.now();
      await deliverAll();
      await balance.waitFor();
      const liveMs = performance.now() - sentMs;
      t.diagnostic(`the balance rose ${Math.round(liveMs)} ms after the first webhook was sent`);
      assert.ok(liveMs < MAX_LIVE_MS);
      await page.getByText('Credited: $50.00').waitFor();
      await page.getByRole('link', { name: 'Receipt' }).first().waitFor();
      await visitor.checkAccess('credited');
      await visitor.checkWidth('credited');
      await page.getByRole('button', { name: 'Close' }).click();
      await page.reload();
      await page.getByText('The card visa •••• 4242 is saved').waitFor();
      await page.getByRole('button', { name: 'Switch on' }).click();
      await page.getByLabel('Keep at least, in USD').fill('60');
      await page.getByLabel('Charge each time, in USD').fill('25');
      await visitor.checkAccess('automatic top-up');
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.locator('dl.tiles').getByText('$76.00').first().waitFor();
      await page.getByText('when the balance is below $60.00').waitFor();
      await visitor.checkAccess('with automatic top-up');
      await visitor.checkWidth('with automatic top-up');
      await visitor.open('/console/statement');
      await page.getByRole('heading', { name: /^Statement 20/ }).waitFor();
      await page.getByRole('link', { name: 'Receipt' }).nth(1).waitFor();
      // The account is new, so the sum of the credits is the closing balance too.
      await page.locator('dl.tiles').getByText('$76.00').nth(1).waitFor();
      await visitor.checkAccess('statement');
      await visitor.checkWidth('statement');
      await page.emulateMedia({ media: 'print' });
      assert.equal(await page.getByRole('navigation').isVisible(), false);
      assert.equal(await page.getByRole('button', { name: 'Print' }).isVisible(), false);
      await page.emulateMedia({ media: null });
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Delete the card' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete the card' }).click();
      await page.getByText('Save a card with your next payment').waitFor();
      await until(() => stripe.detached.length > 0, 'the card is deleted at Stripe');
      await visitor.close();
    });
  }

  test('a payer who goes back finds the page without a payment', async () => {
    const { accountId } = await farebox.account('1');
    const visitor = await Visitor.open(browser, origin, { host: new URL(stripe.url).host });
    const { page } = visitor;
    await visitor.signIn(await farebox.key({ accountId, kind: 'ADMIN' }));
    await visitor.open('/console/credit');
    await page.getByRole('button', { name: 'Add credit' }).click();
    await page.getByLabel('Amount in USD').fill('4');
    await page.getByRole('button', { name: 'Continue to payment' }).click();
    await page.getByText('The amount must be from 5.00 to 1000.00 USD').first().waitFor();
    await page.getByLabel('Amount in USD').fill('5');
    await page.getByRole('button', { name: 'Continue to payment' }).click();
    await page.getByRole('link', { name: 'Back' }).click();
    await page.getByRole('button', { name: 'Add credit' }).waitFor();
    await visitor.context.close();
  });

  test('the operator pays a card payment back from the drawer of the account', async () => {
    const { accountId, secret } = await farebox.account('1');
    const body = JSON.stringify({ amountUsd: 20 });
    const started = await fetch(`${origin}/api/v1/billing/checkout`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body,
    });
    const { id } = (await started.json()) as { id: string };
    stripe.pay(stripe.sessionOf(id)?.id ?? '');
    await deliverAll();
    const { ledger } = farebox.app.stores;
    const balance = async () => (await ledger.balances(accountId)).usdNano;
    await until(async () => (await balance()) === 21_000_000_000n, 'the credit');
    const visitor = await Visitor.open(browser, origin, { host: new URL(stripe.url).host });
    const { page } = visitor;
    const { owner } = farebox;
    await visitor.signIn(await farebox.key({ accountId: owner.accountId, kind: 'ADMIN' }));
    await visitor.open(`/console/operator/accounts?open=${accountId}`);
    await page.getByText('Refund to cards').click();
    await page.getByLabel('Amount in USD').fill('4.50');
    await visitor.checkAccess('refund to cards');
    await page.getByRole('button', { name: 'Pay back to cards' }).click();
    await page
      .getByText(/^Refund to cards of \$4\.50: paid$/)
      .first()
      .waitFor();
    assert.equal(await balance(), 16_500_000_000n);
    await deliverAll();
    await visitor.context.close();
  });
});
