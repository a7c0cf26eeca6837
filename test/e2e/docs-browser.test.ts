/** The page at `/docs` in a real browser: calls with the caller's key, search, code, and no secret kept. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser, Locator } from 'playwright-core';
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
    const hostile = JSON.stringify(HOSTILE);
    farebox = await startTestApp({
      yaml: `
service: { title: ${hostile} }
engines: { fake: { url: ${upstream.url} } }
models:
  - { id: m, name: ${hostile}, description: ${hostile}, type: text, traits: [default], context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
personas:
  list: [{ slug: p, name: ${hostile}, description: ${hostile}, tags: [${hostile}], prompt: Hi }]`,
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
    options: Parameters<typeof Visitor.open>[2],
    run: (visitor: Visitor) => Promise<void>,
  ): Promise<void> {
    const visitor = await Visitor.open(browser, origin, options);
    await visitor.open('/docs');
    await run(visitor);
    assert.equal(await visitor.page.evaluate(() => 'pwned' in globalThis), false);
    await visitor.close();
  }

  /** The form of a route, opened. */
  async function opened({ page }: Visitor, id: string): Promise<Locator> {
    const route = page.locator(`#${id}`);
    await route.getByRole('button', { name: 'Try it' }).click();
    return route.locator('.panel');
  }

  /**
   * Axe and who looks for a role read all of a page, which says the same some hundred times: the
   * routes that matter stay.
   */
  async function keep({ page }: Visitor, ...ids: readonly string[]): Promise<void> {
    const others = ids.map((id) => `:not(#${id})`).join('');
    await page.evaluate(
      `document.querySelectorAll('main article${others}').forEach((one) => one.remove())`,
    );
  }

  test('is whole at a phone and at a desk, light and dark, and small', async () => {
    for (const [width, isDark] of [
      [390, true],
      [1280, false],
    ] as const) {
      await visit({ width, isDark }, async (visitor) => {
        // Those that are far away are not laid out, and what stands out of one is cut.
        await visitor.page.evaluate(
          `document.querySelectorAll('article').forEach((one) => (one.style.contentVisibility = 'visible'))`,
        );
        await visitor.checkWidth('/docs');
        const sizes = await visitor.page.evaluate<number[]>(
          'performance.getEntries().map(({ encodedBodySize = 0 }) => encodedBodySize)',
        );
        const bytes = sizes.reduce((sum, size) => sum + size, 0);
        assert.ok(bytes > 20_000 && bytes < 120_000, `${bytes} bytes`);
        await keep(visitor, 'start', 'postChatCompletions');
        const form = await opened(visitor, 'postChatCompletions');
        await form.getByLabel('Body').waitFor();
        await visitor.checkWidth('the form');
        await visitor.checkAccess(`/docs at ${width}`);
      });
    }
  });

  test('a chat with a key is answered, and shows what it cost', async () => {
    await visit({ refusals: [401] }, async (visitor) => {
      const { page, context } = visitor;
      await keep(visitor, 'postChatCompletions', 'getBillingBalance');
      const form = await opened(visitor, 'postChatCompletions');
      const send = form.getByRole('button', { name: 'Send' });
      await send.click();
      await form.getByText('Enter a key first').waitFor();
      await form.getByLabel('API key').fill('wrong');
      await send.click();
      await form.getByText('401 Unauthorized').waitFor();
      await form.getByLabel('API key').fill(key);
      await form.getByLabel('Body').fill('{ no json');
      await send.click();
      await form.getByText('The body is no JSON').waitFor();
      await form.getByRole('button', { name: 'Reset' }).click();
      upstream.script.push({
        kind: 'answer',
        content: HOSTILE,
        promptTokens: 10,
        completionTokens: 20,
      });
      await form.getByLabel('Body').press('Control+Enter');
      // 10 x 1 and 20 x 2 USD a million tokens.
      await form.locator('.cost').getByText('$0.00005', { exact: true }).waitFor();
      await form.getByText('200 OK').waitFor();
      assert.ok((await form.locator('pre').textContent())?.includes('<img src=x'));
      await form.getByText(/^Headers/).click();
      await form.getByText('x-svc-balance-usd').waitFor();
      await visitor.checkAccess('an answer');
      // The other forms have the key, and nothing else does.
      const balance = await opened(visitor, 'getBillingBalance');
      await balance.getByRole('button', { name: 'Send' }).click();
      await balance.locator('pre', { hasText: '4.99995' }).waitFor();
      const kept = await page.evaluate<string>(
        'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state, location.href])',
      );
      assert.ok(!kept.includes(key), kept);
      assert.deepEqual(await context.cookies(), []);
      assert.ok(!(await page.content()).includes(key));
      await page.reload();
      const again = await opened(visitor, 'postChatCompletions');
      assert.equal(await again.getByLabel('API key').inputValue(), '');
    });
  });

  test('a stream is shown as it comes, stopped, and costs what its receipt says', async () => {
    await visit({}, async (visitor) => {
      await keep(visitor, 'postChatCompletions');
      const form = await opened(visitor, 'postChatCompletions');
      await form.getByLabel('API key').fill(key);
      const body = { model: 'm', stream: true, messages: [{ role: 'user', content: 'Hi' }] };
      await form.getByLabel('Body').fill(JSON.stringify(body));
      const send = form.getByRole('button', { name: 'Send' });
      upstream.script.push({
        kind: 'answer',
        content: HOSTILE,
        promptTokens: 10,
        completionTokens: 20,
      });
      await send.click();
      await form.locator('.cost').getByText('$0.00005', { exact: true }).waitFor();
      await form.locator('.said', { hasText: HOSTILE }).waitFor(); // a frame later
      assert.equal(await form.locator('.said').textContent(), HOSTILE);
      await form.getByText(/^Events/).click();
      await form.getByLabel('Events').getByText('[DONE]').waitFor();
      upstream.script.push({ kind: 'stream', chunks: 400, everyMs: 30, usage: true });
      await send.click();
      await form.locator('.said').waitFor();
      await form.getByRole('button', { name: 'Stop' }).click();
      await form.getByText('stopped after').waitFor();
      const shown = (await form.locator('.cost').textContent()) ?? '';
      const headers = { authorization: `Bearer ${key}` };
      const answer = await fetch(`${farebox.url}/usage/requests?limit=1`, { headers });
      const { data } = (await answer.json()) as {
        data: { status: string; cost: { usd: number } }[];
      };
      assert.equal(data[0]?.status, 'aborted');
      assert.equal(shown, `$${data[0]?.cost.usd}`);
    });
  });

  test('marks what cannot be undone and what only a wallet can do', async () => {
    const admin = await farebox.key({ kind: 'ADMIN' });
    await visit({ refusals: [400] }, async (visitor) => {
      await keep(visitor, 'deleteApiKeys', 'postX402TopUp');
      const revoke = await opened(visitor, 'deleteApiKeys');
      await visitor.page
        .locator('#deleteApiKeys')
        .getByText('Cannot be undone', { exact: true })
        .waitFor();
      await revoke.getByLabel('ADMIN key').fill(admin);
      const send = revoke.getByRole('button', { name: 'Send' });
      await send.click();
      await revoke.getByText('Say that you mean it first').waitFor();
      await revoke.getByLabel('This cannot be undone').check();
      await send.click();
      await revoke.getByText('id is missing').waitFor();
      await revoke.getByLabel('id', { exact: true }).fill('key_0');
      await send.click();
      await revoke.getByText('400 Bad Request').waitFor();
      assert.equal(await revoke.getByLabel('This cannot be undone').isChecked(), false);
      const topUp = await opened(visitor, 'postX402TopUp');
      await topUp.getByText('A wallet has to sign this').waitFor();
      await topUp.getByRole('button', { name: 'Send unsigned' }).waitFor();
      await visitor.checkAccess('the forms');
    });
  });

  test('what operators call models and personas stays text', async () => {
    await visit({}, async (visitor) => {
      await keep(visitor, 'getModels', 'getCharacters');
      for (const id of ['getModels', 'getCharacters']) {
        const form = await opened(visitor, id);
        await form.getByRole('button', { name: 'Send' }).click();
        await form.getByText('200 OK').waitFor();
        assert.ok((await form.locator('pre').textContent())?.includes('<img src=x'), id);
      }
    });
  });

  test('finds routes, fields and errors by the keyboard, and links lead there', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      const search = page.getByRole('combobox', { name: 'Search' });
      const found = page.getByRole('option', { selected: true });
      await page.keyboard.press('/');
      await page.keyboard.type('embedd');
      await found.getByText('/embeddings').waitFor();
      await page.keyboard.press('Enter');
      assert.equal(new URL(page.url()).hash, '#postEmbeddings');
      await page.keyboard.press('/');
      await page.keyboard.type('top_logprobs');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowUp');
      await page.keyboard.press('Enter');
      assert.equal(new URL(page.url()).hash, '#postChatCompletions.top_logprobs');
      await page.locator('.field.shown code', { hasText: 'top_logprobs' }).waitFor();
      await page.keyboard.press('/');
      await page.keyboard.type('insufficient');
      await found.click();
      assert.equal(new URL(page.url()).hash, '#error-INSUFFICIENT_BALANCE');
      await search.fill(`zz${HOSTILE}`);
      await page.getByText('Nothing here is called').waitFor();
      await page.keyboard.press('Escape');
      assert.equal(await search.inputValue(), '');
      // A field that is folded away is opened by its address.
      await page.goto(`${origin}/docs#postChatCompletions.completion_tokens`);
      await page.reload();
      await page.locator('.field.shown').getByText('completion_tokens').first().waitFor();
      await search.fill('temperature');
      await found.waitFor();
      await keep(visitor, 'postChatCompletions');
      await visitor.checkAccess('what was found');
    });
  });

  test('the language is chosen once for all and remembered, and code is copied', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await keep(visitor, 'getModels', 'getUsage');
      const models = page.locator('#getModels');
      await models.getByRole('tab', { name: 'curl' }).press('ArrowRight');
      await models.getByText('from openai import OpenAI').waitFor();
      await page.locator('#getUsage').getByText('import requests').waitFor();
      await page.reload();
      await models.getByText('from openai import OpenAI').waitFor();
      await models.locator('.code').getByRole('button', { name: 'Copy' }).click();
      const copied = await page.evaluate('navigator.clipboard.readText()');
      assert.match(String(copied), /^import os\nfrom openai import OpenAI\n/);
    });
  });
});
