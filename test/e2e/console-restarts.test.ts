/**
 * A tab of the console that stays open while its server restarts and is upgraded: the session, the typed
 * text and the live figures stay, and the pages of a new build load. `FAREBOX_CONSOLE_RESTARTS` and
 * `FAREBOX_CONSOLE_UPGRADES` set other counts than the small ones of a usual run.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { Visitor } from './console-fixture.ts';

const RESTARTS = Number(process.env['FAREBOX_CONSOLE_RESTARTS'] ?? 2);
const UPGRADES = Number(process.env['FAREBOX_CONSOLE_UPGRADES'] ?? 2);
const PAGES = ['Overview', 'Activity', 'Models', 'Budgets', 'Credit', 'Limits'];
const HASHED = /([a-z][a-z-]*)-([A-Z0-9]{8})\.(js|css)/g;

describe('a tab that stays open', () => {
  const dataFolder = mkdtempSync(join(tmpdir(), 'farebox-restarts-'));
  let browser: Browser;
  let port: number;
  let farebox: TestApp;
  let admin: string;

  before(async () => {
    [browser, port] = await Promise.all([launchChromium(), freePort()]);
    farebox = await startTestApp({ dataFolder, port });
    await fetch(originOf());
    admin = await farebox.key({ kind: 'ADMIN', description: 'owner' });
  });
  after(async () => {
    await browser.close();
    await farebox.stop();
    rmSync(dataFolder, { recursive: true, force: true });
  });

  function originOf(): string {
    return new URL(farebox.url).origin;
  }

  async function restart(): Promise<void> {
    await farebox.stop();
    farebox = await startTestApp({ dataFolder, port });
  }

  /** A signed-in page with a typed text in an open dialog. Fails if a script of the page throws. */
  async function withTab(
    run: (page: Page, context: BrowserContext) => Promise<void>,
  ): Promise<void> {
    const visitor = await Visitor.open(browser, originOf(), {});
    await visitor.signIn(admin);
    const page = await visitor.context.newPage();
    const thrown: string[] = [];
    page.on('pageerror', (error) => thrown.push(String(error.stack)));
    await run(page, visitor.context);
    assert.deepEqual(thrown, []);
    await visitor.close();
  }

  async function typeName(page: Page, text: string): Promise<void> {
    await page.getByRole('link', { name: 'Keys', exact: true }).click();
    await page.getByRole('button', { name: 'Create a key' }).click();
    await page.getByRole('dialog').getByLabel('Description').fill(text);
  }

  /** The typed text is there, the live figures work again, and another page opens. */
  async function goOn(page: Page, text: string, to: string): Promise<void> {
    await page.locator('.dot.on').waitFor();
    const field = page.getByRole('dialog').getByLabel('Description');
    assert.equal(await field.inputValue(), text);
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: to, exact: true }).first().click();
    await page.getByRole('heading', { name: to, level: 1 }).waitFor();
    await page.locator('.loading').first().waitFor({ state: 'detached' });
    assert.equal(await page.locator('.failure').count(), 0);
    await page.locator('.offline').waitFor({ state: 'detached' });
  }

  test(`survives ${RESTARTS} restarts of its server`, async () => {
    await withTab(async (page) => {
      await page.goto(`${originOf()}/console`);
      let documents = 0;
      page.on('request', (request) => {
        if (request.resourceType() === 'document') documents += 1;
      });
      for (let count = 1; count <= RESTARTS; count += 1) {
        const text = `Key ${count}`;
        await typeName(page, text);
        await page.locator('.dot.on').waitFor();
        await restart();
        await page.locator('.dot:not(.on)').waitFor({ state: 'attached' });
        await goOn(page, text, PAGES[count % PAGES.length] ?? '');
      }
      assert.equal(documents, 0, 'the page did not load again');
    });
  });

  test(`survives ${UPGRADES} upgrades of its server`, async () => {
    await withTab(async (page, context) => {
      const build = await serveBuilds(context);
      await page.goto(`${originOf()}/console`);
      for (let count = 1; count <= UPGRADES; count += 1) {
        const text = `Key ${count}`;
        await typeName(page, text);
        build.number = count;
        await restart();
        await page.getByText('The server runs a newer version of the console').waitFor();
        await goOn(page, text, PAGES[count % PAGES.length] ?? '');
        const script = await page.locator('script[type=module]').first().getAttribute('src');
        assert.match(script ?? '', new RegExp(`${nameOfBuild(count)}\\.js$`));
      }
    });
  });
});

function nameOfBuild(number: number): string {
  return String(number).padStart(3, '0');
}

/** Gives every file another hash in each build, and rejects the files of other builds. */
async function serveBuilds(context: BrowserContext): Promise<{ number: number }> {
  const build = { number: 0 };
  const originals = new Map<string, string>();
  const renamed = (body: string): string =>
    body.replaceAll(HASHED, (original, word: string, hash: string, type: string) => {
      const name = `${word}-${hash.slice(0, 5)}${nameOfBuild(build.number)}.${type}`;
      originals.set(name, original);
      return name;
    });
  await context.route(/\/console(?:$|\/)/, async (route) => {
    const url = new URL(route.request().url());
    const file = /^\/console\/assets\/(.+)$/.exec(url.pathname)?.[1];
    const isHashed = /\.(?:js|css)$/.test(file ?? '');
    if (isHashed && file?.includes(`${nameOfBuild(build.number)}.`) === false)
      return await route.fulfill({ status: 404 });
    if (file !== undefined) url.pathname = `/console/assets/${originals.get(file) ?? file}`;
    try {
      const response = await route.fetch({ url: url.href });
      const type = response.headers()['content-type'] ?? '';
      const isText = type.startsWith('text/');
      return await (isText
        ? route.fulfill({ response, body: renamed(await response.text()) })
        : route.fulfill({ response }));
    } catch {
      // The server restarts at this moment.
      return await route.abort('connectionrefused');
    }
  });
  return build;
}
