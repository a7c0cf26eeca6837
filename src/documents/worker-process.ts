/**
 * The process in which hostile bytes are parsed. It reads one job at a time from stdin and answers
 * on descriptor 3. Once its libraries are loaded it gives up reading files; writing files, starting
 * processes and (on Node 25 and later) the network were never allowed to it.
 *
 * A second thread of it ends the process when it is too large, too late, or an orphan: it runs while
 * the first is stuck in a parser, which is when it counts.
 *
 * Arguments: role, memory bound in bytes, pid of the process that has started it.
 */
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { assert } from '../core/assert.ts';
import { encodeFrame, FrameReader } from './pipe-frames.ts';
import type { JobHeader, RunJob, SentHeader } from './jobs.ts';

/** The second thread strikes this much after the server should have. */
const GRACE_MS = 3_000;
const CHECK_EVERY_MS = 20;
/** The largest body that the server takes, or picture that an engine gives, with room. */
const MAX_JOB_BYTES = 140_000_000;
/** A process that keeps more of its memory than this gets no other job. */
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
      // What one job leaves behind is not counted against the next, which may be another caller's.
      const isSpent = process.memoryUsage.rss() > Number(maxBytes) * KEPT_SHARE;
      const sent: SentHeader = { ...reply.header, isSpent };
      for (const piece of encodeFrame(sent, reply.payload)) replies.write(piece);
    }
  }
  process.exit(0); // stdin has ended: the server is gone or wants no more
}

/** Milliseconds of the monotonic clock; threads of a process share its origin, unlike `performance.now`. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / NANO_PER_MS;
}

async function loadRole(): Promise<RunJob> {
  if (role === 'tokenizer') return (await import('./tokenizer-jobs.ts')).runTokenizerJob;
  const reader = await import('./reader-jobs.ts');
  await reader.prepareReader();
  return reader.runReaderJob;
}

/** Node 26 can give up a permission for good; older ones keep reading, and nothing else. */
function dropPermissions(): void {
  const permission = process.permission as { drop?: (scope: string) => void } | undefined; // new in 26
  for (const scope of ['fs.read', 'worker']) permission?.drop?.(scope);
}

/** `deadline` is the `monotonicMs` at which the present job is overdue; 0 when idle. */
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
