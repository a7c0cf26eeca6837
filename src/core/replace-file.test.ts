import assert from 'node:assert/strict';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { replaceFile } from './replace-file.ts';

test('a file is replaced with its mode, behind a link too, and a new one is private', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-replace-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'kept'));
  const [path, link] = [join(folder, 'kept', 'a.yaml'), join(folder, 'link.yaml')];
  writeFileSync(path, 'old', { mode: 0o640 });
  symlinkSync(path, link);
  await replaceFile(link, 'new');
  assert.ok(lstatSync(link).isSymbolicLink());
  assert.equal(readFileSync(path, 'utf8'), 'new');
  assert.equal(statSync(path).mode & 0o777, 0o640);
  await replaceFile(link, 'secret', 0o600);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const fresh = join(folder, 'fresh.yaml');
  await replaceFile(fresh, 'first');
  assert.equal(statSync(fresh).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(folder).sort(), ['fresh.yaml', 'kept', 'link.yaml']);
});
