/**
 * Streams compared with a bare proxy: chunks per second at full speed; then 512 streams with a
 * chunk every 20 ms: lost chunks, stalls, time to the first byte, CPU per chunk; then the memory of
 * 1,000 waiting streams.
 *
 * Run: node bench/chat-stream.ts. WORDS=1000 makes long streams, in which the cost of a request is
 * negligible.
 */
import { Pool } from 'undici';
import {
  type Target,
  chatBody,
  cpuOf,
  median,
  report,
  residentMegabytes,
  startPair,
  startProcess,
  stopAll,
  warmUp,
} from './harness.ts';
import { compareByWrk, missingForWrk } from './wrk.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '3');
const STREAMS = 512;
const IDLE_STREAMS = 1_000;
const IDLE_SETTLE_MS = 3_000;
const PACE_MS = 20;
const STALL_MS = 100;
/** Chunks of the upstream: role, words, finish reason, usage, `[DONE]`. */
const FRAMES = Number(process.env['WORDS'] ?? '64') + 4;
const BODY = chatBody(1_000, { stream: true, stream_options: { include_usage: true } });

interface Seen {
  readonly frames: number;
  readonly firstByteMs: number;
  readonly longestGapMs: number;
}

/** One stream from its request to its end. */
function stream(pool: Pool, target: Target, onFirstByte?: () => void): Promise<Seen> {
  return new Promise((resolve, reject) => {
    const from = performance.now();
    let frames = 0;
    let firstByteMs = 0;
    let last = from;
    let longestGapMs = 0;
    const path = `${new URL(target.url).pathname.replace(/\/$/, '')}/chat/completions`;
    const headers = { 'content-type': 'application/json', ...target.headers };
    pool.dispatch(
      { path, method: 'POST', headers, body: BODY },
      {
        onRequestStart: () => undefined,
        onResponseStart: (_controller, status) => {
          if (status !== 200) reject(new Error(`${target.name} answered ${status}`));
        },
        onResponseData: (_controller, chunk) => {
          const now = performance.now();
          if (frames === 0) {
            firstByteMs = now - from;
            onFirstByte?.();
          } else longestGapMs = Math.max(longestGapMs, now - last);
          last = now;
          for (let at = chunk.indexOf('\n\n'); at !== -1; at = chunk.indexOf('\n\n', at + 2)) {
            frames += 1;
          }
        },
        onResponseEnd: () => resolve({ frames, firstByteMs, longestGapMs }),
        onResponseError: (_controller, error) => reject(error),
      },
    );
  });
}

async function saturated(target: Target): Promise<{ perSecond: number; cpu: number }> {
  const pool = new Pool(new URL(target.url).origin, { connections: 64, pipelining: 1 });
  const begun = performance.now();
  const cpuBefore = cpuOf(target.pid);
  let frames = 0;
  const lane = async (): Promise<void> => {
    while (performance.now() - begun < 1_500) {
      const seen = await stream(pool, target);
      frames += seen.frames;
    }
  };
  await Promise.all(Array.from({ length: 64 }, lane));
  const perSecond = frames / ((performance.now() - begun) / 1_000);
  const cpu = (cpuOf(target.pid) - cpuBefore) / frames;
  await pool.destroy();
  return { perSecond, cpu };
}

async function paced(target: Target): Promise<{ seen: Seen[]; cpu: number }> {
  const pool = new Pool(new URL(target.url).origin, { connections: STREAMS, pipelining: 1 });
  const cpuBefore = cpuOf(target.pid);
  // Starts the streams over a second, as real callers do.
  const seen = await Promise.all(
    Array.from({ length: STREAMS }, async (_, at) => {
      await new Promise((resolve) => setTimeout(resolve, (at / STREAMS) * 1_000));
      return stream(pool, target);
    }),
  );
  const cpu = (cpuOf(target.pid) - cpuBefore) / (STREAMS * FRAMES);
  await pool.destroy();
  return { seen, cpu };
}

async function idle(target: Target): Promise<number> {
  const before = residentMegabytes(target.pid);
  const pool = new Pool(new URL(target.url).origin, { connections: IDLE_STREAMS, pipelining: 1 });
  let ended = 0;
  const begun: Promise<void>[] = [];
  for (let at = 0; at < IDLE_STREAMS; at += 1) {
    begun.push(
      new Promise((resolve) => {
        stream(pool, target, resolve).catch(() => (ended += 1)); // the pool is closed below
      }),
    );
  }
  await Promise.all(begun);
  await new Promise((resolve) => setTimeout(resolve, IDLE_SETTLE_MS));
  const grown = residentMegabytes(target.pid) - before;
  if (ended > 0) console.log(`${ended} of the idle streams ended early`);
  await pool.destroy();
  return grown;
}

async function pair(paceMs: number) {
  const upstream = await startProcess('./upstream.ts', { env: { PACE_MS: String(paceMs) } });
  return { targets: await startPair(upstream), upstreamPid: upstream.pid };
}

async function compareSaturated(): Promise<void> {
  const { targets, upstreamPid } = await pair(0);
  const load = { path: '/chat/completions', body: BODY, connections: 64, windowMs: 500 };
  for (const target of targets) await warmUp(target, load);
  const all = targets.map((): { perSecond: number; cpu: number }[] => []);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [at, target] of targets.entries()) all[at]?.push(await saturated(target));
  }
  console.log('\nsaturated, 64 streams');
  for (const [at, target] of targets.entries()) {
    const mine = all[at] ?? [];
    const ratios = mine.map((one, round) => one.perSecond / (all[0]?.[round]?.perSecond ?? 1));
    console.log(
      `${target.name.padEnd(20)}${median(mine.map((one) => one.perSecond)).toFixed(0)} chunks/s` +
        `   ÷ bare ${median(ratios).toFixed(2)}` +
        `   ${median(mine.map((one) => one.cpu)).toFixed(1)} µs CPU a chunk`,
    );
  }
  const missing = missingForWrk();
  if (missing !== undefined) return console.log(`\nNo figures by wrk: ${missing}`);
  report(
    'whole streams, saturated, by wrk, one core for the server',
    await compareByWrk(targets, upstreamPid, { ...load, windowMs: 2_000 }, ROUNDS),
  );
}

async function comparePaced(): Promise<void> {
  const { targets } = await pair(PACE_MS);
  for (const target of targets) await paced(target);
  console.log(`\n${STREAMS} streams, a chunk every ${PACE_MS} ms`);
  for (const target of [...targets, ...targets]) {
    const { seen, cpu } = await paced(target);
    const firstBytes = seen.map((one) => one.firstByteMs);
    // Both streams have the same number of events without comments, because usage is requested.
    const lost = seen.reduce((sum, one) => sum + Math.max(0, FRAMES - one.frames), 0);
    const stalls = seen.filter((one) => one.longestGapMs > STALL_MS).length;
    const worst = Math.max(...seen.map((one) => one.longestGapMs));
    console.log(
      `${target.name.padEnd(20)}first byte p50 ${median(firstBytes).toFixed(2)} ms   lost frames ${lost}` +
        `   streams with a stall over ${STALL_MS} ms ${stalls}   longest gap ${worst.toFixed(0)} ms` +
        `   ${cpu.toFixed(1)} µs CPU a chunk`,
    );
  }
}

async function compareIdle(): Promise<void> {
  const { targets } = await pair(600_000);
  console.log(`\n${IDLE_STREAMS} streams that wait`);
  for (const target of targets) {
    console.log(`${target.name.padEnd(20)}${(await idle(target)).toFixed(1)} MB resident more`);
  }
}

try {
  await compareSaturated();
  await comparePaced();
  await compareIdle();
} finally {
  await stopAll();
}
