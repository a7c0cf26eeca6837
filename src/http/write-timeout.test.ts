/** Callers that take bytes and callers that take none, on real connections. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { limitWrites } from './write-timeout.ts';

const TIMEOUT_MS = 400;
/** The limit may be overrun by an eighth, and a busy machine by more. */
const LATE_MS = 2_000;
/** More than the kernel's buffers take on both sides. */
const LARGE = Buffer.alloc(32_000_000, 'x');

/** A client that reads nothing, once its request is with the listener. */
async function serve(
  t: TestContext,
  listener: RequestListener,
  timeoutMs = TIMEOUT_MS,
): Promise<Socket> {
  const server = createServer(listener);
  limitWrites(server, { clock: systemClock(), log: silentLog, timeoutMs });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.pause();
  socket.on('error', () => undefined); // cut off
  t.after(() => {
    socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  const heard = once(server, 'request');
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await heard;
  return socket;
}

async function closedWithin(closed: Promise<unknown>, limitMs: number): Promise<boolean> {
  return Promise.race([closed.then(() => true), delay(limitMs, false)]);
}

test('a body in one write that nobody reads is cut off', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const from = performance.now();
  await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.end(LARGE);
  });
  assert.equal(await closedWithin(closed, TIMEOUT_MS + LATE_MS), true);
  assert.ok(performance.now() - from >= TIMEOUT_MS);
});

test('a pipeline that nobody reads ends, and lets its source go', async (t) => {
  const source = Readable.from(
    (function* () {
      for (;;) yield LARGE.subarray(0, 65_536);
    })(),
  );
  let piped: Promise<unknown> = Promise.resolve();
  await serve(t, (_request, response) => {
    piped = assert.rejects(pipeline(source, response));
  });
  assert.equal(await closedWithin(piped, TIMEOUT_MS + LATE_MS), true);
  assert.equal(source.destroyed, true);
});

test('small pieces that are written on and on do not keep a caller that reads nothing', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.write(LARGE);
    const timer = setInterval(() => response.write(': keep-alive\n\n'), 20);
    response.on('close', () => clearInterval(timer));
  });
  assert.equal(await closedWithin(closed, TIMEOUT_MS + LATE_MS), true);
});

test('a caller that sends more and reads nothing is cut off', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const socket = await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.end(LARGE);
  });
  socket.write('GET /');
  const timer = setInterval(() => socket.write('a'), 20);
  t.after(() => clearInterval(timer));
  assert.equal(await closedWithin(closed, TIMEOUT_MS + LATE_MS), true);
});

test('a slow reader gets all, however long it takes', async (t) => {
  // A busy machine wakes it late: it may be late by six times its pause.
  const pauseMs = 100;
  const timeoutMs = 6 * pauseMs;
  const socket = await serve(t, (_request, response) => response.end(LARGE), timeoutMs);
  let sizeBytes = 0;
  let roomBytes = 0;
  socket.on('data', (chunk: Buffer) => {
    sizeBytes += chunk.length;
    roomBytes -= chunk.length;
    if (roomBytes <= 0) socket.pause();
  });
  const from = performance.now();
  while (sizeBytes < LARGE.length) {
    roomBytes = LARGE.length / 16;
    socket.resume();
    await delay(pauseMs);
    assert.equal(socket.destroyed, false, `cut off after ${sizeBytes} bytes`);
  }
  assert.ok(performance.now() - from > 2 * timeoutMs);
});

test('a connection without an answer on its way is left alone', async (t) => {
  const socket = await serve(t, (_request, response) => response.end('small'));
  await delay(3 * TIMEOUT_MS);
  socket.resume();
  const [answer] = await once(socket, 'data');
  assert.match(String(answer), /small$/);
});
