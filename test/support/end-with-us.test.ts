import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { endWithUs } from './end-with-us.ts';

const ENTRY = fileURLToPath(new URL('./end-with-us-process.ts', import.meta.url));
const PATIENCE_MS = 60_000;

/** Command lines of running processes that contain one of the words. */
function running(words: readonly string[]): string[] {
  const lines = execFileSync('ps', ['-A', '-o', 'command='], { encoding: 'utf8' }).split('\n');
  return lines.filter((line) => words.some((word) => line.includes(word)));
}

test('child processes and folders of a killed test process are removed', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-killed-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  // PostgreSQL needs access as another user if root runs the tests.
  chmodSync(folder, 0o755);
  const { TEST_POSTGRES_FOLDER: _given, ...environment } = process.env;
  const chainId = String(1_000_000_000 + process.pid);
  const child = endWithUs(
    spawn(process.execPath, [ENTRY, chainId], {
      env: { ...environment, TMPDIR: folder },
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
  const exited = once(child, 'exit');
  await Promise.race([once(child.stdout, 'data'), exited]);
  const marks = [`${folder}/`, `--chain-id ${chainId}`];
  const names = running(marks);
  assert.ok(names.some((words) => words.includes('anvil')));
  assert.ok(names.some((words) => words.includes('postgres')));
  child.kill('SIGKILL');
  await exited;
  const untilMs = performance.now() + PATIENCE_MS;
  const isLeft = (): boolean => running(marks).length + readdirSync(folder).length > 0;
  while (isLeft() && performance.now() < untilMs) await sleep(50);
  assert.deepEqual(running(marks), []);
  assert.deepEqual(readdirSync(folder), []);
});
