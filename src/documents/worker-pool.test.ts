/** The pool against real worker processes: time, memory, aborts, and queue limits. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, afterEach, test } from 'node:test';
import { deflateSync } from 'node:zlib';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import type { Job } from './jobs.ts';
import { pdfFile } from '../../test/support/test-files.ts';
import { WorkerPool } from './worker-pool.ts';
import { WorkerStarter } from './worker-starter.ts';

const JOB: Job = { kind: 'extract', filename: 'a', mediaType: '', maxChars: 1_000, maxPages: 10 };
/** Starting a process takes long on a busy machine. */
const PATIENCE_MS = 60_000;
const HELLO = Buffer.from('hello');
/** A small file that takes seconds to parse. */
const OPERATORS = deflateSync(Buffer.alloc(40_000_000, 'q\n'), { level: 1 });
const SLOW = pdfFile(Array.from({ length: 8 }, () => OPERATORS));

const pools: WorkerPool[] = [];
const starter = new WorkerStarter();
const lines: LogLine[] = [];

function openPool(memoryMb = 600, startedBy = starter, size = 1): WorkerPool {
  const pool = new WorkerPool({
    role: 'reader',
    size,
    memoryMb,
    starter: startedBy,
    clock: systemClock(),
    log: memoryLog(lines),
  });
  pools.push(pool);
  return pool;
}

afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
});

after(() => starter.close());

async function assertWorks(pool: WorkerPool): Promise<void> {
  const outcome = await pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS });
  assert.ok(outcome.ok && outcome.reply.payload.toString() === 'hello');
}

test('a job above its time limit ends as `timeout`, and the next job runs', async () => {
  const pool = openPool();
  await assertWorks(pool);
  const outcome = await pool.run(JOB, SLOW, { timeoutMs: 200 });
  assert.deepEqual(outcome, { ok: false, reason: 'timeout' });
  await assertWorks(pool);
});

test('a process above its memory limit is killed, and its job ends as `crash`', async () => {
  const outcome = await openPool(40).run(JOB, HELLO, { timeoutMs: PATIENCE_MS });
  assert.deepEqual(outcome, { ok: false, reason: 'crash' });
  assert.ok(lines.some((line) => line.message === 'A document worker ended'));
});

test('a process that keeps much memory runs no other job', async () => {
  // It starts with 130 MB and uses 420 MB after the large job.
  const pool = openPool();
  const small = await pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS });
  assert.ok(small.ok && small.reply.header.isSpent === false);
  const large = await pool.run(JOB, Buffer.alloc(100_000_000, 'x'), { timeoutMs: PATIENCE_MS });
  assert.ok(large.ok && large.reply.header.isSpent === true);
  const next = await pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS });
  assert.ok(next.ok && next.reply.header.isSpent === false);
});

test('an abort ends running and waiting jobs at once with its reason', async () => {
  const pool = openPool();
  await assertWorks(pool);
  const abort = new AbortController();
  const options = { timeoutMs: PATIENCE_MS, signal: abort.signal };
  const running = pool.run(JOB, SLOW, options);
  const waiting = pool.run(JOB, HELLO, options);
  abort.abort(new Error('caller left'));
  await assert.rejects(running, { message: 'caller left' });
  await assert.rejects(waiting, { message: 'caller left' });
  await assertWorks(pool);
});

test('a full queue rejects with SERVICE_UNAVAILABLE, and one caller cannot fill it', async () => {
  const pool = openPool();
  const queued: Promise<unknown>[] = [];
  const run = async (caller: string): Promise<unknown> => {
    const running = pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS, caller });
    queued.push(running.catch((error: unknown) => error));
    return await Promise.race([
      running.then(
        () => 'ran',
        (error: unknown) => error,
      ),
      Promise.resolve('queued'),
    ]);
  };
  for (let count = 0; count < 17; count++) await run('greedy'); // one runs, 16 wait
  const refused = pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS, caller: 'greedy' });
  await assert.rejects(
    refused,
    (error: unknown) => error instanceof Fault && error.code === 'SERVICE_UNAVAILABLE',
  );
  for (let count = 0; count < 48; count++) await run(`caller ${count}`);
  const full = pool.run(JOB, HELLO, { timeoutMs: PATIENCE_MS, caller: 'late' });
  await assert.rejects(
    full,
    (error: unknown) => error instanceof Fault && error.code === 'SERVICE_UNAVAILABLE',
  );
  await Promise.all(queued);
});

test('the large files of one caller leave memory for those of another', async () => {
  const pool = openPool();
  const abort = new AbortController();
  const bytes = Buffer.alloc(100_000_000);
  const queue = async (caller: string, payload: Uint8Array): Promise<boolean> => {
    const options = { timeoutMs: PATIENCE_MS, caller, signal: abort.signal };
    const running = pool.run(JOB, payload, options).then(
      () => true,
      (error: unknown) => !(error instanceof Fault),
    );
    return await Promise.race([
      running,
      new Promise<true>((isQueued) => setImmediate(isQueued, true)),
    ]);
  };
  await queue('first', SLOW); // occupies the process
  assert.equal(await queue('greedy', bytes), true);
  assert.equal(await queue('greedy', bytes), false);
  assert.equal(await queue('other', bytes), true);
  abort.abort();
  await pool.close();
});

test('the job of another caller runs before the queue of a busy caller', async () => {
  const pool = openPool(600, starter, 2);
  const order: string[] = [];
  const run = async (caller: string, bytes: Uint8Array): Promise<void> => {
    await pool.run(JOB, bytes, { timeoutMs: PATIENCE_MS, caller });
    order.push(caller);
  };
  const busy = run('busy', SLOW); // occupies one process throughout
  await Promise.all([
    run('busy', HELLO),
    run('busy', HELLO),
    run('busy', HELLO),
    run('other', HELLO),
  ]);
  assert.equal(order[1], 'other');
  await pool.close();
  await busy;
});

/** Child processes of a process id. */
function childrenOf(parent: number): { pid: number; args: string }[] {
  const listed = execFileSync('ps', ['-A', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' });
  return listed.split('\n').flatMap((line) => {
    const [pid, ppid, ...args] = line.trim().split(/\s+/);
    return Number(ppid) === parent ? [{ pid: Number(pid), args: args.join(' ') }] : [];
  });
}

test('the starter process starts workers, which end with it and are restarted by the next', async (t) => {
  const startersNow = () =>
    childrenOf(process.pid).filter(({ args }) => args.includes('starter-process'));
  const before = new Set(startersNow().map(({ pid }) => pid));
  const own = new WorkerStarter();
  t.after(() => own.close());
  const pool = openPool(600, own);
  await assertWorks(pool);
  assert.ok(childrenOf(process.pid).every(({ args }) => !args.includes('worker-process')));
  const [first, ...others] = startersNow().filter(({ pid }) => !before.has(pid));
  assert.ok(first !== undefined && others.length === 0);
  assert.equal(childrenOf(first.pid).length, 1);
  const slow = pool.run(JOB, SLOW, { timeoutMs: 60_000 });
  process.kill(first.pid, 'SIGKILL');
  assert.deepEqual(await slow, { ok: false, reason: 'crash' });
  await assertWorks(pool);
});

const WITHOUT_FILES = `
  import { openSync } from 'node:fs';
  import { OverviewReader } from '${new URL('../db/sqlite/overview-reader.ts', import.meta.url).href}';
  import { WorkerStarter } from '${new URL('worker-starter.ts', import.meta.url).href}';
  import { systemClock } from '${new URL('../core/clock.ts', import.meta.url).href}';
  try {
    for (;;) openSync('/dev/null');
  } catch {}
  const print = ({ message }) => console.log(message);
  await new WorkerStarter().start('reader', 100).pipes.catch(print);
  await new OverviewReader('', {}, systemClock()).of('a').query('SELECT 1').catch(print);
`;

test('a server without free file descriptors rejects work of child processes, and keeps running', () => {
  const limited = ['-c', 'ulimit -n 60 && exec "$0" --input-type=module -e "$1"'];
  const printed = execFileSync('/bin/sh', [...limited, process.execPath, WITHOUT_FILES], {
    encoding: 'utf8',
  });
  assert.deepEqual(printed.trim().split('\n'), [
    'The process that starts document workers has ended',
    'The child process for overview reads has ended',
  ]);
});
