/**
 * The process that parses untrusted bytes. It reads one job at a time from stdin and replies on
 * descriptor 3. After loading its libraries it drops the permission to read files; writing files,
 * starting processes and (on Node 25 and later) the network are never permitted.
 *
 * A second thread kills the process if it uses too much memory, exceeds its time limit, or loses
 * its parent. It keeps running while a parser blocks the first thread.
 *
 * Arguments: role, memory limit in bytes, pid of the parent process.
 */
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { assert } from '../core/assert.ts';
import { encodeFrame, FrameReader } from './pipe-frames.ts';
import type { JobHeader, RunJob, SentHeader } from './jobs.ts';

/** The watchdog thread kills the process this long after the time limit at which the server ends a job. */
const GRACE_MS = 3_000;
const CHECK_EVERY_MS = 20;
/** The largest request body or generated image, with a margin. */
const MAX_JOB_BYTES = 140_000_000;
/** A process that still uses more than this share of its memory limit gets no other job. */
const KEPT_SHARE = 0.6;
const REPLY_DESCRIPTOR = 3;
const NANO_PER_MS = 1_000_000;

const [, , role, maxBytes, parentPid] = process.argv;
if (isMainThread) await work();
else watch(new BigInt64Array(workerData as SharedArrayBuffer)); // handed over by `work`

async function work(): Promise<void> {
  const shared = new SharedArrayBuffer(8);
  const deadline = new BigInt64Array(shared);
  const watchdog = new Worker(new URL(import.meta.url), {
    workerData: shared,
    argv: process.argv.slice(2),
  });
  const [runJob] = await Promise.all([loadRole(), once(watchdog, 'message')]);
  const replies = createWriteStream('', { fd: REPLY_DESCRIPTOR });
  const frames = new FrameReader<JobHeader>(MAX_JOB_BYTES);
  dropPermissions();
  for await (const chunk of process.stdin) {
    assert(Buffer.isBuffer(chunk), 'stdin gives bytes');
    for (const { header, payload } of frames.push(chunk)) {
      Atomics.store(deadline, 0, BigInt(Math.ceil(monotonicMs() + header.timeoutMs + GRACE_MS)));
      const reply = await runJob(header.job, payload);
      Atomics.store(deadline, 0, 0n);
      // Memory left by one job must not count against the next, which may be of another caller.
      const isSpent = process.memoryUsage.rss() > Number(maxBytes) * KEPT_SHARE;
      const sent: SentHeader = { ...reply.header, isSpent };
      for (const piece of encodeFrame(sent, reply.payload)) replies.write(piece);
    }
  }
  process.exit(0); // stdin has ended: the server is gone or closed the pipe
}

/** Milliseconds; unlike `performance.now`, the origin is the same in all threads. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / NANO_PER_MS;
}

async function loadRole(): Promise<RunJob> {
  if (role === 'tokenizer') return (await import('./tokenizer-jobs.ts')).runTokenizerJob;
  if (role === 'image') return (await import('./image-jobs.ts')).runImageJob;
  const reader = await import('./reader-jobs.ts');
  await reader.prepareReader();
  return reader.runReaderJob;
}

/** Node 26 can drop a permission permanently; older versions keep reading files. */
function dropPermissions(): void {
  const permission = process.permission as { drop?: (scope: string) => void } | undefined; // Node 26
  for (const scope of ['fs.read', 'worker']) permission?.drop?.(scope);
}

/** `deadline` is the `monotonicMs` at which the current job is overdue; 0 when idle. */
function watch(deadline: BigInt64Array): void {
  setInterval(() => {
    const dueMs = Number(Atomics.load(deadline, 0));
    const isLate = dueMs !== 0 && monotonicMs() > dueMs;
    const isOrphan = process.ppid !== Number(parentPid);
    if (isLate || isOrphan || process.memoryUsage.rss() > Number(maxBytes)) {
      process.kill(process.pid, 'SIGKILL');
    }
  }, CHECK_EVERY_MS);
  parentPort?.postMessage('watching');
}
