/** In a browser, an operator connects an engine and sends the first paid call, without opening a file. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { launchChromium } from '../support/chromium.ts';
import { ENGINE_KEY, type KeyedEngine, startKeyedEngine } from '../support/keyed-engine.ts';
import { Visitor } from './console-fixture.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

const YAML = `discovery: { enabled: false }
embedded: { enabled: false }
listen: { port: 0 }
`;

describe('the drawer "Add engine"', () => {
  let farebox: FareboxProcess;
  let engine: KeyedEngine;
  let browser: Browser;
  before(async () => {
    engine = await startKeyedEngine();
    [farebox, browser] = await Promise.all([startFarebox({ yaml: YAML }), launchChromium()]);
    // The first request makes the bundle, which can take longer than the timeout of the browser.
    await fetch(new URL('/', farebox.url));
  });
  after(async () => {
    await browser.close();
    const code = await farebox.stop();
    removeFolder(farebox);
    engine.close();
    assert.equal(code, 0, farebox.output());
  });

  for (const [name, options, id] of [
    ['desktop', { width: 1280 }, 'acme/small'],
    ['phone', { width: 390, isDark: true }, 'acme/unlisted'],
  ] as const) {
    test(`an engine is tested, added and called on a ${name}`, async () => {
      // A model that the server does not know yet is a 404.
      const visitor = await Visitor.open(browser, new URL(farebox.url).origin, {
        ...options,
        refusals: [404],
      });
      const { page } = visitor;
      await visitor.signIn(farebox.secret ?? '');
      await visitor.open('/console');
      if (name === 'desktop') await page.getByRole('link', { name: 'Add an engine' }).click();
      else await visitor.open('/console/operator/engines?open=new');
      const drawer = page.getByRole('dialog', { name: 'Add engine' });
      const button = (label: string) => drawer.getByRole('button', { name: label, exact: true });
      const check = async (state: string): Promise<void> => {
        await visitor.checkAccess(`${state} on a ${name}`);
        await visitor.checkWidth(`${state} on a ${name}`);
      };
      await drawer.getByLabel('URL', { exact: true }).fill(engine.origin);
      await drawer.getByLabel('Name').fill(name);
      await drawer.getByLabel('Key', { exact: true }).selectOption('value');
      await drawer.getByLabel('Key of the engine').fill('sk-wrong');
      await drawer.getByText('Price list', { exact: true }).click();
      await drawer.getByLabel('URL of a price list').fill(`${engine.origin}/prices.json`);
      await check('the form');
      await button('Test').click();
      await drawer.getByText('HTTP 401; check the key').waitFor();
      await drawer.getByLabel('Key of the engine').fill(ENGINE_KEY);
      await button('Test').click();
      await drawer.getByText('lists 2 models, 1 with a published price').waitFor();
      await drawer.getByLabel(id).check();
      if (id === 'acme/unlisted') {
        await drawer.getByLabel(`Context of ${id}`).fill('8192');
        await drawer.getByLabel(`Input price of ${id}`).fill('1');
        await drawer.getByLabel(`Output price of ${id}`).fill('2');
      }
      assert.ok(await button('Save').isDisabled());
      await button('Show the change').click();
      await drawer.getByText(`+  - id: ${id}`).waitFor();
      await check('the change');
      await button('Save').click();
      await button('Send a test call').click();
      await drawer.getByText('Hello there.').waitFor();
      await drawer.getByText(/^Cost: \$0\.0000/).waitFor();
      await check('the test call');
      await button('Done').click();
      const row = page.getByRole('region', { name: 'Engines' }).getByText(name, { exact: true });
      await row.waitFor();
      assert.ok(!(await page.content()).includes(ENGINE_KEY));
      assert.match(readFileSync(join(farebox.folder, 'farebox.yaml'), 'utf8'), /apiKey: sk-key/);
      await visitor.close();
    });
  }
});
