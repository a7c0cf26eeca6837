/** The page at `/docs`: whole, correct, and with nothing from elsewhere. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { parseHTML } from 'linkedom';
import { FAULTS } from '../../src/core/faults.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

describe('/docs', () => {
  let farebox: TestApp;
  let answer: Response;
  let text: string;
  let page: ReturnType<typeof parseHTML>['document'];

  before(async () => {
    farebox = await startTestApp({ yaml: 'service: { title: "Rate & <Fare>" }' });
    answer = await fetch(`${new URL(farebox.url).origin}/docs`);
    text = await answer.text();
    page = parseHTML(text).document;
  });
  after(() => farebox.stop());

  test('is one page that loads nothing from anywhere', () => {
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('content-type'), 'text/html; charset=utf-8');
    assert.equal(page.querySelectorAll('script[src], link[rel=stylesheet], img, iframe').length, 0);
    assert.equal(page.querySelectorAll('[style], [onclick]').length, 0);
    assert.doesNotMatch(text, /url\(|@import|fetch\(/);
  });

  test('runs its own style and script alone, by their hashes', () => {
    const policy = answer.headers.get('content-security-policy') ?? '';
    const hashOf = (selector: string): string => {
      const [, inner = ''] = new RegExp(`<${selector}>([^]*?)</${selector}>`).exec(text) ?? [];
      return createHash('sha256').update(inner).digest('base64');
    };
    assert.match(policy, /^default-src 'none'; /);
    assert.ok(policy.includes(`style-src 'sha256-${hashOf('style')}'`));
    assert.ok(policy.includes(`script-src 'sha256-${hashOf('script')}'`));
    assert.doesNotMatch(policy, /unsafe|\*/);
  });

  test('shows every operation with a command for the real address', () => {
    for (const [path, item] of Object.entries(farebox.app.openApi().paths)) {
      for (const operation of Object.values(item)) {
        if (operation.operationId === undefined) continue;
        const section = page.getElementById(operation.operationId);
        assert.ok(section, `${path} is missing`);
        assert.match(section.querySelector('.sample pre')?.textContent ?? '', /^curl 'http:\/\//);
        assert.ok(text.includes(`href="#${operation.operationId}"`), `${path} is not in the menu`);
      }
    }
    assert.ok(text.includes(farebox.url.replace('http://', '')));
    assert.ok(!text.includes(':0/api'));
  });

  test('explains every error', () => {
    for (const code of Object.keys(FAULTS)) assert.ok(text.includes(`<code>${code}</code>`), code);
  });

  test('escapes what the operator wrote', () => {
    assert.equal(page.querySelector('title')?.textContent, 'Rate & <Fare> API');
    assert.doesNotMatch(text, /<Fare>/);
  });

  test('shows descriptions as text, without their marks, and leads to the console', () => {
    const marked = [...page.querySelectorAll('main p, main li, main dd')].filter((one) =>
      /`|\*\*/.test(one.textContent ?? ''),
    );
    assert.deepEqual(
      marked.map((one) => one.textContent?.trim().slice(0, 100)),
      [],
    );
    assert.ok(page.querySelector('nav a[href="/console"]'));
  });

  test('leads nowhere that is not there', () => {
    for (const link of page.querySelectorAll('a[href^="#"]')) {
      const id = link.getAttribute('href')?.slice(1) ?? '';
      assert.ok(page.getElementById(id), `#${id}`);
    }
  });
});
