/** A checkout runs a build of its sources, as they are at each start. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../tidy/source-tree.ts';

/** Not literals in `MAIN`, because they are not imports of this file. */
const [WORD, DATA, LATER] = ['./word.ts', './data.json', './later.ts'];
const MAIN = `
import { word } from '${WORD}';
import data from '${DATA}' with { type: 'json' };
const { later } = await import('${LATER}');
const form = import.meta.filename.includes('builds') ? 'build' : 'source';
console.log(form, word, data.n, later, import.meta.url);
`;

describe('a checkout', () => {
  let root = '';
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'farebox-checkout-'));
    for (const folder of ['src', 'node_modules']) mkdirSync(join(root, folder));
    cpSync(join(ROOT, 'bin'), join(root, 'bin'), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules/esbuild'), join(root, 'node_modules/esbuild'));
    write('package.json', '{ "type": "module" }');
    write('package-lock.json', '{}');
    write('tsconfig.json', '{}');
    write('src/main.ts', MAIN);
    write('src/word.ts', `export const word: string = 'one';`);
    write('src/later.ts', `export const later: string = 'later';`);
    write('src/data.json', '{ "n": 1 }');
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  function write(path: string, text: string): void {
    writeFileSync(join(root, path), text);
  }

  /** Output of a start, without the URL of the main module. */
  function start(): string {
    const { stdout, stderr } = spawnSync(process.execPath, [join(root, 'bin/farebox.mjs')], {
      encoding: 'utf8',
    });
    return (stdout + stderr)
      .trim()
      .replace(` ${pathToFileURL(join(root, 'src/main.ts')).href}`, '');
  }

  function builds(): string[] {
    const folder = join(root, 'node_modules/.cache/farebox/builds');
    return existsSync(folder) ? readdirSync(folder) : [];
  }

  test('builds once, and each module keeps the URL of its source', () => {
    assert.equal(start(), 'build one 1 later');
    const first = builds();
    assert.equal(start(), 'build one 1 later');
    assert.deepEqual(builds(), first);
    assert.equal(first.length, 1);
  });

  test('runs a changed source even if its size and time are the same', () => {
    start();
    const path = join(root, 'src/word.ts');
    const { atime, mtime } = statSync(path);
    write('src/word.ts', `export const word: string = 'two';`);
    utimesSync(path, atime, mtime);
    assert.equal(start(), 'build two 1 later');
    write('src/data.json', '{ "n": 2 }');
    assert.equal(start(), 'build two 2 later');
    write('src/later.ts', `export const later: string = 'sooner';`);
    assert.equal(start(), 'build two 2 sooner');
  });

  test('contains the packages that each start loads, and imports the others', () => {
    for (const name of ['yaml', 'other']) {
      mkdirSync(join(root, 'node_modules', name));
      write(`node_modules/${name}/package.json`, '{ "main": "main.cjs" }');
      write(
        `node_modules/${name}/main.cjs`,
        `module.exports = require('node:path').sep + '${name}';`,
      );
    }
    const [yaml, other] = ['yaml', 'other'];
    write(
      'src/word.ts',
      `import yaml from '${yaml}';\nimport other from '${other}';\nexport const word = yaml + other;`,
    );
    assert.equal(start(), 'build /yaml/other 1 later');
    for (const name of ['yaml', 'other']) write(`node_modules/${name}/main.cjs`, '');
    assert.equal(start(), 'build /yaml[object Object] 1 later');
  });

  test('keeps five builds', () => {
    for (let n = 1; n <= 7; n += 1) {
      write('src/data.json', `{ "n": ${n} }`);
      assert.equal(start(), `build one ${n} later`);
    }
    assert.equal(builds().length, 5);
  });

  test('runs its source without esbuild, in a read-only folder, and if a source is invalid', () => {
    start();
    write('src/word.ts', `export const word: string = ;`);
    assert.match(start(), /word\.ts/);
    assert.equal(builds().length, 1);
    write('src/word.ts', `export const word: string = 'two';`);
    rmSync(join(root, 'node_modules/esbuild'));
    assert.equal(start(), 'source two 1 later');
    rmSync(join(root, 'node_modules'), { recursive: true });
    write('node_modules', 'a file');
    assert.equal(start(), 'source two 1 later');
  });
});
