/** The subjects of the commits since the rules of the language, where the history is there. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { subjectProblem } from './commits.ts';
import { ROOT } from './source-tree.ts';

/** The last commit with an older form of subject. */
const BASE = '23a38cce';

function git(...args: string[]): string | undefined {
  const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

test('every commit since the base has a subject "area: summary"', (t) => {
  // In a package, a shallow clone or an imported tree the base is missing: there is nothing to check.
  if (git('merge-base', '--is-ancestor', BASE, 'HEAD') === undefined) {
    t.diagnostic(`not checked: this tree has no git history that contains the commit ${BASE}`);
    return;
  }
  const commits = git('log', '--no-merges', '--format=%h %s', `${BASE}..HEAD`);
  assert.ok(commits !== undefined, 'git log failed');
  const problems = commits
    .split('\n')
    .filter(Boolean)
    .flatMap((line) => {
      const [, hash = '', subject = ''] = /^(\S+) (.*)$/.exec(line) ?? [];
      const problem = subjectProblem(subject);
      return problem === undefined ? [] : [`${hash} "${subject}" ${problem}`];
    });
  assert.deepEqual(problems, []);
});

describe('the check of a subject', () => {
  for (const subject of [
    'billing: release the hold when the engine returns 503',
    'src/http: OpenAPI descriptions state units',
    'docs, deploy: PostgreSQL 18 is the default',
    'rpc: `eth_call` costs 20 credits',
  ]) {
    test(`passes "${subject}"`, () => assert.equal(subjectProblem(subject), undefined));
  }

  for (const [subject, problem] of [
    ['Release the hold', /not "area: summary"/],
    ['Billing: release the hold', /lower-case area/],
    ['billing: Release the hold', /write "release"/],
    ['billing: release the hold.', /full stop/],
    [`billing: ${'release '.repeat(9)}`.trim(), /80 characters; use at most 72/],
  ] as const) {
    test(`rejects "${subject}"`, () => assert.match(subjectProblem(subject) ?? '', problem));
  }
});
