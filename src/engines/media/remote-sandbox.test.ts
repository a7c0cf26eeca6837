import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { systemClock } from '../../core/clock.ts';
import { RemoteSandbox } from './remote-sandbox.ts';
import { until } from '../../../test/support/until.ts';

const sandbox = new RemoteSandbox();
after(() => sandbox.close());

const LIMITS = {
  timeoutMs: 10_000,
  cpuSeconds: 10,
  memoryBytes: 500_000_000,
  fileBytes: 10_000_000,
};

async function shell(
  script: string,
  {
    signal = new AbortController().signal,
    onLine,
    ...limits
  }: Partial<typeof LIMITS> & {
    readonly signal?: AbortSignal;
    readonly onLine?: (line: string) => void;
  } = {},
) {
  const lines: string[] = [];
  const outcome = await sandbox.run({
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

async function gone(pid: number): Promise<void> {
  await until(() => {
    try {
      process.kill(pid, 0);
      return false;
    } catch {
      return true; // ESRCH: it is gone
    }
  }, 'the end of the program');
}

test('a program ends with its code, all its lines in order and its last words', async () => {
  const { outcome, lines } = await shell('seq 2000; echo why >&2; exit 3');
  assert.deepEqual(outcome, { ended: 'exit', code: 3, errorText: 'why\n' });
  assert.deepEqual(
    lines,
    Array.from({ length: 2_000 }, (_, at) => String(at + 1)),
  );
});

test('programs run beside each other, each within its bounds, and not by this process', async () => {
  const [slow, quick] = await Promise.all([
    shell('sleep 60', { timeoutMs: 300 }),
    shell('echo $PPID'),
  ]);
  assert.equal(slow.outcome.ended, 'time');
  assert.notEqual(Number(quick.lines[0]), process.pid);
});

test('an abort ends the program, and is the reason that is given', async () => {
  const stop = new AbortController();
  let pid = 0;
  const left = shell('echo $$; sleep 60', {
    signal: stop.signal,
    onLine: (line) => {
      pid = Number(line);
      stop.abort(new Error('Enough'));
    },
  });
  await assert.rejects(left, { message: 'Enough' });
  await gone(pid);
  await assert.rejects(shell('echo', { signal: stop.signal }), { message: 'Enough' });
});

test('what runs ends with the process that has started it, and the next one is started anew', async () => {
  let pid = 0;
  const cut = shell('echo $$; sleep 60', {
    onLine: (line) => {
      pid = Number(line);
      process.kill(parentOf(pid), 'SIGKILL');
    },
  });
  await assert.rejects(cut, /has ended/);
  await gone(pid);
  assert.equal((await shell('exit 0')).outcome.ended, 'exit');
});

function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}
