/**
 * Shared by the console tests: a server with both payment rails, one Chromium, and pages that fail the
 * test if they log an error, violate their policy, call another host or violate a rule of axe.
 */
import assert from 'node:assert/strict';
import axe from 'axe-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { type TestApp } from '../app/test-app.ts';
import { launchChromium } from '../support/chromium.ts';
import { type WalletFixture, startWalletFixture } from './wallet-fixture.ts';

/** Chromium logs each error response; a test lists the statuses that it provokes. */
const FAILED_REQUEST = /^Failed to load resource: the server responded with a status of (\d{3})/;
/** Reports only violations. */
const AXE_RULES = {
  resultTypes: ['violations'],
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
};

export interface ConsoleFixture {
  readonly wallets: WalletFixture;
  readonly farebox: TestApp;
  readonly origin: string;
  readonly browser: Browser;
  /** Opens a page in its own browser profile. */
  visitor(options?: VisitorOptions): Promise<Visitor>;
  stop(): Promise<void>;
}

interface VisitorOptions {
  readonly width?: number;
  readonly isDark?: boolean;
  /** Statuses of error responses that the test provokes. */
  readonly refusals?: readonly number[];
  /** Runs in every page before its own script. */
  readonly script?: string;
  /** Another host that the page may call, such as a payment page. */
  readonly host?: string;
}

/** `yaml`: sections beside those of the rails. */
export async function startConsoleFixture(yaml: string): Promise<ConsoleFixture> {
  const [wallets, browser] = await Promise.all([startWalletFixture(), launchChromium()]);
  const farebox = await wallets.startApp({ yaml });
  const { origin } = wallets;
  // The first request makes the bundle, which can take longer than the timeout of the browser.
  await fetch(origin);
  return {
    wallets,
    farebox,
    origin,
    browser,
    visitor: (options = {}) => Visitor.open(browser, origin, options),
    stop: async () => {
      await browser.close();
      await farebox.stop();
      await wallets.stop();
    },
  };
}

export class Visitor {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly #origin: string;
  readonly #problems: string[] = [];

  private constructor(page: Page, origin: string, options: VisitorOptions) {
    const { refusals = [], host: otherHost } = options;
    this.page = page;
    this.context = page.context();
    this.#origin = origin;
    const { host } = new URL(origin);
    page.on('console', (message) => {
      const status = FAILED_REQUEST.exec(message.text())?.[1];
      if (status !== undefined && refusals.includes(Number(status))) return;
      if (message.type() === 'error' || message.type() === 'warning') {
        this.#problems.push(`The page logged: ${message.text()} (${message.location().url})`);
      }
    });
    page.on('pageerror', (error) => this.#problems.push(`The page threw: ${error.stack}`));
    page.on('request', (request) => {
      const url = new URL(request.url());
      const isOwn =
        [host, otherHost].includes(url.host) ||
        url.protocol === 'data:' ||
        url.protocol === 'blob:';
      if (!isOwn) this.#problems.push(`The page called ${request.url()}`);
    });
  }

  static async open(browser: Browser, origin: string, options: VisitorOptions): Promise<Visitor> {
    const { width = 1280, isDark = false, script } = options;
    const context = await browser.newContext({
      viewport: { width, height: 900 },
      colorScheme: isDark ? 'dark' : 'light',
      reducedMotion: 'reduce',
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    context.setDefaultTimeout(60_000);
    if (script !== undefined) await context.addInitScript(script);
    return new Visitor(await context.newPage(), origin, options);
  }

  async open(path: string): Promise<void> {
    await this.page.goto(this.#origin + path);
  }

  /** Navigates inside of the document, as a link of the console does. */
  async go(path: string): Promise<void> {
    const to = JSON.stringify(path);
    await this.page.evaluate(
      `history.pushState(null, '', ${to}); dispatchEvent(new PopStateEvent('popstate'))`,
    );
    const link = this.page.locator(`a[href="${path}"][aria-current=page]`).first();
    await link.waitFor({ state: 'attached' });
  }

  /** Sets the cookie of a new session, without the sign-in page. */
  async signIn(key: string): Promise<void> {
    const response = await fetch(`${this.#origin}/api/v1/console/session`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
    });
    const [cookie = ''] = response.headers.getSetCookie();
    const [, name = '', value = ''] = /^([^=]+)=([^;]+);/.exec(cookie) ?? [];
    assert.equal(response.status, 200, await response.text());
    await this.context.addCookies([
      { name, value, url: this.#origin, httpOnly: true, sameSite: 'Strict' },
    ]);
  }

  /** Waits until the page has its heading and no placeholder is shown. */
  async settled(): Promise<void> {
    await this.page.locator('h1').first().waitFor({ state: 'attached' });
    await this.page.locator('.loading').first().waitFor({ state: 'detached' });
  }

  /** Records the violations that axe finds on the current page. */
  async checkAccess(name: string, rules: object = AXE_RULES): Promise<void> {
    // Once per document.
    if (!(await this.page.evaluate(() => 'axe' in globalThis))) {
      await this.page.evaluate(axe.source);
    }
    const found = await this.page.evaluate(async (checked) => {
      const { axe } = globalThis as unknown as {
        axe: { run(rules: unknown): Promise<AxeResults> };
      };
      return (await axe.run(checked)).violations;
    }, rules);
    for (const { id, help, nodes } of found) {
      const places = nodes.map(({ html }) => html.slice(0, 160)).slice(0, 3);
      this.#problems.push(`${name}: ${id}: ${help}: ${places.join(' | ')}`);
    }
  }

  /** Records a page that is wider than the screen, and controls and titles that it cuts. */
  async checkWidth(name: string): Promise<void> {
    const { over, cut } = await this.page.evaluate<{ over: number; cut: string[] }>(WIDTHS);
    if (over > 0) this.#problems.push(`${name} is ${over} px too wide`);
    for (const text of cut) this.#problems.push(`${name} cuts ${text}`);
  }

  /** Records columns of tables whose amounts have different numbers of decimals. */
  async checkAmounts(name: string): Promise<void> {
    for (const found of await this.page.evaluate<string[]>(AMOUNTS)) {
      this.#problems.push(`${name}: the column ${found}`);
    }
  }

  /** Records ids of accounts and keys that the content shows instead of names. */
  async checkNames(name: string): Promise<void> {
    const text = await this.page.locator('main').innerText();
    for (const [id] of text.matchAll(/\b(?:acct|key)_\w{4,}/g)) {
      this.#problems.push(`${name} shows the id ${id}`);
    }
  }

  /** Closes the page and fails for all recorded problems. */
  async close(): Promise<void> {
    await this.context.close();
    assert.deepEqual(this.#problems, []);
  }
}

/** An element inside of a part that scrolls can be reached, so it is not cut. */
const WIDTHS = `(() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  const scrolls = (element) => {
    for (let one = element; one !== null; one = one.parentElement) {
      if (['auto', 'scroll'].includes(getComputedStyle(one).overflowX)) return one.tagName !== 'HTML' && one.tagName !== 'BODY';
    }
    return false;
  };
  const cut = [...document.querySelectorAll('button, a:not(.skip), input, select, textarea, h1, h2, .num')].filter((element) => {
    const { left, right, width } = element.getBoundingClientRect();
    const isSeen = width > 1 && element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    return isSeen && (left < -1 || right > clientWidth + 1) && !scrolls(element);
  });
  return { over: scrollWidth - clientWidth, cut: cut.map(({ outerHTML }) => outerHTML.slice(0, 120)) };
})()`;

/** The first amount of each cell counts; a unit below it may have its own amounts. */
const AMOUNTS = `[...document.querySelectorAll('table')].flatMap((table) =>
  [...table.querySelectorAll('thead th')].flatMap((head, at) => {
    const texts = [...table.querySelectorAll('tbody tr')].map((row) => row.cells[at]?.textContent ?? '');
    const amounts = texts.map((text) => /\\$[\\d,]+(?:\\.(\\d+))?/.exec(text)).filter((found) => found !== null);
    const decimals = new Set(amounts.map(([, fraction = '']) => fraction.length));
    return decimals.size > 1 ? [head.textContent + ' has ' + amounts.map(([text]) => text).join(' and ')] : [];
  }))`;

interface AxeResults {
  readonly violations: readonly {
    readonly id: string;
    readonly help: string;
    readonly nodes: readonly { readonly html: string }[];
  }[];
}
