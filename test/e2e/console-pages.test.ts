/**
 * All pages of the console, with data, at the widths of a phone and of a desktop, in light and dark:
 * nothing is cut or wider than the screen, and axe finds nothing. Also their states without data and
 * with errors.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { type LoopbackEngine, openEngine, sendJson } from '../support/loopback-engine.ts';
import { Visitor } from './console-fixture.ts';

const OWN =
  ' activity activity/tags keys batches budgets webhooks credit models limits sessions members';
const PLAYGROUND = ' images speech embeddings rerank background transcription video';
const OPERATOR =
  'accounts requests failures revenue books engines videos payments audit backups configuration check';
const own = OWN.split(' ').map((name) => (name === '' ? '' : `/${name}`));
const operator = OPERATOR.split(' ').map((name) => `/operator/${name}`);
const playground = PLAYGROUND.split(' ').map((name) => `/playground/${name}`);
const PAGES = [...own, ...playground, ...operator];
/** The tabs of the playground, the models and the configuration of sessions need no other data. */
const PAGES_WITH_DATA = [...own, ...operator].filter((path) => path !== '/models');
const DATA = /\/api\/v1\/(?!console\/session$|models|events)/;
/** The text of pages without data. The owner of a new server has a key, and credit in the books. */
const EMPTY: Readonly<Record<string, string>> = {
  '': 'No requests yet',
  '/activity': 'No requests in the last',
  '/activity/tags': 'No tagged requests on these days',
  '/batches': 'No batches yet',
  '/budgets': 'No budgets yet',
  '/webhooks': 'No webhooks yet',
  '/members': 'No members yet',
  '/models': 'No models are available',
  '/limits': 'No request was rejected by a limit',
  '/operator/requests': 'No requests on these days',
  '/operator/failures': 'No requests on these days',
  '/operator/revenue': 'No charges on these days',
  '/operator/engines': 'No engine is configured or discovered',
  '/operator/videos': 'No video jobs yet',
  '/operator/payments': 'No payments',
  '/operator/backups': 'There is no backup yet',
};
const WIDTHS_PX = [360, 1280];
/** The colours of a theme change only this. */
const CONTRAST = {
  resultTypes: ['violations'],
  runOnly: { type: 'rule', values: ['color-contrast'] },
};
const LONG = 'a-name-of-a-model-that-is-longer-than-any-column-of-any-page-of-the-console';

const YAML = (url: string): string => `
plans: { gold: { basedOn: pro } }
engines: { studio: { url: "${url}/v1" } }
models:
  - { id: m, type: text, traits: [default], context: 8192, maxCompletionTokens: 64, price: { input: 1.25, output: 0.000001 }, replicas: [{ engine: studio, cost: { input: 1 } }] }
  - { id: ${LONG}, type: text, context: 8192, price: { input: 12345.678, output: 2 }, replicas: [{ engine: studio }] }
  - { id: brush, type: image, price: { perImage: 0.04 }, replicas: [{ engine: studio }] }
  - { id: voice, type: tts, price: { perMillionCharacters: 10 }, speech: { voices: [anna] }, replicas: [{ engine: studio }] }
  - { id: judge, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: studio }] }
  - { id: vectors, type: embedding, price: { input: 0.02 }, embedding: { dimensions: 2 }, replicas: [{ engine: studio }] }`;

describe('all pages of the console', () => {
  let engine: LoopbackEngine;
  let browser: Browser;
  let farebox: TestApp;
  let origin: string;
  let admin: string;

  before(async () => {
    [engine, browser] = await Promise.all([openEngine(), launchChromium()]);
    farebox = await startTestApp({ yaml: YAML(engine.url) });
    origin = new URL(farebox.url).origin;
    // The first request makes the bundle, which can take longer than the timeout of the browser.
    await fetch(origin);
    admin = await farebox.key({ kind: 'ADMIN', description: 'owner' });
    engine.answer = ({ body }, response) => {
      const isBroken = body.includes('break');
      const message = { role: 'assistant', content: 'Hi' };
      const choices = [{ index: 0, finish_reason: 'stop', message }];
      const usage = { prompt_tokens: 1_234_567, completion_tokens: 20, total_tokens: 1_234_587 };
      const completion = { id: 'c', object: 'chat.completion', created: 1, model: 'm', choices };
      sendJson(
        response,
        isBroken ? 500 : 200,
        isBroken ? { error: 'out' } : { ...completion, usage },
      );
    };
    await post('/accounts', { name: `Customer ${LONG}` });
    await post('/webhooks', { url: `https://example.com/${LONG}`, events: ['balance.low'] });
    for (const [model, content] of [
      ['m', 'a'],
      [LONG, 'b'],
      ['m', 'break'],
    ] as const) {
      await post('/chat/completions', {
        model,
        metadata: { team: LONG },
        messages: [{ role: 'user', content }],
      });
    }
  });
  after(async () => {
    await browser.close();
    await farebox.stop();
    await engine.close();
  });

  async function post(path: string, body: object): Promise<void> {
    const response = await fetch(farebox.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${admin}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    await response.text();
  }

  test('fit a phone and a desktop screen and are accessible in light and dark', async () => {
    const visitor = await Visitor.open(browser, origin, {});
    const { page } = visitor;
    await visitor.signIn(admin);
    for (const path of PAGES) {
      await visitor.open(`/console${path}`);
      await page.locator('h1').waitFor();
      await visitor.settled();
      assert.equal(await page.locator('.failure').count(), 0, path);
      await visitor.checkAmounts(path);
      await visitor.checkNames(path);
      for (const [at, width] of WIDTHS_PX.entries()) {
        const name = `${path} at ${width}`;
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme: at === 0 ? 'light' : 'dark' });
        await visitor.checkWidth(name);
        await visitor.checkAccess(name);
        await page.emulateMedia({ colorScheme: at === 0 ? 'dark' : 'light' });
        await visitor.checkAccess(`${name}, other theme`, CONTRAST);
      }
    }
    await visitor.close();
  });

  test('show placeholder lines until their data arrives', async () => {
    const visitor = await Visitor.open(browser, origin, {});
    const { page } = visitor;
    await visitor.signIn(admin);
    await visitor.open('/console');
    await page.locator('h1').waitFor();
    let waiting: (() => void)[] = [];
    await page.route(DATA, async (route) => {
      if (route.request().method() === 'GET') {
        await new Promise<void>((resolve) => void waiting.push(resolve));
      }
      await route.continue();
    });
    for (const path of PAGES_WITH_DATA) {
      await visitor.open(`/console${path}`);
      await page.locator('h1').waitFor();
      await page.locator('.loading').first().waitFor();
      const free = setInterval(() => {
        for (const go of waiting) go();
        waiting = [];
      }, 10);
      await page.locator('.loading').first().waitFor({ state: 'detached' });
      clearInterval(free);
    }
    await page.unroute(DATA);
    await visitor.close();
  });

  test('explain an error of the server, and load again', async () => {
    const visitor = await Visitor.open(browser, origin, { refusals: [503] });
    const { page } = visitor;
    await visitor.signIn(admin);
    await visitor.open('/console');
    await page.locator('h1').waitFor();
    const body = JSON.stringify({ error: 'Broken for a test', code: 'SERVICE_UNAVAILABLE' });
    await page.route(DATA, (route) =>
      route.request().method() === 'GET'
        ? route.fulfill({ status: 503, contentType: 'application/json', body })
        : route.continue(),
    );
    for (const path of PAGES_WITH_DATA) {
      await visitor.open(`/console${path}`);
      await page.locator('h1').waitFor();
      await page.locator('.failure').first().waitFor();
      await page.getByText('Broken for a test').first().waitFor();
      assert.ok((await page.getByRole('button', { name: 'Try again' }).count()) > 0, path);
    }
    await page.unroute(DATA);
    await page.getByRole('button', { name: 'Try again' }).first().click();
    await page.locator('.failure').first().waitFor({ state: 'detached' });
    await visitor.close();
  });

  test('an operator selects the plan of an account, and edits its prices by kind and model', async () => {
    const { accountId } = await farebox.account('5');
    const stored = async () => {
      const headers = { authorization: `Bearer ${admin}` };
      const response = await fetch(`${farebox.url}/admin/accounts/${accountId}`, { headers });
      const { data } = (await response.json()) as { data: { plan: string; prices: unknown } };
      return data;
    };
    const visitor = await Visitor.open(browser, origin, { width: 360, refusals: [400] });
    const { page } = visitor;
    await visitor.signIn(admin);
    await visitor.open(`/console/operator/accounts?open=${accountId}`);
    await page.getByText('Settings', { exact: true }).click();
    await page.getByLabel('Plan').selectOption('gold');
    await page.getByRole('button', { name: 'Save' }).first().click();
    await page.getByRole('status').getByText('The account was changed').waitFor();
    assert.equal((await stored()).plan, 'gold');

    await page.getByText('Prices', { exact: true }).click();
    const form = page.locator('details', { hasText: 'Applies to' });
    const rules = page.getByRole('region', { name: 'Rules for own prices' });
    const save = form.getByRole('button', { name: 'Save' });
    await form.getByLabel('Discount in percent').fill('120');
    await save.click();
    await form
      .getByText(/percentage from 0 to 100/)
      .first()
      .waitFor();
    await form.getByLabel('Applies to').selectOption('kinds text');
    await form.getByLabel('Discount in percent').fill('12.5');
    await save.click();
    await rules.getByText('12.5 % discount').waitFor();
    await form.getByLabel('Applies to').selectOption('models m');
    await form.getByText('Own prices', { exact: true }).click();
    await form.getByLabel('input in USD').fill('0.5');
    await save.click();
    await rules.getByText('input $0.50').waitFor();
    await visitor.checkWidth('own prices');
    await visitor.checkAccess('own prices');
    assert.deepEqual((await stored()).prices, {
      kinds: { text: { discountPercent: '12.5' } },
      models: { m: { price: { input: '0.5', output: '0.000001' } } },
    });
    await rules
      .getByRole('row', { name: /Kind text/ })
      .getByRole('button')
      .click();
    await rules.getByText('12.5 % discount').waitFor({ state: 'detached' });
    await rules.getByRole('button').click();
    await rules.waitFor({ state: 'detached' });
    assert.equal((await stored()).prices, null);
    await visitor.close();
  });
});

test('pages of a new server say in words that they have no data', async () => {
  const [browser, farebox] = await Promise.all([
    launchChromium(),
    startTestApp({ yaml: 'models: []' }),
  ]);
  const origin = new URL(farebox.url).origin;
  await fetch(origin);
  const visitor = await Visitor.open(browser, origin, {});
  await visitor.signIn(await farebox.key({ kind: 'ADMIN', description: 'owner' }));
  for (const [path, title] of Object.entries(EMPTY)) {
    await visitor.open(`/console${path}`);
    await visitor.page.locator('.empty').getByText(title).first().waitFor();
  }
  await visitor.close();
  await browser.close();
  await farebox.stop();
});
