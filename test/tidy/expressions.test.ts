/**
 * Regular expressions that read external text take linear time. With a slower one, a caller, a model
 * server, a node or a web page could block the event loop.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { expressionsOf, timeProblem } from './expressions.ts';
import { isTestFile } from './layers.ts';
import { readSources } from './source-tree.ts';

/** Folders that read no external text. */
const OWN_TEXT: Readonly<Record<string, string>> = {
  'src/cli/': 'arguments and files of the operator',
  'src/config/': 'the configuration of the operator',
  'src/console/': 'runs in the browser of its user, who only delays itself',
  'src/db/': 'our own statements, and the connection string of the operator',
};

/** Expressions that are slower, or too large to decide about, each with the maximum length of its text. */
const A_LINE = '2,000 characters of a message of an engine';
const EXCEPTIONS: Readonly<Record<string, string>> = {
  [String.raw`/\b(?:sk|pk|rk|gsk|xai|key|whsec|ghp|hf|AKIA|AIza)[-_][\w-]{8,}/g`]: A_LINE,
  [String.raw`/\beyJ[\w-]{10,}\.[\w-]{5,}\.[\w-]*/g`]: A_LINE,
  [String.raw`/\bSVC_[A-Z]+_KEY_\w+/g`]: A_LINE,
  [String.raw`/\b[A-Z]{2,}_(?:INFERENCE|ADMIN)_KEY_\w+/g`]: A_LINE,
  [String.raw`/\b(bearer|basic)\s+[\w.~+/=-]{6,}/gi`]: A_LINE,
  [String.raw`/\b(api[-_ ]?key|token|secret|password|authorization)\b["']?\s*[:=]\s*["']?[^\s"',;&]{6,}/gi`]:
    A_LINE,
  [String.raw`/\b([a-z][a-z\d+.-]{1,20}):\/\/(?:[^\s/@"'<>]*@)?([^\s/?#"'<>]+)[^\s"'<>)]*/gi`]:
    A_LINE,
};

/** Files that build an expression from a string, each with the reason why its time is bounded. */
const MADE: Readonly<Record<string, string>> = {
  'src/json/json-spans.ts': 'sticky, for batches of at most `PLAIN_BATCH_BYTES`',
  'src/observability/log-writer.ts': 'one class, without repetition',
  'src/observability/exporter.ts': 'the endpoint that the operator has set',
  'src/chat/upstream/responses/passed-response.ts':
    'an escaped id of the engine, without repetition',
  'src/engines/error-meanings.ts': 'words of our own table at the start of a text',
  'src/engines/embedded/package-fetch.ts': 'names of files in packages with a known digest',
  'src/http/session-cookie.ts': 'between the semicolons of a cookie, each character is read once',
};

const checked = [...readSources(['src', 'engines']).values()]
  .filter(({ path }) => !isTestFile(path))
  .filter(({ path }) => !Object.keys(OWN_TEXT).some((folder) => path.startsWith(folder)))
  .map(({ path, text }) => ({ path, ...expressionsOf(path, text) }));

test('every regular expression takes time linear in its text', () => {
  const all = checked.flatMap(({ literals }) => literals);
  assert.ok(all.length > 200, 'the expressions are found');
  const different = Map.groupBy(all, ({ pattern, flags }) => `/${pattern}/${flags}`);
  const problems = [...different].flatMap(([text, [one, ...others]]) => {
    const problem = one === undefined || EXCEPTIONS[text] ? undefined : timeProblem(one);
    return problem === undefined ? [] : [problem, ...others.map(({ place }) => place)];
  });
  assert.deepEqual(problems, []);
  const unused = Object.keys(EXCEPTIONS).filter((text) => !different.has(text));
  assert.deepEqual(unused, []);
});

test('only listed files build a regular expression from a string', () => {
  const made = checked.filter(({ made: places }) => places.length > 0);
  assert.deepEqual(made.map(({ path }) => path).toSorted(), Object.keys(MADE).toSorted());
});

describe('`timeProblem`', () => {
  const literalOf = (text: string) => {
    const [found] = expressionsOf('a.ts', `const x = ${text};`).literals;
    assert.ok(found !== undefined);
    return found;
  };

  for (const text of [
    String.raw`/(^|[._])[a-z_]*_urls?(\.\d+)?$/`,
    String.raw`/[ \t]+\n/g`,
    '/^(?:a|a)*$/',
    '/^(?:a?){40}$/',
    '/a+$/',
  ]) {
    test(`reports ${text}`, () => {
      assert.match(timeProblem(literalOf(text)) ?? '', /^a\.ts:1: .*(?:polynomial|exponential)/);
    });
  }

  for (const text of [
    '/^a+$/',
    String.raw`/\b[a-z]{1,64}-(?:one|two)\b/i`,
    String.raw`/"[^"]*(?:"|$)/g`,
  ]) {
    test(`accepts ${text}`, () => {
      assert.equal(timeProblem(literalOf(text)), undefined);
    });
  }

  test('`expressionsOf` finds literals and `RegExp` calls in every place', () => {
    const text =
      "f(/a/g, `${/b/.test('/c/')}`); // /d/\nconst e = new RegExp('f'), g = RegExp(`h`);";
    const { literals, made } = expressionsOf('a.ts', text);
    assert.deepEqual(
      literals.map(({ pattern, flags }) => pattern + flags),
      ['ag', 'b'],
    );
    assert.deepEqual(made, ['a.ts:2', 'a.ts:2']);
  });
});
