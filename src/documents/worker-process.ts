/**
 * The process in which hostile bytes are parsed. It reads one job at a time from stdin and answers
 * on descriptor 3. Once its libraries are loaded it gives up reading files; writing files, starting
 * processes and (on Node 25 and later) the network were never allowed to it.
 *
 * Arguments: role, memory bound in bytes, pid of the server.
 */
import { createWriteStream } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { assert } from '../core/assert.ts';
import { siblingUrl } from '../core/sibling.ts';
import { encodeFrame, FrameReader } from './frames.ts';
import type { JobHeader, RunJob } from './jobs.ts';
import type { WatchdogData } from './worker-watchdog.ts';

/** The watchdog strikes this much after the server should have. */
const GRACE_MS = 3_000;
/** The largest body that the server takes, or picture that an engine gives, with room. */
const MAX_JOB_BYTES = 140_000_000;
const REPLY_DESCRIPTOR = 3;

async function loadRole(role: string | undefined): Promise<RunJob> {
  if (role === 'tokenizer') return (await import('./tokenizer-jobs.ts')).runTokenizerJob;
  const reader = await import('./reader-jobs.ts');
  await reader.prepareReader();
  return reader.runReaderJob;
}

function startWatchdog(deadline: SharedArrayBuffer): Worker {
  const [, , , maxBytes, parentPid] = process.argv;
  const workerData: WatchdogData = {
    maxBytes: Number(maxBytes),
    parentPid: Number(parentPid),
    deadline,
  };
  return new Worker(siblingUrl(import.meta.url, 'worker-watchdog'), { workerData });
}

/** Node 26 can give up a permission for good; older ones keep reading, and nothing else. */
function dropPermissions(): void {
  const permission = process.permission as { drop?: (scope: string) => void } | undefined; // new in 26
  for (const scope of ['fs.read', 'worker']) permission?.drop?.(scope);
}

const shared = new SharedArrayBuffer(8);
const deadline = new BigInt64Array(shared);
startWatchdog(shared);
const runJob = await loadRole(process.argv[2]);
const replies = createWriteStream('', { fd: REPLY_DESCRIPTOR });
const frames = new FrameReader<JobHeader>(MAX_JOB_BYTES);
dropPermissions();

for await (const chunk of process.stdin) {
  assert(Buffer.isBuffer(chunk), 'stdin gives bytes');
  for (const { header, payload } of frames.push(chunk)) {
    Atomics.store(deadline, 0, BigInt(Date.now() + header.timeoutMs + GRACE_MS));
    const reply = await runJob(header.job, payload);
    Atomics.store(deadline, 0, 0n);
    for (const piece of encodeFrame(reply.header, reply.payload)) replies.write(piece);
  }
}
process.exit(0); // stdin has ended: the server is gone or wants no more
