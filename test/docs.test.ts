/**
 * The documents match the code: generated pages are current, links lead to existing headings, the
 * changelog keeps its form, and texts of the error catalogue follow its rules.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { PAGES } from '../scripts/reference/pages.ts';
import { METRICS } from '../src/observability/metric-list.ts';
import { formatProblem, loadConfig } from '../src/config/config.ts';
import { FAULTS } from '../src/core/faults.ts';
import { TEST_CERTIFICATE, TEST_KEY } from './support/test-certificate.ts';
import { ROOT, filesBelow, readText } from './tidy/source-tree.ts';

/** The headings of Keep a Changelog. */
const CHANGELOG_HEADS = ['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security'];

/** A valid value for secrets in the examples of pages. */
const KEY = `0x${'1'.repeat(64)}`;
/** The first public key of RFC 8032 as a Solana address. */
const WALLET = 'FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z';

const pages = filesBelow('').filter((path) => path.endsWith('.md'));

for (const [path, page] of Object.entries(PAGES)) {
  test(`${path} is current`, () => {
    assert.equal(readText(path), page(), 'Run node scripts/write-reference.ts');
  });
}

test('every metric on a page exists, and the page of metrics lists them all', () => {
  const names: readonly string[] = Object.values(METRICS).map(({ name }) => name);
  const told = pages.flatMap((path) =>
    [...readText(path).matchAll(/`((?:farebox|process)_[a-z_]+)`/g)].map(([, name = '']) => name),
  );
  assert.deepEqual(
    told.filter((name) => !names.includes(name)),
    [],
  );
  const page = readText('docs/reference/metrics.md');
  const rows = [...page.matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, name]) => name);
  assert.deepEqual(rows, names);
});

/** The form of an Ed25519 key. */
const CDP_SECRET = Buffer.alloc(64).toString('base64');

for (const [path, text] of configurations()) {
  test(`the configuration that begins "${text.split('\n')[0]}" in ${path} is taken`, async () => {
    const loaded = await loadConfig({
      env: Object.fromEntries(
        [...text.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => [
          name,
          name === 'CDP_API_KEY_SECRET' ? CDP_SECRET : KEY,
        ]),
      ),
      cwd: ROOT,
      readFile: async (path) =>
        path.endsWith('.pem')
          ? `${TEST_CERTIFICATE}\n${TEST_KEY}`
          : text
              .replaceAll("'0x…'", `'0x${'1'.repeat(40)}'`)
              .replaceAll("'…'", `'${WALLET}'`)
              .replaceAll('https://…', 'https://node.example'),
    });
    assert.deepEqual(loaded.ok ? [] : loaded.problems.map(formatProblem), []);
  });
}

test('the error catalogue is ordered by status, and its texts follow the rules', () => {
  const statuses = Object.values(FAULTS).map(({ status }) => status);
  assert.deepEqual(
    statuses,
    statuses.toSorted((a, b) => a - b),
  );
  for (const [code, { message, remedy }] of Object.entries(FAULTS)) {
    assert.match(message, /^[A-Z].*[^.]$/, `${code}: capital letter, no full stop`);
    assert.match(remedy, /^[A-Z].*\.$/, `${code}: the remedy is a sentence`);
    assert.doesNotMatch(message + remedy, /[|\n]/, `${code}: breaks the table`);
  }
});

test('every relative link of a page leads to a file, and to a heading when it names one', () => {
  const broken = pages.flatMap((path) =>
    linksOf(readText(path)).flatMap((link) => {
      const [target = '', fragment] = link.split('#');
      const file = target === '' ? path : join(dirname(path), target);
      if (!existsSync(join(ROOT, file))) return [`${path}: ${link}`];
      const isHeading = fragment === undefined || headingsOf(readText(file)).includes(fragment);
      return isHeading ? [] : [`${path}: ${link} (no such heading)`];
    }),
  );
  assert.deepEqual(broken, []);
});

test('every decision has its number once, and every page of docs/ is linked from another', () => {
  const decisions = pages.filter((path) => path.startsWith('docs/decisions/'));
  const numbers = decisions.map((path) => /\/(\d{4})-[a-z-]+\.md$/.exec(path)?.[1]);
  assert.equal(new Set(numbers).size, decisions.length);
  const linked = new Set(
    pages.flatMap((path) =>
      linksOf(readText(path)).map((link) => join(dirname(path), link.split('#')[0] ?? '')),
    ),
  );
  const alone = pages.filter(
    (path) => path.startsWith('docs/') && !linked.has(path) && !decisions.includes(path),
  );
  assert.deepEqual(alone, []);
});

test('the changelog has a dated section for the version of the package, newest first', () => {
  const text = readText('CHANGELOG.md');
  const releases = [...text.matchAll(/^## (.+)$/gm)].map(([, title]) => title ?? '');
  assert.ok(releases.length > 0);
  const dates = releases.map((title) => {
    assert.match(title, /^\[(?:\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}|Unreleased\])$/);
    return / - (.+)$/.exec(title)?.[1] ?? '9999';
  });
  assert.deepEqual(dates, dates.toSorted().toReversed());
  for (const [, head] of text.matchAll(/^### (.+)$/gm)) {
    assert.ok(CHANGELOG_HEADS.includes(head ?? ''), `${head}`);
  }
  const { version } = JSON.parse(readText('package.json')) as { version: string };
  assert.ok(releases.some((title) => title.startsWith(`[${version}] - `)));
});

test('the entry pages keep their length', () => {
  assert.ok(readText('README.md').split('\n').length <= 95);
  assert.ok(readText('AGENTS.md').split('\n').length <= 121);
});

/** YAML examples of the pages; files of other programs have their name in the first line. */
function configurations(): [path: string, text: string][] {
  return pages.flatMap((path) =>
    [...readText(path).matchAll(/```yaml\n([\s\S]*?)```/g)]
      .map(([, text = '']): [string, string] => [path, text])
      .filter(([, text]) => !/^# \S+ of /.test(text)),
  );
}

/** Relative targets of Markdown links outside of code. */
function linksOf(text: string): string[] {
  const prose = text.replaceAll(/```[\s\S]*?```|`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target ?? '')
    .filter((target) => !/^(?:https?:|mailto:)/.test(target));
}

/** Fragments that GitHub generates for the headings. */
function headingsOf(text: string): string[] {
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    (title ?? '')
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}
