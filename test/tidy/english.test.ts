/** The check of the language: every text of the tree, and the check itself. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RULES, findingsIn, formatFinding } from './english.ts';
import { isTestFile } from './layers.ts';
import { filesBelow, readText } from './source-tree.ts';

/** Texts that are not prose of this project, or are checked at their source. */
const UNCHECKED: Readonly<Record<string, string>> = {
  'assets/': 'documents and licenses of others',
  'docs/reference/': 'generated from messages of the source',
  'test/fixtures/': 'documents of others',
  'test/tidy/english': 'the list of words',
};

const PROMPT =
  'prompts are measured with their wording: a change moves token counts and model behaviour';

/** Words that a file may use, each with the reason. */
const EXCEPTIONS: readonly {
  readonly path: string;
  readonly words: RegExp;
  readonly reason: string;
}[] = [
  { path: 'engines/llama/chat-template.ts', words: /^answer$/, reason: PROMPT },
  { path: 'src/chat/web/prompts.ts', words: /^(?:What|Answer)$/, reason: PROMPT },
  { path: 'src/core/untrusted-text.ts', words: /^stand$/, reason: PROMPT },
  {
    path: 'src/models/codex-models.ts',
    words: /^(?:answer|asked|look at|mend|nobody|stand)$/,
    reason: PROMPT,
  },
];

test('comments, messages, test names and pages follow the rules of the language', () => {
  const used = new Set<string>();
  const findings = filesBelow('')
    .filter((path) => !Object.keys(UNCHECKED).some((start) => path.startsWith(start)))
    .flatMap((path) => findingsIn(path, readText(path), isTestFile(path)))
    .filter(({ path, words }) => {
      const exception = EXCEPTIONS.find((one) => one.path === path && one.words.test(words));
      if (exception !== undefined) used.add(exception.path);
      return exception === undefined;
    });
  assert.equal(
    findings.length,
    0,
    `Write it plainly:\n  ${findings.map(formatFinding).join('\n  ')}`,
  );
  const unused = EXCEPTIONS.filter(({ path }) => !used.has(path));
  assert.deepEqual(unused, []);
});

describe('the check of the language', () => {
  const wordsOf = (path: string, text: string): string[] =>
    findingsIn(path, text, isTestFile(path)).map(({ line, words }) => `${line} ${words}`);

  test('finds the example of every rule in each kind of text', () => {
    for (const { example, at } of RULES) {
      const sources = {
        'src/a.ts': [
          `/** ${example} */`,
          `// ${example}`,
          `f("${example}");`,
          `f(\`${example} \${x}\`);`,
        ],
        'src/a.tsx': [`const a = <p>${example}</p>;`],
        'src/a.test.ts': [`test("${example}", () => {});`],
        'src/a.css': [`/* ${example} */`],
        'deploy/a.yaml': [`# ${example}`],
        'docs/a.md': at === 'start' ? [] : [`# A\n\n${example}\n`],
      };
      for (const [path, texts] of Object.entries(sources)) {
        for (const text of texts) assert.notDeepEqual(wordsOf(path, text), [], `${path}: ${text}`);
      }
    }
  });

  test('ignores code, values of one word, strings of tests, code blocks and link targets', () => {
    const texts = {
      'src/a.ts':
        "const answer = 'refusal'; /** Sets `told` and `Who`. */ /* A regular expression: */ x(/who asked/);",
      'src/a.test.ts': "f('who asked');",
      'docs/a.md': '# A\n\n`asked` [image](film.md)\n\n```sh\n# told\n```\n',
      'deploy/a.yaml': 'answer: told a#asked\n',
    };
    for (const [path, text] of Object.entries(texts))
      assert.deepEqual(wordsOf(path, text), [], path);
  });

  test('allows an opening in a question, in the middle of a text and in a heading', () => {
    const texts = {
      'src/a.ts':
        '// Returns the price. Its unit is USD.\nf("What is it?");\n// Reads from a file.\n// Of many.',
      'docs/a.md':
        '# What is charged\n\n| What is charged | unit |\n\nThe caller decides:\n\n- What to do?\n',
    };
    for (const [path, text] of Object.entries(texts))
      assert.deepEqual(wordsOf(path, text), [], path);
  });

  test('reads a comment of several lines as one text, and counts lines of the file', () => {
    const text =
      "f();\n/**\n * Reads it in one\n * piece. Who calls\n */\n// It is the last\n// word.\ng('a\\n' + `${x} is told`);";
    assert.deepEqual(wordsOf('src/a.ts', text), [
      '3 in one piece',
      '4 Who',
      '6 last word',
      '8 told',
    ]);
  });

  test('prints the place, the words and what to write instead', () => {
    const [finding] = findingsIn('src/a.ts', '\n// The caller hears 410.', false);
    assert.ok(finding !== undefined);
    assert.equal(
      formatFinding(finding),
      'src/a.ts:2: "hears": instead, write "receives", "is notified"',
    );
  });
});
