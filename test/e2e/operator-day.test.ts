/**
 * A day of an operator in the console, on a server with many receipts. For images of each step and the
 * time of each page, with a million receipts that are filled in once:
 *
 *   FOLDER=filled ONLY=nothing node bench/growth.ts
 *   FAREBOX_DAY_DATABASE=filled/farebox.db FAREBOX_DAY_IMAGES=images node test/run.ts test/e2e/operator-day.test.ts
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { addReportDays } from '../../src/billing/ledger/ledger.ts';
import { systemClock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { type LoopbackEngine, openEngine, sendJson } from '../support/loopback-engine.ts';
import { fillReceipts } from '../support/many-receipts.ts';
import { Visitor } from './console-fixture.ts';

const RECEIPTS = 3_000;
/** A copy of it is used in place of a new database. */
const DATABASE = process.env['FAREBOX_DAY_DATABASE'];
const IMAGES = process.env['FAREBOX_DAY_IMAGES'];

const yaml = (url: string): string => `
engines:
  studio:
    url: ${url}/v1
models:
  - id: m
    type: text
    traits: [default]
    context: 8192
    maxCompletionTokens: 64
    price: { input: 1, output: 2 }
    replicas: [{ engine: studio, cost: { input: 0.5, output: 1 } }]
`;

for (const [screen, width, isDark] of [
  ['desktop', 1280, false],
  ['phone', 390, true],
] as const) {
  describe(`a day of an operator on a ${screen} with many receipts`, () => {
    let engine: LoopbackEngine;
    let browser: Browser;
    let farebox: TestApp;
    let visitor: Visitor;
    let page: Page;
    let folder: string;
    let file: string;
    let customer: { readonly accountId: string; readonly secret: string };
    let failedId = '';
    let images = 0;
    let openedMs = 0;

    before(async () => {
      [engine, browser] = await Promise.all([openEngine(), launchChromium()]);
      engine.answer = (_request, response) => sendJson(response, 500, { error: 'out of memory' });
      folder = mkdtempSync(join(tmpdir(), 'farebox-day-'));
      if (DATABASE !== undefined) copyFileSync(DATABASE, join(folder, 'farebox.db'));
      farebox = await startTestApp({ yaml: yaml(engine.url), dataFolder: folder });
      file = join(folder, 'farebox.yaml');
      writeFileSync(file, `# The shop\n${yaml(engine.url)}`);
      const { store, identity } = farebox.app.stores;
      if (DATABASE === undefined) await fillReceipts(store, RECEIPTS);
      const clock = systemClock();
      while (!(await addReportDays({ store, clock, log: silentLog })));
      customer = await farebox.account('5');
      const response = await fetch(`${farebox.url}/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${customer.secret}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] }),
      });
      assert.equal(response.status, 500, await response.text());
      failedId = response.headers.get('x-request-id') ?? '';
      const { origin } = new URL(farebox.url);
      // The first request makes the bundle, which can take longer than the timeout of the browser.
      await fetch(origin);
      visitor = await Visitor.open(browser, origin, { width, isDark });
      page = visitor.page;
      const operator = await identity.createAccount('operator', 'staff');
      await store.transaction((tx) => identity.makeOperator(operator.id, tx));
      await visitor.signIn(await farebox.key({ kind: 'ADMIN', accountId: operator.id }));
    });
    after(async () => {
      await visitor.close();
      await browser.close();
      await farebox.audit();
      await farebox.stop();
      await engine.close();
      rmSync(folder, { recursive: true, force: true });
    });

    async function seen(name: string): Promise<void> {
      await visitor.settled();
      await visitor.checkWidth(name);
      if (IMAGES === undefined) return;
      console.log(`${screen} ${name}: ${Math.round(performance.now() - openedMs)} ms`);
      mkdirSync(IMAGES, { recursive: true });
      images += 1;
      const path = join(IMAGES, `${screen}-${String(images).padStart(2, '0')}-${name}.png`);
      await page.screenshot({ path });
    }

    async function open(name: string): Promise<void> {
      openedMs = performance.now();
      await visitor.open(`/console/operator/${name}`);
      await page.locator('h1').waitFor();
    }

    test('in the morning: revenue, cost and margin', async () => {
      await open('revenue');
      // The table behind the chart is hidden; the order of the responses decides which table is first.
      await page.locator('tbody tr:visible').first().waitFor();
      await seen('revenue');
      await open('requests');
      await page.locator('tbody tr').nth(10).waitFor();
      await seen('requests');
    });

    test('a customer reports a failed request, which its id explains', async () => {
      await open('requests');
      await page.getByLabel('Request id').fill(failedId);
      await page.getByRole('button', { name: 'Find' }).click();
      await page.getByText('Not charged: the hold was released').waitFor();
      await page.getByText('out of memory').first().waitFor();
      await seen('failed-request');
      await open('engines');
      await page.getByText('studio').first().waitFor();
      await seen('engines');
    });

    test('the customer gets credit for the trouble', async () => {
      await open(`accounts?open=${customer.accountId}`);
      await page.getByText('Credit or debit').click();
      await page.getByLabel('USD', { exact: true }).fill('2.5');
      await page.getByRole('button', { name: /^Credit / }).click();
      await page.locator('.total').getByText('$7.50').waitFor();
      await seen('account');
    });

    test('a price changes in the configuration, and is undone', async () => {
      const written = readFileSync(file, 'utf8');
      await open('configuration?open=engines');
      const drawer = page.getByRole('dialog');
      await drawer.getByText('studio', { exact: true }).click();
      await drawer.getByLabel('url').fill('http://127.0.0.1:2/v1');
      await drawer.getByRole('button', { name: 'Show the change' }).click();
      await drawer.getByText('+    url: http://127.0.0.1:2/v1').waitFor();
      await seen('change');
      await drawer.getByRole('button', { name: 'Save' }).click();
      await drawer.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Restore' }).first().click();
      await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      assert.equal(readFileSync(file, 'utf8'), written);
      await seen('configuration');
    });

    test('in the evening: books, audit and backups', async () => {
      await open('books');
      await page.locator('tbody tr').first().waitFor();
      await seen('books');
      await open('audit');
      // The audit reads every posting: 12 s of CPU with a million receipts.
      await page.locator('.loading').waitFor({ state: 'detached', timeout: 150_000 });
      await seen('audit');
      await open('backups');
      await seen('backups');
    });
  });
}
