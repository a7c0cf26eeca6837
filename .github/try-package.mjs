/**
 * Installs a tarball of the package in an empty folder, starts the server, sends the chat request
 * that the start prints, audits the ledger and stops the server. Needs Node 24.12 or newer.
 * Usage: node .github/try-package.mjs farebox-1.0.0.tgz
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const START_LIMIT_MS = 120_000;
const PORT = Number(process.env.PORT ?? 8402);

const tarball = resolve(process.argv[2] ?? '');
const folder = mkdtempSync(join(tmpdir(), 'farebox-'));
const shell = process.platform === 'win32';
run('npm', ['init', '--yes']);
run('npm', ['install', tarball]);

const program = join(folder, 'node_modules/farebox/bin/farebox.mjs');
const server = spawn(process.execPath, [program, 'serve'], {
  cwd: folder,
  stdio: ['ignore', 'pipe', 'inherit'],
  env: { ...process.env, PORT: String(PORT) },
});
let output = '';
server.stdout.on('data', (bytes) => {
  process.stdout.write(bytes);
  output += bytes;
});

const deadline = Date.now() + START_LIMIT_MS;
let response;
while (Date.now() < deadline && response?.status !== 200) {
  await pause(1_000);
  const key = /SVC_(?:INFERENCE|ADMIN)_KEY_[\w-]+/.exec(output)?.[0];
  if (key !== undefined) response = await chat(key).catch(() => undefined);
}
if (response?.status !== 200) throw new Error(`No completion: status ${response?.status}`);
console.log(await response.text());
run(process.execPath, [program, 'audit']);
const ended = once(server, 'exit');
server.kill();
await ended;

function chat(key) {
  return fetch(`http://127.0.0.1:${PORT}/api/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: '{"model":"default","messages":[{"role":"user","content":"Hello"}]}',
  });
}

function run(command, args) {
  const isNpm = command === 'npm';
  const { status } = spawnSync(command, args, {
    cwd: folder,
    stdio: 'inherit',
    shell: shell && isNpm,
  });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}`);
}
