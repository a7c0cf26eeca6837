import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { systemClock } from '../../core/clock.ts';
import { RemoteSandbox } from './remote-sandbox.ts';
import { type SandboxLimits, type SandboxOutcome, runSandboxed } from './sandbox.ts';
import { until } from '../../../test/support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'sandbox-'));
const remote = new RemoteSandbox();
after(async () => {
  await remote.close();
  rmSync(folder, { recursive: true });
});

const LIMITS: SandboxLimits = {
  timeoutMs: 10_000,
  cpuSeconds: 10,
  memoryBytes: 500_000_000,
  fileBytes: 10_000_000,
};
const noAbort = new AbortController().signal;

interface ShellOptions extends Partial<SandboxLimits> {
  readonly run?: typeof runSandboxed;
  readonly signal?: AbortSignal;
  readonly onLine?: (line: string) => void;
}

async function shell(
  script: string,
  { run = runSandboxed, signal = noAbort, onLine, ...limits }: ShellOptions = {},
): Promise<{ outcome: SandboxOutcome; lines: string[] }> {
  const lines: string[] = [];
  const outcome = await run({
    command: '/bin/sh',
    args: ['-c', script],
    limits: { ...LIMITS, ...limits },
    signal,
    clock: systemClock(),
    onLine: (line) => {
      lines.push(line);
      onLine?.(line);
    },
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

for (const run of [runSandboxed, remote.run]) {
  const where = run === runSandboxed ? 'this process' : 'the spawner process';

  test(`a program run by ${where} returns its exit code, its lines and its standard error`, async () => {
    const { outcome, lines } = await shell('seq 2000; echo why >&2; exit 3', { run });
    const numbers = Array.from({ length: 2_000 }, (_, at) => String(at + 1));
    assert.deepEqual(lines, numbers);
    assert.deepEqual(outcome, { ended: 'exit', code: 3, errorText: 'why\n' });
  });

  test(`an abort ends a program run by ${where} and rejects with its reason`, async () => {
    const stop = new AbortController();
    const { signal } = stop;
    let pid = 0;
    const aborted = shell('echo $$; sleep 60', {
      run,
      signal,
      onLine: (line) => {
        pid = Number(line);
        stop.abort(new Error('Enough'));
      },
    });
    await assert.rejects(aborted, { message: 'Enough' });
    await gone(pid);
    await assert.rejects(shell('echo', { run, signal }), { message: 'Enough' });
  });
}

test('a program that does not exist ends as `missing`', async () => {
  const outcome = await runSandboxed({
    command: '/nowhere/program',
    args: [],
    limits: LIMITS,
    signal: noAbort,
    clock: systemClock(),
  });
  assert.deepEqual(outcome, { ended: 'missing' });
});

test('limits of time, CPU time and memory end a program and its children', async () => {
  const slow = await shell('sleep 60 & echo $!; wait', { timeoutMs: 200 });
  assert.equal(slow.outcome.ended, 'time');
  await gone(Number(slow.lines[0]));
  const busy = await shell('while :; do :; done', { cpuSeconds: 1 });
  assert.ok(['time', 'crash'].includes(busy.outcome.ended));
  const large = await shell('sleep 60', { memoryBytes: 1 });
  assert.equal(large.outcome.ended, 'memory');
});

test('the file limit bounds the size of a written file', async () => {
  const path = join(folder, 'large');
  await shell(`head -c 5000000 /dev/zero > ${path}`, { fileBytes: 1_000_000 });
  assert.ok(statSync(path).size <= 1_100_000);
});

test('a program receives no input and no environment', async () => {
  const { lines } = await shell('read line; echo "got:$line"; echo "home:$HOME"');
  assert.deepEqual(lines, ['got:', 'home:']);
});

test('a program runs with a lower priority', async () => {
  const { lines } = await shell('sleep 0.1; nice');
  assert.ok(Number(lines[0]) >= 10, String(lines));
});

test('a program ends when the process that runs it is killed', async () => {
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

test('programs of the spawner run concurrently with their own limits', async () => {
  const [slow, quick] = await Promise.all([
    shell('sleep 60', { run: remote.run, timeoutMs: 300 }),
    shell('echo $PPID', { run: remote.run }),
  ]);
  assert.equal(slow.outcome.ended, 'time');
  assert.notEqual(Number(quick.lines[0]), process.pid);
});

test('programs end with the spawner process, and the next call starts a new one', async () => {
  let pid = 0;
  const cut = shell('echo $$; sleep 60', {
    run: remote.run,
    onLine: (line) => {
      pid = Number(line);
      process.kill(parentOf(pid), 'SIGKILL');
    },
  });
  await assert.rejects(cut, /has ended/);
  await gone(pid);
  assert.equal((await shell('exit 0', { run: remote.run })).outcome.ended, 'exit');
});

function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}
