/**
 * Cost of a call through the engines, compared with a bare `Pool.dispatch` on the same upstream:
 * JSON responses and streams, in short alternating windows, as medians of the ratios. For streams
 * also with an async iterator. The upstream is a thread; CPU time is the one of the main thread.
 *
 * Run: node bench/engine-call.ts [pairs]
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';

import { Pool } from 'undici';

import { chatEvents, chatJson } from '../test/support/test-upstream.ts';
import { Engines } from '../src/engines/engines.ts';
import type { EngineCall } from '../src/engines/engines.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { median } from './harness.ts';

const WINDOW_MS = 500;
const STREAM_CHUNKS = 200;
const BODY = Buffer.from(
  JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(900) }] }),
);
const MAX_BYTES = 10_000_000;

type Once = () => Promise<number>;

interface Variant {
  readonly name: string;
  readonly concurrency: number;
  /** Makes one call; returns the number of chunks. */
  readonly once: Once;
}

interface Sample {
  readonly perSecond: number;
  readonly chunksPerSecond: number;
  readonly cpuMicros: number;
}

function serve(): void {
  const json = chatJson('m', true, 1_300);
  const events = chatEvents('m', STREAM_CHUNKS, true);
  const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    request.resume();
    request.on('end', () => {
      if (request.url === '/v1/json') {
        response.writeHead(200, {
          'content-type': 'application/json',
          'content-length': json.length,
        });
        response.end(json);
        return;
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      let next = 0;
      // Writes one event per turn of the loop, because writes of one turn arrive as one chunk.
      const write = (): void => {
        const event = events[next];
        next += 1;
        if (event === undefined) response.end();
        else {
          response.write(event);
          setImmediate(write);
        }
      };
      write();
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : null;
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, no window
    parentPort?.postMessage(port);
  });
}

async function window(variant: Variant): Promise<Sample> {
  const startedMs = performance.now();
  const cpu = process.threadCpuUsage();
  let calls = 0;
  let chunks = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() - startedMs < WINDOW_MS) {
      const seen = await variant.once();
      chunks += seen;
      calls += 1;
    }
  };
  await Promise.all(Array.from({ length: variant.concurrency }, worker));
  const seconds = (performance.now() - startedMs) / 1_000;
  const used = process.threadCpuUsage(cpu);
  return {
    perSecond: calls / seconds,
    chunksPerSecond: chunks / seconds,
    cpuMicros: (used.user + used.system) / calls,
  };
}

/** Interleaves the variants and prints each against the first one. */
async function compare(title: string, variants: readonly Variant[], pairs: number): Promise<void> {
  const samples = variants.map((): Sample[] => []);
  for (const variant of variants) await window(variant);
  for (let pair = 0; pair < pairs; pair += 1) {
    for (const [index, variant] of variants.entries()) samples[index]?.push(await window(variant));
  }
  console.log(
    `\n${title}, ${variants[0]?.concurrency} at once, median of ${pairs} windows of ${WINDOW_MS} ms`,
  );
  for (const [index, variant] of variants.entries()) {
    const mine = samples[index] ?? [];
    const ratios = mine.map((sample, at) => sample.perSecond / (samples[0]?.[at]?.perSecond ?? 1));
    const cells = [
      variant.name.padEnd(28),
      `${Math.round(median(mine.map((sample) => sample.perSecond)))} calls/s`.padStart(14),
      `${Math.round(median(mine.map((sample) => sample.chunksPerSecond)))} chunks/s`.padStart(18),
      `${median(mine.map((sample) => sample.cpuMicros)).toFixed(1)} µs CPU/call`.padStart(20),
      `÷ bare ${median(ratios).toFixed(3)}`.padStart(15),
    ];
    console.log(cells.join(''));
  }
}

function bare(pool: Pool, path: string): Once {
  return () =>
    new Promise((resolve, reject) => {
      let chunks = 0;
      pool.dispatch(
        { method: 'POST', path, headers: ['content-type', 'application/json'], body: BODY },
        {
          onRequestStart: () => undefined,
          onResponseStart: () => undefined,
          onResponseData: () => {
            chunks += 1;
          },
          onResponseEnd: () => resolve(chunks),
          onResponseError: (_controller, error) => reject(error),
        },
      );
    });
}

function viaEngines(engines: Engines, call: EngineCall): Once {
  return async () => {
    let chunks = 0;
    const run = engines.run(call, {
      onHead: () => undefined,
      onChunk: () => {
        chunks += 1;
        return true;
      },
    });
    const outcome = await run.outcome;
    if (!outcome.ok) throw new Error(`${outcome.reason}: ${outcome.message}`);
    return chunks;
  };
}

/** The same call through an async iterator, with a promise per chunk. */
function viaIterator(engines: Engines, call: EngineCall): Once {
  async function* read(): AsyncGenerator<Buffer> {
    const queue: Buffer[] = [];
    let isOver = false;
    let wake: () => void = () => undefined;
    const run = engines.run(call, {
      onHead: () => undefined,
      onChunk: (chunk) => {
        queue.push(chunk);
        wake();
        return true;
      },
    });
    void run.outcome.then(() => {
      isOver = true;
      wake();
    });
    for (;;) {
      const chunk = queue.shift();
      if (chunk !== undefined) yield chunk;
      else if (isOver) return;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  }
  return async () => {
    let chunks = 0;
    for await (const chunk of read()) chunks += chunk.length > 0 ? 1 : 0;
    return chunks;
  };
}

async function main(pairs: number): Promise<void> {
  const upstream = new Worker(new URL(import.meta.url));
  const [port]: unknown[] = await once(upstream, 'message');
  const origin = `http://127.0.0.1:${String(port)}`;
  const pool = new Pool(origin, { connections: 512, pipelining: 1, allowH2: false });
  const engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
  engines.update([{ id: 'a', protocol: 'openai', url: `${origin}/v1` }]);
  const replicas = [{ engine: 'a', model: 'm' }];
  const call = (path: string): EngineCall => ({
    work: 'chat',
    replicas,
    method: 'POST',
    path,
    contentType: 'application/json',
    buildBody: () => BODY,
    maxResponseBytes: MAX_BYTES,
  });
  const whole: Once = async () => {
    const answer = await engines.collect(call('/json'));
    if (!answer.ok) throw new Error(`${answer.reason}: ${answer.message}`);
    return answer.body.length > 0 ? 1 : 0;
  };
  const json = [
    { name: 'bare Pool.dispatch', once: bare(pool, '/v1/json') },
    { name: 'engines.run', once: viaEngines(engines, call('/json')) },
    { name: 'engines.collect', once: whole },
  ];
  const stream = [
    { name: 'bare Pool.dispatch', once: bare(pool, '/v1/stream') },
    { name: 'engines.run', once: viaEngines(engines, call('/stream')) },
    { name: 'engines.run, async iterator', once: viaIterator(engines, call('/stream')) },
  ];
  console.log(`Node ${process.version}`);
  await compare(
    'JSON, 1.5 KB',
    json.map((one) => ({ ...one, concurrency: 64 })),
    pairs,
  );
  await compare(
    `Stream, ${STREAM_CHUNKS} chunks as fast as they come`,
    stream.map((one) => ({ ...one, concurrency: 16 })),
    pairs,
  );
  await engines.close();
  await pool.destroy();
  await upstream.terminate();
}

if (isMainThread) await main(Number(process.argv[2] ?? 7));
else serve();
