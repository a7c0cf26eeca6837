/** The console by keyboard alone: each control of a page is reached and shows its focus; dialogs hold it. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { until } from '../support/until.ts';
import { Visitor } from './console-fixture.ts';

const OWN =
  ' activity keys batches budgets webhooks credit models limits sessions members playground';
const OPERATOR = 'accounts requests revenue books engines payments configuration';
const PAGES = [
  ...OWN.split(' ').map((name) => `/${name}`),
  ...OPERATOR.split(' ').map((name) => `/operator/${name}`),
  '/playground/images',
];
/** Button that opens a dialog, by page. */
const DIALOGS = [
  ['/keys', 'Create a key'],
  ['/budgets', 'Create a budget'],
  ['/operator/accounts', 'Create an account'],
] as const;
/** More steps than a page of the test has controls. */
const MOST_STEPS = 90;

/** Marks the controls in the content; a group of radio buttons is one stop. */
const MARK = `(() => {
  const all = [...document.querySelectorAll('main :is(a[href], button, input, select, textarea, summary, [tabindex="0"])')];
  const stops = all.filter((one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility() && !(one.type === 'radio' && !one.checked));
  for (const stop of stops) stop.dataset.unreached = '';
  return stops.length;
})()`;
/** Text of the focused element if its focus cannot be seen; otherwise undefined. */
const FOCUSED = `(() => {
  const one = document.activeElement;
  delete one.dataset.unreached;
  // The browser draws the focus of a date in its parts.
  if (one === document.body || one.type === 'date') return undefined;
  const shown = [one, one.nextElementSibling, one.parentElement].some((element) => element !== null && getComputedStyle(element).outlineStyle !== 'none');
  return shown ? undefined : one.outerHTML.slice(0, 120);
})()`;
const UNREACHED = `[...document.querySelectorAll('[data-unreached]')].map((one) => one.outerHTML.slice(0, 120))`;
const IS_IN_DIALOG = `document.activeElement === document.body || document.activeElement.closest('dialog') !== null`;

describe('the console by keyboard', () => {
  let browser: Browser;
  let farebox: TestApp;
  let origin: string;
  let admin: string;

  before(async () => {
    browser = await launchChromium();
    farebox = await startTestApp({});
    origin = new URL(farebox.url).origin;
    await fetch(origin);
    admin = await farebox.key({ kind: 'ADMIN', description: 'owner' });
  });
  after(async () => {
    await browser.close();
    await farebox.stop();
  });

  async function withPage(run: (visitor: Visitor, page: Page) => Promise<void>): Promise<void> {
    const visitor = await Visitor.open(browser, origin, {});
    await visitor.signIn(admin);
    await run(visitor, visitor.page);
    await visitor.close();
  }

  test('Tab reaches every control of a page, and the focus is visible', async () => {
    await withPage(async (visitor, page) => {
      let controls = 0;
      for (const path of PAGES) {
        await visitor.open(`/console${path}`);
        await page.locator('h1').waitFor();
        await visitor.settled();
        controls += await page.evaluate<number>(MARK);
        await page.locator('main').focus();
        for (let step = 0; step < MOST_STEPS; step += 1) {
          await page.keyboard.press('Tab');
          assert.equal(await page.evaluate(FOCUSED), undefined, path);
          if ((await page.locator('[data-unreached]').count()) === 0) break;
        }
        assert.deepEqual(await page.evaluate(UNREACHED), [], path);
      }
      assert.ok(controls > 100, `${controls} controls`);
    });
  });

  test('a dialog opens by Enter, holds the focus, and Escape returns it', async () => {
    await withPage(async (visitor, page) => {
      for (const [path, name] of DIALOGS) {
        await visitor.open(`/console${path}`);
        const opener = page.getByRole('button', { name }).first();
        await opener.focus();
        await page.keyboard.press('Enter');
        await page.getByRole('dialog').waitFor();
        for (let step = 0; step < 12; step += 1) {
          await page.keyboard.press('Tab');
          assert.ok(await page.evaluate(IS_IN_DIALOG), `${name}, step ${step}`);
        }
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'detached' });
        const hasFocus = `document.activeElement?.textContent === '${name}'`;
        await until(async () => (await page.evaluate(hasFocus)) === true, 'the focus');
      }
    });
  });

  test('Ctrl-K opens the search, arrows and Enter open a page', async () => {
    await withPage(async (visitor, page) => {
      await visitor.open('/console');
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox').waitFor();
      await page.keyboard.type('limits');
      await page.locator('[role=option][aria-selected=true]', { hasText: 'Limits' }).waitFor();
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor();
    });
  });
});
