/** Callers that take bytes and callers that take none, on real connections. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type TestContext, test } from 'node:test';
import { silentLog } from '../core/log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { limitWrites } from './write-timeout.ts';

const TIMEOUT_MS = 400;
const LOOK_MS = TIMEOUT_MS / 8;
/** More than the kernel's buffers take on both sides. */
const LARGE = Buffer.alloc(32_000_000, 'x');

/** A client that reads nothing, once its request is with the listener, and the time of the server. */
async function serve(
  t: TestContext,
  listener: RequestListener,
  clock = new TestClock(0),
): Promise<{ readonly socket: Socket; readonly clock: TestClock }> {
  const server = createServer(listener);
  limitWrites(server, { clock, log: silentLog, timeoutMs: TIMEOUT_MS });
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
  return { socket, clock };
}

/** Lets time go on until it has closed; the time that it took. */
async function timeToClose(clock: TestClock, closed: Promise<unknown>): Promise<number> {
  let isClosed = false;
  void closed.then(() => (isClosed = true));
  await until(() => {
    if (!isClosed) clock.advance(LOOK_MS);
    return isClosed;
  }, 'its end');
  return clock.monotonicMs();
}

test('an unread body of one write is cut off', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const { clock } = await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.end(LARGE);
  });
  assert.ok((await timeToClose(clock, closed)) >= TIMEOUT_MS);
});

test('an unread pipeline ends and destroys its source', async (t) => {
  const source = Readable.from(
    (function* () {
      for (;;) yield LARGE.subarray(0, 65_536);
    })(),
  );
  let piped: Promise<unknown> = Promise.resolve();
  const { clock } = await serve(t, (_request, response) => {
    piped = assert.rejects(pipeline(source, response));
  });
  await timeToClose(clock, piped);
  assert.equal(source.destroyed, true);
});

test('further small pieces do not keep the connection of a caller that reads nothing', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const { clock } = await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.write(LARGE);
    const timer = setInterval(() => response.write(': keep-alive\n\n'), 1);
    response.on('close', () => clearInterval(timer));
  });
  await timeToClose(clock, closed);
});

test('a caller that sends more and reads nothing is cut off', async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const { socket, clock } = await serve(t, (_request, response) => {
    closed = once(response, 'close');
    response.end(LARGE);
  });
  socket.write('GET /');
  const timer = setInterval(() => socket.write('a'), 1);
  t.after(() => clearInterval(timer));
  await timeToClose(clock, closed);
});

test('a slow reader gets everything, however long it takes', async (t) => {
  const { socket, clock } = await serve(t, (_request, response) => response.end(LARGE));
  let sizeBytes = 0;
  let roomBytes = 0;
  socket.on('data', (chunk: Buffer) => {
    sizeBytes += chunk.length;
    roomBytes -= chunk.length;
    if (roomBytes <= 0) socket.pause();
  });
  while (sizeBytes < LARGE.length) {
    roomBytes = LARGE.length / 20;
    socket.resume();
    await until(() => roomBytes <= 0 || sizeBytes >= LARGE.length, 'some of it');
    assert.equal(socket.destroyed, false, `cut off after ${sizeBytes} bytes`);
    clock.advance(LOOK_MS);
  }
  assert.ok(clock.monotonicMs() > 2 * TIMEOUT_MS);
});

test('a suspended process cuts no connection off', async (t) => {
  const clock = new TestClock(0);
  // As of the system: after a pause it fires once.
  let look = (): void => undefined;
  clock.every = (_ms, work) => {
    look = work;
    return () => undefined;
  };
  const { socket } = await serve(t, (_request, response) => response.end(LARGE), clock);
  look();
  clock.advance(100 * TIMEOUT_MS);
  look();
  let sizeBytes = 0;
  socket.on('data', (chunk: Buffer) => (sizeBytes += chunk.length));
  socket.resume();
  await until(() => sizeBytes > LARGE.length, 'all of it');
});

test('a connection without a pending response stays open', async (t) => {
  const { socket, clock } = await serve(t, (_request, response) => response.end('small'));
  clock.advance(3 * TIMEOUT_MS);
  socket.resume();
  const [answer] = await once(socket, 'data');
  assert.match(String(answer), /small$/);
});
