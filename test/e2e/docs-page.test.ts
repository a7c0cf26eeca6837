/** The page at `/docs`: whole, correct, and with nothing from elsewhere. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { parseHTML } from 'linkedom';
import { FAULTS } from '../../src/core/faults.ts';
import type { TryFacts } from '../../src/http/docs/try-facts.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { ROOT } from '../tidy/source-tree.ts';

const run = promisify(execFile);
const TSC = join(ROOT, 'node_modules/.bin/tsc');

type Page = ReturnType<typeof parseHTML>['document'];
type Section = NonNullable<ReturnType<Page['getElementById']>>;

describe('/docs', () => {
  let farebox: TestApp;
  let answer: Response;
  let text: string;
  let page: Page;
  /** By their ids: the parser looks through the whole page for each. */
  let sections: Map<string, Section>;

  before(async () => {
    farebox = await startTestApp({ yaml: 'service: { title: "Rate & <Fare>", name: fare }' });
    answer = await fetch(`${new URL(farebox.url).origin}/docs`);
    text = await answer.text();
    page = parseHTML(text).document;
    sections = new Map([...page.querySelectorAll('[id]')].map((one) => [one.id, one]));
  });
  after(() => farebox.stop());

  test('is one page that loads a script and a style of this server alone', async () => {
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('content-type'), 'text/html; charset=utf-8');
    assert.equal(page.querySelectorAll('img, iframe').length, 0);
    assert.equal(page.querySelectorAll('[style], [onclick], style').length, 0);
    assert.equal(page.querySelectorAll('script:not([src], [type="application/json"])').length, 0);
    const { origin } = new URL(farebox.url);
    for (const [selector, name, type] of [
      ['script[src]', 'src', 'text/javascript'],
      ['link[rel=stylesheet]', 'href', 'text/css'],
      ['link[rel=icon]', 'href', 'image/svg+xml'],
    ] as const) {
      const [only, ...others] = page.querySelectorAll(selector);
      assert.ok(only && others.length === 0, selector);
      const file = await fetch(new URL(only.getAttribute(name) ?? '', origin));
      assert.equal(file.status, 200);
      assert.ok(file.headers.get('content-type')?.startsWith(type), type);
      assert.doesNotMatch(await file.text(), /https?:\/\/(?!www\.w3\.org)|@import|url\(/);
    }
  });

  test('runs nothing that is not a file of this server', () => {
    const policy = answer.headers.get('content-security-policy') ?? '';
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self'; /);
    assert.match(policy, /connect-src 'self'; .*require-trusted-types-for 'script'$/);
    assert.doesNotMatch(policy, /unsafe|\*|http/);
  });

  test('shows every operation with its code for the real address', () => {
    const linked = new Set([...page.querySelectorAll('a')].map((one) => one.getAttribute('href')));
    for (const [path, item] of Object.entries(farebox.app.openApi().paths)) {
      for (const operation of Object.values(item)) {
        if (operation.operationId === undefined) continue;
        const section = sections.get(operation.operationId);
        assert.ok(section, `${path} is missing`);
        const [curl, python, script, ...others] = section.querySelectorAll('.code pre');
        assert.match(curl?.textContent ?? '', /^curl (?:-N )?'http:\/\//);
        assert.match(python?.textContent ?? '', /^import /);
        assert.match(script?.textContent ?? '', /await fetch\('http:|new OpenAI\(\{/);
        assert.equal(others.length, 0);
        assert.ok(linked.has(`#${operation.operationId}`), `${path} is not in the menu`);
      }
    }
    assert.ok(text.includes(farebox.url.replace('http://', '')));
    assert.ok(!text.includes(':0/api'));
    assert.ok(text.includes('x-fare-error-format') && !text.includes('x-svc-'));
  });

  test('its TypeScript fits the types of the OpenAI SDK and of Node', async () => {
    const folder = mkdtempSync(join(ROOT, 'test', 'samples-'));
    try {
      for (const code of page.querySelectorAll('.code pre[data-language=TypeScript]')) {
        const source = `${code.textContent?.trim() ?? ''}\nexport {};\n`;
        writeFileSync(join(folder, `${code.id}.ts`), source);
      }
      const options = { noPropertyAccessFromIndexSignature: false };
      const settings = { extends: '../../tsconfig.json', compilerOptions: options, include: ['.'] };
      writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(settings));
      const { stdout } = await run(TSC, ['-p', folder]).catch((error) => error);
      assert.equal(stdout, '');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('says of each call what it needs and what it does', () => {
    const factsOf = (id: string): TryFacts =>
      JSON.parse(page.querySelector(`#${id} .try script`)?.textContent ?? '');
    const chat = factsOf('postChatCompletions');
    assert.equal(chat.path, '/api/v1/chat/completions');
    assert.deepEqual([chat.credential, chat.isPaid, chat.isDestructive], ['key', true, false]);
    assert.equal(JSON.parse(chat.bodies[0]?.text ?? '').model, 'default');
    const revoke = factsOf('deleteApiKeys');
    assert.deepEqual(
      [revoke.credential, revoke.isPaid, revoke.isDestructive],
      ['admin', false, true],
    );
    assert.equal(factsOf('postVideoCancel').isDestructive, true);
    assert.equal(factsOf('postX402TopUp').credential, 'wallet');
    assert.deepEqual(
      [factsOf('getModels').credential, factsOf('getUsage').isPaid],
      ['none', false],
    );
    const speech = factsOf('postAudioTranscriptions').bodies[0]?.fields ?? [];
    assert.deepEqual(
      speech.slice(0, 2).map(({ name, isFile, required }) => [name, isFile, required]),
      [
        ['file', true, true],
        ['model', false, false],
      ],
    );
    // Pages are opened, not called.
    assert.equal(page.querySelector('#getDocs .try'), null);
  });

  test('explains every error', () => {
    for (const code of Object.keys(FAULTS)) {
      assert.ok(text.includes(`<code>${code}</code>`), code);
      assert.ok(sections.get(`error-${code}`), code);
    }
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
      assert.ok(sections.get(id), `#${id}`);
    }
  });
});
