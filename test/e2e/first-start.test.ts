/** The first start on a machine: what it makes is for its user alone, and what stops it is named. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { PROGRAM } from '../app/program.ts';
import { startFarebox } from './farebox-process.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';

const YAML = 'listen: { port: 0 }\ndiscovery: { enabled: false }\nembedded: { enabled: false }\n';
test('only the user of the server can read the data folder, and the printed link signs the owner in once', async () => {
  const farebox = await startFarebox({ yaml: YAML });
  try {
    const token = /\/console\/sign-in#([\w-]{43})\n/.exec(farebox.output())?.[1];
    const signIn = () =>
      fetch(`${farebox.url}/console/session/link`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ token }),
      });
    const first = await signIn();
    assert.equal(first.status, 200);
    const { session } = (await first.json()) as { session: Record<string, unknown> };
    assert.deepEqual([session['isOperator'], session['keyKind']], [true, 'ADMIN']);
    assert.equal((await signIn()).status, 401);
    const data = join(farebox.folder, 'data');
    const entries = readdirSync(data, { recursive: true, encoding: 'utf8' });
    assert.ok(entries.includes('farebox.db') && entries.includes('farebox.db-wal'));
    for (const name of ['.', ...entries]) {
      const { mode } = statSync(join(data, name));
      assert.equal(mode & 0o077, 0, `${name} has the mode ${(mode & 0o777).toString(8)}`);
    }
  } finally {
    await farebox.stop();
    rmSync(farebox.folder, { recursive: true, force: true });
  }
});

test('a server that receives a signal before its local engines have started shuts down', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-early-'));
  writeFileSync(join(folder, 'farebox.yaml'), 'listen: { host: 127.0.0.1, port: 0 }\n');
  // As soon as it listens.
  const code = `const { Server } = await import('node:net');
    const { emit } = Server.prototype;
    Server.prototype.emit = function (name, ...values) {
      if (name === 'listening') setTimeout(() => process.kill(process.pid, 'SIGTERM'), 100);
      return emit.call(this, name, ...values);
    };`;
  const child = endWithUs(
    spawn(process.execPath, [PROGRAM, 'serve'], {
      cwd: folder,
      env: childEnvironment({
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}`,
      }),
      stdio: 'ignore',
    }),
  );
  const [exitCode] = (await once(child, 'exit')) as [number | null];
  assert.equal(exitCode, 0);
  rmSync(folder, { recursive: true, force: true });
});

test('a server that receives a signal while it prints the banner shuts down', async () => {
  const code = `const { stdout } = process;
    const write = stdout.write.bind(stdout);
    stdout.write = (text) => {
      if (text.includes('listens on')) process.kill(process.pid, 'SIGTERM');
      return write(text);
    };`;
  const nodeOptions = `--import=data:text/javascript,${encodeURIComponent(code)}`;
  const farebox = await startFarebox({ yaml: YAML, nodeOptions, uncheckedResponses: true });
  try {
    assert.equal(await farebox.stop(), 0);
  } finally {
    rmSync(farebox.folder, { recursive: true, force: true });
  }
});

for (const [name, folder, says] of [
  [
    'a folder where none can be',
    '/proc/nope',
    /folder \/proc\S* cannot be used: no folder can be created there; .*--data/,
  ],
  ['a file in the place of the folder', 'taken', /folder \S*taken\S* cannot be used: it is a file/],
] as const) {
  test(`${name} ends the start in words, at once`, async () => {
    const cwd = mkdtempSync(join(tmpdir(), 'farebox-start-'));
    writeFileSync(join(cwd, 'farebox.yaml'), YAML);
    writeFileSync(join(cwd, 'taken'), '');
    const child = endWithUs(
      spawn(process.execPath, [PROGRAM, 'serve'], {
        cwd,
        env: childEnvironment({ FAREBOX_DATA: folder }),
        timeout: 120_000,
      }),
    );
    let said = '';
    child.stderr.on('data', (data: Buffer) => (said += data.toString()));
    const code = await new Promise((resolve) => child.once('exit', resolve));
    rmSync(cwd, { recursive: true, force: true });
    assert.equal(code, 1);
    assert.match(said, says);
  });
}
