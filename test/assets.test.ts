/** Committed binaries match the SHA-256 of their README. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from './tidy/source-tree.ts';

for (const folder of ['assets', 'test/fixtures/engines']) {
  test(`the files of ${folder} have the checksums of its README`, () => {
    const readme = readFileSync(join(ROOT, folder, 'README.md'), 'utf8');
    const rows = [...readme.matchAll(/^\| `([^`]+)`.*`([0-9a-f]{64})`/gm)];
    const named = Object.fromEntries(rows.map(([, name, sum]) => [name, sum]));
    const found = readdirSync(join(ROOT, folder)).filter((name) => name !== 'README.md');
    const sums = found.map((name) => {
      const bytes = readFileSync(join(ROOT, folder, name));
      return [name, createHash('sha256').update(bytes).digest('hex')];
    });
    assert.deepEqual(named, Object.fromEntries(sums));
  });
}
