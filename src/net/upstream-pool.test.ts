import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { heapBytes } from '../../test/support/heap-bytes.ts';
import { rawServer } from '../../test/support/raw-server.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import {
  Exchange,
  type TimeLimits,
  type UpstreamFailureKind,
  type UpstreamRequest,
} from './exchange.ts';
import { UpstreamPool, fetchWhole } from './upstream-pool.ts';

const LIMITS: TimeLimits = { connectMs: 1_000, firstByteMs: 1_000, idleMs: 1_000, totalMs: 5_000 };

function poolFor(t: TestContext, url: string, connectMs = 1_000): UpstreamPool {
  const pool = new UpstreamPool({ url, maxConnections: 4, connectMs, clock: systemClock() });
  t.after(() => pool.destroy());
  return pool;
}

class Recorder extends Exchange {
  readonly calls: string[] = [];
  readonly failures: UpstreamFailureKind[] = [];
  readonly ending = Promise.withResolvers<'end' | UpstreamFailureKind>();

  protected override onHead(status: number): void {
    this.calls.push(`head ${status}`);
  }

  protected override onChunk(): void {
    this.calls.push('data');
  }

  protected override onEnd(): void {
    this.calls.push('end');
    this.ending.resolve('end');
  }

  protected override onFailure(kind: UpstreamFailureKind): void {
    this.calls.push('failure');
    this.failures.push(kind);
    this.ending.resolve(kind);
  }
}

function send(pool: UpstreamPool, request: Partial<UpstreamRequest>): Recorder {
  const recorder = new Recorder(pool, {
    method: 'POST',
    path: '/x',
    headers: [],
    body: Buffer.from('{}'),
    limits: LIMITS,
    maxResponseBytes: 1_000,
    ...request,
  });
  pool.dispatch(recorder);
  return recorder;
}

function get(pool: UpstreamPool, limits: Partial<TimeLimits> = {}): Recorder {
  return send(pool, { limits: { ...LIMITS, ...limits } });
}

async function kindOf(recorder: Recorder): Promise<string> {
  const kind = await recorder.ending.promise;
  // A connection takes its next request one turn after its last response.
  await new Promise((resolve) => setImmediate(resolve));
  return kind;
}

async function* piecesWithoutEnd(): AsyncGenerator<Buffer> {
  yield Buffer.from('a');
  await new Promise<never>(() => undefined);
}

const GARBAGE = '220 mail ready\r\n';
const LAST = 'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok';
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';

test('a connection is reused', async (t) => {
  let connections = 0;
  const url = await rawServer(t, (socket) => {
    connections += 1;
    socket.on('data', () => socket.write(OK));
  });
  const pool = poolFor(t, url);
  for (let count = 0; count < 5; count += 1) assert.equal(await kindOf(get(pool)), 'end');
  assert.equal(connections, 1);
  assert.equal(pool.running.size, 0);
});

test('a reused connection that closes without a byte is stale, a new one is reset', async (t) => {
  const url = await rawServer(t, (socket) => {
    let requests = 0;
    socket.on('data', () => {
      requests += 1;
      if (requests === 1) socket.write(OK);
      else socket.destroy();
    });
  });
  const pool = poolFor(t, url);
  assert.equal(await kindOf(get(pool)), 'end');
  assert.equal(await kindOf(get(pool)), 'stale');
  const dying = poolFor(
    t,
    await rawServer(t, (socket) => socket.on('data', () => socket.resetAndDestroy())),
  );
  assert.equal(await kindOf(get(dying)), 'reset');
});

test('a reused connection that is reset is stale too', async (t) => {
  const url = await rawServer(t, (socket) => {
    let requests = 0;
    socket.on('data', () => {
      requests += 1;
      if (requests === 1) socket.write(OK);
      else socket.resetAndDestroy();
    });
  });
  const pool = poolFor(t, url);
  assert.equal(await kindOf(get(pool)), 'end');
  assert.equal(await kindOf(get(pool)), 'stale');
});

test('a request that waits for a connection that is reset gets another connection', async (t) => {
  let connections = 0;
  const url = await rawServer(t, (socket) => {
    connections += 1;
    socket.on('data', () => socket.write(OK));
  });
  const pool = poolFor(t, url);
  const pieces = {
    sizeBytes: 1,
    async *open() {
      yield Buffer.from('a');
    },
  };
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  for (const body of [Buffer.from('{}'), pieces]) {
    const first = get(pool);
    assert.equal(await kindOf(first), 'end');
    const second = send(pool, { body });
    first.connection?.socket?.destroy(reset);
    assert.equal(await kindOf(second), 'end');
  }
  assert.equal(connections, 3);
  assert.equal(pool.running.size, 0);
});

test('a reused connection that closes late failed on the request', async (t) => {
  let second: Socket | undefined;
  const url = await rawServer(t, (socket) => {
    let requests = 0;
    socket.on('data', () => {
      requests += 1;
      if (requests === 1) socket.write(OK);
      else second = socket;
    });
  });
  const clock = new TestClock(0);
  const pool = new UpstreamPool({ url, maxConnections: 4, connectMs: 1_000, clock });
  t.after(() => pool.destroy());
  for (const [large, kind] of [
    [false, 'reset'],
    [true, 'unread'],
  ] as const) {
    assert.equal(await kindOf(get(pool)), 'end');
    second = undefined;
    const body = { sizeBytes: 2, open: () => piecesWithoutEnd() };
    const limits = { ...LIMITS, firstByteMs: 60_000, totalMs: 60_000 };
    const watch = send(pool, { limits, ...(large && { body }) });
    await until(() => second !== undefined, 'the second request');
    clock.advance(1_100);
    second!.destroy();
    assert.equal(await kindOf(watch), kind);
  }
});

test('a truncated body is cut, by length and by chunks', async (t) => {
  for (const head of ['content-length: 9', 'transfer-encoding: chunked']) {
    const body = head.startsWith('content') ? 'part' : '4\r\npart\r\n';
    const url = await rawServer(t, (socket) =>
      socket.on('data', () => socket.end(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${body}`)),
    );
    const watch = get(poolFor(t, url));
    assert.equal(await kindOf(watch), 'cut', head);
    assert.deepEqual(watch.calls, ['head 200', 'data', 'failure']);
  }
});

test('a response that is not HTTP is garbage', async (t) => {
  const url = await rawServer(t, (socket) => socket.on('data', () => socket.end(GARBAGE)));
  assert.equal(await kindOf(get(poolFor(t, url))), 'garbage');
});

test('a reused connection that closes after its first bytes is not stale', async (t) => {
  for (const [part, kind] of [
    // An invalid head may be the rest of the previous response.
    [GARBAGE, 'ambiguous'],
    ['HTTP/1.1 200 OK\r\nx', 'reset'],
  ] as const) {
    const url = await rawServer(t, (socket) => {
      let requests = 0;
      socket.on('data', () => {
        requests += 1;
        if (requests === 1) socket.write(OK);
        else socket.end(part);
      });
    });
    const pool = poolFor(t, url);
    assert.equal(await kindOf(get(pool)), 'end');
    assert.equal(await kindOf(get(pool)), kind);
  }
});

test('time limits end slow exchanges', async (t) => {
  const silent = await rawServer(t, () => undefined);
  assert.equal(await kindOf(get(poolFor(t, silent), { firstByteMs: 60 })), 'first-byte-timeout');
  const headOnly = await rawServer(t, (socket) =>
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n')),
  );
  assert.equal(await kindOf(get(poolFor(t, headOnly), { firstByteMs: 60 })), 'first-byte-timeout');
  const stuck = await rawServer(t, (socket) =>
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart')),
  );
  assert.equal(await kindOf(get(poolFor(t, stuck), { idleMs: 60 })), 'idle-timeout');
  assert.equal(await kindOf(get(poolFor(t, silent), { totalMs: 60 })), 'total-timeout');
});

test('an exchange that waits for a connection can be aborted at once', async (t) => {
  const url = await rawServer(t, (socket) =>
    socket.on('data', () => setTimeout(() => socket.write(OK), 20)),
  );
  const pool = poolFor(t, url);
  const first = Array.from({ length: 4 }, () => get(pool));
  const watch = send(pool, { body: null });
  watch.abort();
  watch.abort();
  assert.deepEqual(watch.calls, ['failure']);
  assert.equal(await kindOf(watch), 'aborted');
  for (const one of first) assert.equal(await kindOf(one), 'end');
  assert.equal(await kindOf(get(pool)), 'end');
});

test('a closed pool fails new exchanges and lets running ones end', async (t) => {
  const url = await rawServer(t, (socket) =>
    socket.on('data', () => setTimeout(() => socket.write(OK), 20)),
  );
  const pool = poolFor(t, url);
  const running = get(pool);
  const closing = pool.close();
  assert.equal(await kindOf(get(pool)), 'closed');
  assert.equal(await kindOf(running), 'end');
  await closing;
});

test('a destroyed pool ends running exchanges as closed', async (t) => {
  const url = await rawServer(t, () => undefined);
  const pool = poolFor(t, url);
  const running = get(pool);
  await pool.destroy();
  assert.equal(await kindOf(running), 'closed');
  assert.equal(pool.running.size, 0);
});

test('a streamed body is read only as fast as the engine reads it', async (t) => {
  const url = await rawServer(t, (socket) => {
    let seen = '';
    let taken = 0;
    socket.on('data', (chunk) => {
      taken += chunk.length;
      if (seen.length < 1_000) seen += chunk.toString('latin1');
      if (seen.includes('/refused')) socket.write('HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n');
      else if (taken > 50_000_000) socket.end(LAST);
      if (seen.includes('/stalled')) socket.pause();
    });
  });
  const pool = poolFor(t, url);
  let read = 0;
  let ended = 0;
  let failing = false;
  const body = {
    sizeBytes: 50_000_000,
    async *open() {
      try {
        for (let at = 0; at < 50; at += 1) {
          read += 1;
          if (failing && at === 3) throw new Error('EIO');
          yield Buffer.alloc(1_000_000);
        }
      } finally {
        ended += 1;
      }
    },
  };
  const post = (path: string, limits: Partial<TimeLimits> = {}): Recorder =>
    send(pool, { path, body, limits: { ...LIMITS, ...limits } });
  assert.equal(await kindOf(post('/x', { firstByteMs: 20_000 })), 'end'); // slow under load
  assert.deepEqual([read, ended], [50, 1]);
  const refused = post('/refused');
  assert.equal(await kindOf(refused), 'end');
  assert.deepEqual(refused.calls.slice(0, 2), ['head 413', 'end']);
  read = 0;
  assert.equal(await kindOf(post('/stalled', { firstByteMs: 200 })), 'first-byte-timeout');
  assert.ok(read < 20, `${read} MB were read for an engine that takes none`);
  failing = true;
  assert.notEqual(await kindOf(post('/x')), 'end');
  assert.equal(await kindOf(get(pool)), 'first-byte-timeout');
  await until(() => ended === 4, 'the end of what was read');
});

test('an early response is read although the last write was reset', async (t) => {
  const reset = Promise.withResolvers<void>();
  const url = await rawServer(t, (socket) => {
    const refusal = 'HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno';
    socket.once('data', () => {
      socket.write(refusal, () => {
        socket.resetAndDestroy();
        reset.resolve();
      });
    });
  });
  const body = {
    sizeBytes: 50_010,
    async *open() {
      yield Buffer.alloc(50_000);
      // Writes the next piece in this turn, before the response can be read.
      await reset.promise;
      yield Buffer.alloc(10);
    },
  };
  const watch = send(poolFor(t, url), { body });
  assert.equal(await kindOf(watch), 'end');
  assert.deepEqual(watch.calls.slice(0, 3), ['head 413', 'data', 'end']);
});

const HALF_AN_HOUR_MS = 1_800_000;

/** An exchange in its body, and the result of its sweep at a given time. */
function streaming() {
  const clock = new TestClock(0);
  const url = 'http://127.0.0.1:9';
  const pool = new UpstreamPool({ url, maxConnections: 1, connectMs: 1_000, clock });
  const exchange = new Recorder(pool, {
    method: 'POST',
    path: '/',
    headers: [],
    body: null,
    limits: { ...LIMITS, totalMs: 10_000 },
    maxResponseBytes: 1_000,
  });
  const controller = { pause: () => undefined, resume: () => undefined, abort: () => undefined };
  exchange.onRequestStart(controller as never);
  exchange.onResponseStart(controller as never, 200, {});
  const data = (): void => exchange.onResponseData(controller as never, Buffer.from('x'));
  data();
  const at = (ms: number): void => {
    clock.advance(ms - clock.monotonicMs());
    exchange.checkLimits(ms);
  };
  return { exchange, data, at, failures: exchange.failures };
}

test('data that arrived while the process was suspended is read before the limits are checked', async (t) => {
  let send = (): void => undefined;
  const asked = Promise.withResolvers<void>();
  const url = await rawServer(t, (socket) =>
    socket.on('data', () => {
      send = () => void socket.write(OK);
      asked.resolve();
    }),
  );
  const still = stillClock();
  let sweep = (): void => undefined;
  const every: Clock['every'] = (ms, work) => {
    // The other timer checks idle connections.
    if (ms < 1_000) sweep = work;
    return () => undefined;
  };
  const clock = { ...still.clock, every };
  const pool = new UpstreamPool({ url, maxConnections: 1, connectMs: 1_000, clock });
  t.after(() => pool.destroy());
  const answered = get(pool);
  await asked.promise;
  send();
  // The process was paused for a minute: each timer fires once, before any socket is read.
  still.pass(60_000);
  sweep();
  assert.equal(await kindOf(answered), 'end');
  const unanswered = get(pool);
  still.pass(60_000);
  sweep();
  still.pass(50);
  sweep();
  assert.notEqual(await kindOf(unanswered), 'end');
});

test('the total time does not run while the reader pauses', () => {
  const { exchange, data, at, failures } = streaming();
  at(900);
  exchange.pause();
  exchange.pause();
  at(60_000);
  exchange.resume();
  // 900 ms have passed; 9,100 are left.
  for (let ms = 60_900; ms <= 69_000; ms += 900) {
    data();
    at(ms);
  }
  assert.deepEqual(failures, []);
  data();
  at(69_200);
  assert.deepEqual(failures, ['total-timeout']);
});

test('the sum of all pauses has a limit', () => {
  const { exchange, data, at, failures } = streaming();
  exchange.pause();
  at(HALF_AN_HOUR_MS - 1_000);
  exchange.resume();
  data();
  at(HALF_AN_HOUR_MS - 500);
  exchange.pause();
  at(HALF_AN_HOUR_MS + 400);
  assert.deepEqual(failures, []);
  at(HALF_AN_HOUR_MS + 600);
  assert.deepEqual(failures, ['paused-timeout']);
});

test('`fetchWhole` returns a response of any status, or the kind of failure', async (t) => {
  const url = await rawServer(t, (socket) =>
    socket.once('data', (asked) => {
      const isCut = asked.includes('/cut');
      socket.end(isCut ? 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart' : NOT_FOUND);
    }),
  );
  const pool = poolFor(t, url);
  const request = { method: 'GET', headers: [], body: null, limits: LIMITS } as const;
  const found = await fetchWhole(pool, { ...request, path: '/x', maxResponseBytes: 100 });
  const headers = { 'content-length': '2' };
  assert.deepEqual(found, { ok: true, status: 404, headers, body: Buffer.from('no') });
  const cut = await fetchWhole(pool, { ...request, path: '/cut', maxResponseBytes: 100 });
  assert.deepEqual([cut.ok, cut.status, !cut.ok && cut.kind], [false, 200, 'cut']);
});

const NOT_FOUND = 'HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\nno';

test('`fetchWhole` takes little more memory than the bytes of a response of single bytes', async (t) => {
  const pieces = 300_000;
  const url = await rawServer(t, (socket) => {
    socket.once('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n`);
      socket.write(`${'1\r\na\r\n'.repeat(pieces)}0\r\n\r\n`);
    });
  });
  const pool = poolFor(t, url);
  const usedBytes = heapBytes();
  let grownBytes = Infinity;
  const dispatch = pool.dispatch.bind(pool);
  t.mock.method(pool, 'dispatch', (exchange: Exchange) => {
    const end = exchange.onResponseEnd.bind(exchange);
    t.mock.method(exchange, 'onResponseEnd', () => {
      grownBytes = heapBytes() - usedBytes;
      end();
    });
    dispatch(exchange);
  });
  const fetched = await fetchWhole(pool, {
    method: 'GET',
    path: '/x',
    headers: [],
    body: null,
    limits: LIMITS,
    maxResponseBytes: pieces,
  });
  assert.ok(fetched.ok);
  assert.equal(fetched.body.length, pieces);
  assert.ok(grownBytes < 20 * pieces, String(grownBytes));
});
