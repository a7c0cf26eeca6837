import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { rawServer } from '../../test/support/raw-server.ts';
import { until } from '../../test/support/until.ts';
import { systemClock } from '../core/clock.ts';
import type { UpstreamRequest } from './exchange.ts';
import { type Fetched, UpstreamPool, fetchWhole } from './upstream-pool.ts';
import { Origins } from './origins.ts';

const LIMITS = { connectMs: 5_000, firstByteMs: 5_000, idleMs: 5_000, totalMs: 20_000 };

/** The pools of one origin, and its reported losses of keep-alive. */
function poolsFor(t: TestContext, url: string) {
  const lost: string[] = [];
  const origins = new Origins(({ name }) => lost.push(name));
  const open = (): UpstreamPool => {
    const pool = new UpstreamPool({
      url,
      maxConnections: 64,
      connectMs: 5_000,
      clock: systemClock(),
      origins,
    });
    t.after(() => pool.destroy());
    return pool;
  };
  return { lost, open };
}

function ask(pool: UpstreamPool, body: string, more: Partial<UpstreamRequest> = {}) {
  return fetchWhole(pool, {
    method: 'POST',
    path: '/x',
    headers: [],
    body: Buffer.from(body),
    limits: LIMITS,
    maxResponseBytes: 1_000_000,
    ...more,
  });
}

function textOf(fetched: Fetched): string {
  return fetched.ok ? fetched.body.toString() : fetched.kind;
}

function responseWith(body: string): string {
  return `HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

interface Asked {
  readonly body: string;
  readonly head: string;
  /** Number of earlier requests on this connection. */
  readonly before: number;
  readonly socket: Socket;
}

/** A server that calls `answer` with each request. */
async function server(t: TestContext, answer: (asked: Asked) => void) {
  const seen = { connections: 0 };
  const url = await rawServer(t, (socket) => {
    seen.connections += 1;
    let text = '';
    let before = 0;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      for (;;) {
        const end = text.indexOf('\r\n\r\n');
        const sizeBytes = Number(/content-length: (\d+)/.exec(text)?.[1] ?? 0);
        if (end < 0 || text.length < end + 4 + sizeBytes) return;
        const [head, body] = [text.slice(0, end), text.slice(end + 4, end + 4 + sizeBytes)];
        text = text.slice(end + 4 + sizeBytes);
        answer({ head, body, before, socket });
        before += 1;
      }
    });
  });
  return { seen, url };
}

test('after a stray response, late second responses reach no other caller, whatever their delay', async (t) => {
  let late = 0;
  const { seen, url } = await server(t, ({ body, socket }) => {
    const text = responseWith(body);
    socket.write(text);
    // The second response comes 0 to 3 ms later.
    const second = (): void => {
      late += 1;
      if (socket.writable) socket.write(text);
    };
    const delayMs = Number(body) % 4;
    if (delayMs === 0) setImmediate(second);
    else setTimeout(second, delayMs);
  });
  const { lost, open } = poolsFor(t, url);
  const pool = open();
  assert.equal(textOf(await ask(pool, '1000001')), '1000001');
  await until(() => !pool.keepsAlive, 'the loss of keep-alive');
  const connectionsBefore = seen.connections;
  let count = 0;
  let foreign = 0;
  const lane = async (): Promise<void> => {
    while (count < 2_000) {
      const id = String(1_000_002 + count++);
      if (textOf(await ask(pool, id)) !== id) foreign += 1;
    }
  };
  await Promise.all(Array.from({ length: 16 }, lane));
  assert.equal(foreign, 0);
  assert.ok(late > 500, `only ${late} second responses`);
  assert.equal(seen.connections - connectionsBefore, count, 'each has a connection of its own');
  assert.equal(lost.length, 1, 'it is reported once');
});

test('bytes on an idle connection, after a response and before a head end keep-alive', async (t) => {
  const cases: readonly ((asked: Asked) => void)[] = [
    ({ socket, body }) => {
      socket.write(responseWith(body));
      setImmediate(() => socket.write('x'));
    },
    ({ socket, body }) => socket.write(`${responseWith(body)}HTTP`),
    ({ socket, body }) =>
      socket.write(
        `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${body.length}\r\n${body}\r\n0\r\n\r\nx`,
      ),
    ({ socket, body, before }) => socket.write(`${before > 0 ? '0\r\n' : ''}${responseWith(body)}`),
  ];
  for (const [at, answer] of cases.entries()) {
    const { url } = await server(t, answer);
    const { lost, open } = poolsFor(t, url);
    const pool = open();
    assert.equal(textOf(await ask(pool, 'first')), 'first', `case ${at}`);
    if (at === 3) {
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(textOf(await ask(pool, 'second')), 'ambiguous');
    }
    await until(() => !pool.keepsAlive, `the loss of keep-alive in case ${at}`);
    assert.equal(textOf(await ask(pool, 'third')), 'third', `case ${at}`);
    assert.equal(lost.length, 1);
  }
});

test('a response with trailing bytes on a reused connection does not reach the caller', async (t) => {
  // The second response to "a" comes together with the response to "b".
  const { url } = await server(t, ({ body, before, socket }) => {
    socket.write(before === 0 ? responseWith(body) : responseWith('a') + responseWith(body));
  });
  const pool = poolsFor(t, url).open();
  assert.equal(textOf(await ask(pool, 'a')), 'a');
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(textOf(await ask(pool, 'b')), 'ambiguous');
  assert.equal(pool.keepsAlive, false);
});

test('a success that arrives before the request was written belongs to an earlier request', async (t) => {
  const { url } = await server(t, ({ body, socket }) => {
    socket.write(responseWith(body));
    socket.on('data', () => socket.write(responseWith(body)));
  });
  const pool = poolsFor(t, url).open();
  assert.equal(textOf(await ask(pool, 'a')), 'a');
  await new Promise((resolve) => setImmediate(resolve));
  async function* open(): AsyncGenerator<Buffer> {
    yield Buffer.from('b');
    await new Promise<never>(() => undefined);
  }
  const body = { sizeBytes: 2, open };
  assert.equal(textOf(await ask(pool, '', { body })), 'ambiguous');
  assert.equal(pool.keepsAlive, false);
});

test('at the loss of keep-alive, requests on reused connections fail, those on new ones do not', async (t) => {
  const waiting: Asked[] = [];
  const { url } = await server(t, (asked) => {
    if (asked.body === 'wait') waiting.push(asked);
    else asked.socket.write(responseWith(asked.body));
  });
  const { open } = poolsFor(t, url);
  const [pool, other] = [open(), open()];
  await Promise.all([ask(pool, 'a'), ask(other, 'b')]);
  await new Promise((resolve) => setImmediate(resolve));
  const reused = [ask(pool, 'wait'), ask(other, 'wait')];
  await until(() => waiting.length === 2, 'the requests on reused connections');
  const fresh = [ask(pool, 'wait'), ask(other, 'wait')];
  await until(() => waiting.length === 4, 'the requests on new connections');
  waiting[2]?.socket.write(`${responseWith('kept')}x`);
  assert.deepEqual((await Promise.all(reused)).map(textOf), ['ambiguous', 'ambiguous']);
  waiting[3]?.socket.write(responseWith('kept'));
  assert.deepEqual((await Promise.all(fresh)).map(textOf), ['kept', 'kept']);
  assert.deepEqual([pool.keepsAlive, other.keepsAlive], [false, false]);
});

test('a later pool for the origin has no keep-alive either, and sends `connection: close`', async (t) => {
  const heads: string[] = [];
  const { seen, url } = await server(t, ({ body, head, socket }) => {
    heads.push(head);
    socket.write(`${responseWith(body)}${body === 'bad' ? 'x' : ''}`);
  });
  const { lost, open } = poolsFor(t, url);
  const first = open();
  assert.equal(textOf(await ask(first, 'bad')), 'bad');
  await first.destroy();
  const second = open();
  for (const body of ['a', 'b', 'c']) assert.equal(textOf(await ask(second, body)), body);
  assert.equal(seen.connections, 4);
  assert.deepEqual(
    heads.map((head) => head.includes('connection: close')),
    [false, true, true, true],
  );
  assert.equal(lost.length, 1);
});
