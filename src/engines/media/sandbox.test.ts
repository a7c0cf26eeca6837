import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { systemClock } from '../../core/clock.ts';
import { type SandboxLimits, type SandboxOutcome, runSandboxed } from './sandbox.ts';
import { until } from '../../../test/support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'sandbox-'));
after(() => rmSync(folder, { recursive: true }));

const LIMITS: SandboxLimits = {
  timeoutMs: 10_000,
  cpuSeconds: 10,
  memoryBytes: 500_000_000,
  fileBytes: 10_000_000,
};
const calm = new AbortController().signal;

async function shell(
  script: string,
  limits: Partial<SandboxLimits> = {},
  signal = calm,
): Promise<{ outcome: SandboxOutcome; lines: string[] }> {
  const lines: string[] = [];
  const outcome = await runSandboxed({
    command: '/bin/sh',
    args: ['-c', script],
    limits: { ...LIMITS, ...limits },
    signal,
    clock: systemClock(),
    onLine: (line) => lines.push(line),
  });
  return { outcome, lines };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    // ESRCH: it is gone.
    return false;
  }
}

async function gone(pid: number): Promise<void> {
  await until(() => !isAlive(pid), 'the end of the program');
}

test('a program ends with its code, its lines and its last words', async () => {
  const { outcome, lines } = await shell('echo one; echo two; echo why >&2; exit 3');
  assert.deepEqual(lines, ['one', 'two']);
  assert.deepEqual(outcome, { ended: 'exit', code: 3, errorText: 'why\n' });
});

test('a program that is not there is missing', async () => {
  const outcome = await runSandboxed({
    command: '/nowhere/program',
    args: [],
    limits: LIMITS,
    signal: calm,
    clock: systemClock(),
  });
  assert.deepEqual(outcome, { ended: 'missing' });
});

test('time, processor time and memory each end it, with whatever it started', async () => {
  const slow = await shell('sleep 60 & echo $!; wait', { timeoutMs: 200 });
  assert.equal(slow.outcome.ended, 'time');
  await gone(Number(slow.lines[0]));
  const busy = await shell('while :; do :; done', { cpuSeconds: 1 });
  assert.ok(['time', 'crash'].includes(busy.outcome.ended));
  const large = await shell('sleep 60', { memoryBytes: 1 });
  assert.equal(large.outcome.ended, 'memory');
});

test('a file does not grow beyond its bound', async () => {
  const path = join(folder, 'large');
  await shell(`head -c 5000000 /dev/zero > ${path}`, { fileBytes: 1_000_000 });
  assert.ok(statSync(path).size <= 1_100_000);
});

test('it gets no input and no environment', async () => {
  const { lines } = await shell('read line; echo "got:$line"; echo "home:$HOME"');
  assert.deepEqual(lines, ['got:', 'home:']);
});

test('it works behind the server that runs it', async () => {
  const { lines } = await shell('sleep 0.1; nice');
  assert.ok(Number(lines[0]) >= 10, String(lines));
});

test('an abort ends it and rejects', async () => {
  const aborter = new AbortController();
  const work = shell('sleep 60', {}, aborter.signal);
  aborter.abort();
  await assert.rejects(work, { name: 'AbortError' });
});

test('it does not outlive the process that runs it', async () => {
  const path = join(folder, 'parent.mjs');
  writeFileSync(
    path,
    `import { runSandboxed } from '${new URL('./sandbox.ts', import.meta.url).href}';
     import { systemClock } from '${new URL('../../core/clock.ts', import.meta.url).href}';
     await runSandboxed({
       command: '/bin/sh',
       args: ['-c', 'echo $$; exec sleep 60'],
       limits: ${JSON.stringify({ ...LIMITS, timeoutMs: 60_000 })},
       signal: new AbortController().signal,
       clock: systemClock(),
       onLine: (line) => process.send(Number(line)),
     });`,
  );
  const parent = fork(path, [], { env: {}, execArgv: [] });
  const [pid] = (await once(parent, 'message')) as [number];
  assert.ok(isAlive(pid));
  parent.kill('SIGKILL');
  await gone(pid);
});
