/** The console in a real browser while its server is unreachable, and after an upgrade. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { until } from '../support/until.ts';
import { type ConsoleFixture, startConsoleFixture } from './console-fixture.ts';

/** From the click to the offline bar. */
const OFFLINE_WITHIN_MS = 2_000;

describe('the console during an outage', () => {
  let fixture: ConsoleFixture;
  let admin: string;

  before(async () => {
    fixture = await startConsoleFixture('');
    admin = await fixture.farebox.key({ kind: 'ADMIN', description: 'owner' });
  });
  after(() => fixture.stop());

  /** A signed-in page on the overview. Unlike `visitor.page`, it may log failed requests. */
  async function signedIn(run: (page: Page) => Promise<void>): Promise<void> {
    const visitor = await fixture.visitor();
    try {
      await visitor.signIn(admin);
      const page = await visitor.context.newPage();
      await page.goto(`${fixture.origin}/console`);
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await run(page);
    } finally {
      await visitor.close();
    }
  }

  test('a page whose code is not loaded yet opens as soon as the server is back', async () => {
    await signedIn(async (page) => {
      await page.context().setOffline(true);
      await page.getByRole('link', { name: 'Keys' }).click();
      const bar = page.getByText('The server cannot be reached').first();
      await bar.waitFor({ timeout: OFFLINE_WITHIN_MS });
      await page.context().setOffline(false);
      await page.getByRole('heading', { name: 'Keys' }).waitFor();
      await page.locator('.offline').waitFor({ state: 'detached' });
    });
  });

  test('a tab of the previous build loads the next page from the new build', async () => {
    await signedIn(async (page) => {
      // The previous build had another hash in the name of this file.
      await page.route(/\/console\/assets\/keys-/, (route) => route.fulfill({ status: 404 }));
      let documents = 0;
      await page.route(/\/console(?:\/keys)?$/, async (route) => {
        documents += 1;
        if (route.request().resourceType() === 'document') {
          await page.unroute(/\/console\/assets\/keys-/);
          return await route.continue();
        }
        const response = await route.fetch();
        const body = (await response.text()).replace(
          /\/console-[A-Z0-9]{8}\.js/,
          '/console-NEWBUILD.js',
        );
        return await route.fulfill({ response, body });
      });
      await page.getByRole('link', { name: 'Keys' }).click();
      await page.getByRole('heading', { name: 'Keys' }).waitFor();
      assert.ok(documents >= 2, `${documents} requests of the document`);
    });
  });

  test('a file of an earlier build is served from the data folder', async () => {
    const { dataFolder } = fixture.farebox.config;
    const name = 'keys-0LDBU1LD.js';
    for (const ending of ['', '.br', '.gz']) {
      writeFileSync(join(dataFolder, 'console', name + ending), 'export {};');
    }
    const kept = await fetch(`${fixture.origin}/console/assets/${name}`);
    assert.equal(kept.status, 200);
    assert.equal(kept.headers.get('content-type'), 'text/javascript; charset=utf-8');
    for (const other of ['keys-AAAAAAAA.js', '..%2Ffarebox.db', 'index.json']) {
      const { status } = await fetch(`${fixture.origin}/console/assets/${other}`);
      assert.equal(status, 404, other);
    }
  });

  test('Escape closes a dialog and returns the focus to the button that opened it', async () => {
    await signedIn(async (page) => {
      await page.goto(`${fixture.origin}/console/webhooks`);
      const opener = page.getByRole('button', { name: 'Create a webhook' }).first();
      await opener.click();
      await page.getByRole('dialog').waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      const hasFocus = "document.activeElement?.textContent === 'Create a webhook'";
      await until(async () => (await page.evaluate(hasFocus)) === true, 'the focus');
    });
  });

  test('the key form still works after a used sign-in link', async () => {
    const { identity } = fixture.farebox.app.stores;
    const { accountId, keyId } = await identity.keys.callerOf(admin);
    const token = await identity.sessions.issueLink(accountId, keyId);
    const visitor = await fixture.visitor({ refusals: [401] });
    const { page } = visitor;
    await visitor.open(`/console/sign-in#${token}`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await visitor.context.clearCookies();
    await visitor.open('/');
    await visitor.open(`/console/sign-in#${token}`);
    await page.getByText('The link is not valid').waitFor();
    await page.getByLabel('API key').fill(admin);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await visitor.close();
  });
});
