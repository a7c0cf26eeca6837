/** The pages at `/docs` in a real browser: they read, search and call this server, and no other. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { Visitor } from './console-fixture.ts';

/** Would run wherever a text became markup. */
const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;

describe('/docs in a browser', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let browser: Browser;
  let origin: string;
  let key: string;

  before(async () => {
    [upstream, browser] = await Promise.all([TestUpstream.start(), launchChromium()]);
    farebox = await startTestApp({
      yaml: `
service: { title: ${JSON.stringify(HOSTILE)}, name: fare }
engines: { fake: { url: ${upstream.url} } }
models:
  - { id: m, type: text, traits: [default], context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }`,
    });
    origin = new URL(farebox.url).origin;
    ({ secret: key } = await farebox.account('5'));
  });
  after(async () => {
    await browser.close();
    await farebox.stop();
    await upstream.kill();
  });

  async function visit(
    path: string,
    options: Parameters<typeof Visitor.open>[2],
    run: (visitor: Visitor) => Promise<void>,
  ): Promise<void> {
    const visitor = await Visitor.open(browser, origin, options);
    await visitor.open(path);
    await run(visitor);
    assert.equal(await visitor.page.evaluate(() => 'pwned' in globalThis), false);
    await visitor.close();
  }

  test('loads scripts and styles of this server alone, and nothing inline', async () => {
    const page = await fetch(`${origin}/docs`);
    assert.equal(page.status, 200);
    const policy = page.headers.get('content-security-policy') ?? '';
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self'; /);
    assert.doesNotMatch(policy, /unsafe|\*|http/);
    const text = await page.text();
    assert.doesNotMatch(text, /<style|style=|<script(?! type="module" src=)/);
    assert.ok(!text.includes('<img src=x'));
  });

  test('each page fits a phone and a desktop screen, light and dark, and axe finds nothing', async () => {
    const screens = [
      [360, true],
      [1280, false],
    ] as const;
    for (const [width, isDark] of screens) {
      await visit('/docs', { width, isDark }, async (visitor) => {
        const { page } = visitor;
        for (const path of [
          '/docs',
          '/docs?q=key',
          '/docs/moderation#/Moderation/postModerations',
        ]) {
          await visitor.open(path);
          if (path.includes('#')) await page.locator('.opblock.is-open .responses-table').waitFor();
          await visitor.checkWidth(path);
          await visitor.checkAccess(path);
          const height = await page.evaluate<number>('document.documentElement.scrollHeight');
          assert.ok(height < 16_000, `${path} has ${height} px`);
        }
        const background = await page.evaluate<string>(
          'getComputedStyle(document.body).backgroundColor',
        );
        assert.equal(/rgb\([0-4]\d?,/.test(background), isDark, background);
      });
    }
  });

  test('the overview, the search and the lists of operations need no JavaScript', async () => {
    const read = async (path: string): Promise<string> => (await fetch(origin + path)).text();
    const overview = await read('/docs');
    const groups = [...overview.matchAll(/<li><a href="(\/docs\/[a-z-]+)"/g)].map(
      ([, to = '']) => to,
    );
    assert.ok(groups.length > 20);
    for (const group of new Set(groups)) assert.match(await read(group), /<noscript><ul class="op/);
    const found = await read('/docs?q=/CHAT/+create');
    assert.match(found, /1 operation .*href="\/docs\/chat#\/Chat\/postChatCompletions"/);
    assert.match(await read('/docs?q=%3Cscript%3E'), /0 operations with “&lt;script&gt;”/);
    assert.equal((await fetch(`${origin}/docs/nothing`)).status, 404);
  });

  test('an address of the time when all operations were on one page opens the operation', async () => {
    await visit('/docs#/Usage%20and%20billing/getUsage', {}, async ({ page }) => {
      await page.waitForURL('**/docs/usage-and-billing#/Usage%20and%20billing/getUsage');
      await page.locator('.opblock.is-open').waitFor();
      assert.equal(await page.locator('.opblock.is-open').count(), 1);
    });
  });

  test('finds an operation and sends a request that is charged', async () => {
    await visit('/docs', {}, async ({ page, context }) => {
      await page.getByLabel('Search all operations').fill('/chat/completions');
      await page.keyboard.press('Enter');
      await page.getByRole('link', { name: 'POST /chat/completions' }).click();
      await page.getByRole('button', { name: 'Authorize' }).first().click();
      const dialog = page.locator('.dialog-ux');
      await dialog.getByLabel('auth-bearer-value').first().fill(key);
      await dialog.getByRole('button', { name: /Apply/ }).first().click();
      await dialog.getByRole('button', { name: 'Close' }).first().click();
      const operation = page.locator('#operations-Chat-postChatCompletions');
      await operation.getByRole('button', { name: 'Try it out' }).click();
      const body = { model: 'm', messages: [{ role: 'user', content: 'Hi' }] };
      await operation.locator('textarea').first().fill(JSON.stringify(body));
      upstream.script.push({
        kind: 'answer',
        content: HOSTILE,
        promptTokens: 10,
        completionTokens: 20,
      });
      await operation.getByRole('button', { name: 'Execute' }).click();
      // 10 x 1 and 20 x 2 USD per million tokens.
      await operation
        .getByText(/"usd": 0\.00005|5e-0?5/)
        .first()
        .waitFor();
      const kept = await page.evaluate<string>(
        'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])',
      );
      assert.ok(!kept.includes(key), kept);
      assert.deepEqual(await context.cookies(), []);
    });
  });
});
