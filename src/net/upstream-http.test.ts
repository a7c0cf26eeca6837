import { once } from 'node:events';
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { rawServer } from '../../test/support/raw-server.ts';
import { TEST_CERTIFICATE, TEST_KEY } from '../../test/support/test-certificate.ts';
import { until } from '../../test/support/until.ts';
import { systemClock } from '../core/clock.ts';
import {
  Exchange,
  type ReceivedHeaders,
  type UpstreamFailureKind,
  type UpstreamRequest,
} from './exchange.ts';
import { UpstreamPool, type UpstreamPoolOptions } from './upstream-pool.ts';

const LIMITS = { connectMs: 5_000, firstByteMs: 5_000, idleMs: 5_000, totalMs: 20_000 };

interface Heard {
  readonly status: number;
  readonly headers: ReceivedHeaders;
  readonly body: string;
  readonly end: 'end' | UpstreamFailureKind;
}

class Listener extends Exchange {
  readonly heard = Promise.withResolvers<Heard>();
  status = 0;
  headers: ReceivedHeaders = {};
  readonly pieces: Buffer[] = [];

  protected override onHead(status: number, headers: ReceivedHeaders): void {
    this.status = status;
    this.headers = headers;
  }

  protected override onChunk(chunk: Buffer): void {
    this.pieces.push(chunk);
  }

  protected override onEnd(): void {
    this.#end('end');
  }

  protected override onFailure(kind: UpstreamFailureKind): void {
    this.#end(kind);
  }

  #end(end: Heard['end']): void {
    const body = Buffer.concat(this.pieces).toString('latin1');
    this.heard.resolve({ status: this.status, headers: this.headers, body, end });
  }
}

function poolFor(t: TestContext, url: string, more: Partial<UpstreamPoolOptions> = {}) {
  const options = { url, maxConnections: 8, connectMs: 5_000, clock: systemClock() };
  const pool = new UpstreamPool({ ...options, ...more });
  t.after(() => pool.destroy());
  return pool;
}

function begin(pool: UpstreamPool, request: Partial<UpstreamRequest> = {}): Listener {
  const listener = new Listener(pool, {
    method: 'POST',
    path: '/x',
    headers: [],
    body: Buffer.from('{}'),
    limits: LIMITS,
    maxResponseBytes: 100_000_000,
    ...request,
  });
  pool.dispatch(listener);
  return listener;
}

function ask(pool: UpstreamPool, request: Partial<UpstreamRequest> = {}): Promise<Heard> {
  return begin(pool, request).heard.promise;
}

/** A server that sends one of these texts per connection, in order, and closes it. */
function answersOf(t: TestContext, texts: readonly string[]): Promise<string> {
  let next = 0;
  return rawServer(t, (socket) => {
    const text = texts[next++] ?? '';
    socket.once('data', () => socket.end(text, 'latin1'));
  });
}

const OK = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;

/** Raw responses, and the expected status, body and end. */
const ANSWERS: readonly (readonly [string, number, string, Heard['end']])[] = [
  [`${OK}content-length: 2\r\n\r\nok`, 200, 'ok', 'end'],
  [`${OK}Content-Length:\t2\r\n\r\nok`, 200, 'ok', 'end'],
  ['HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok', 200, 'ok', 'end'],
  ['HTTP/1.0 404 Not \xe9\r\n\r\ntill the end', 404, 'till the end', 'end'],
  [`${OK}content-length: 0\r\n\r\n`, 200, '', 'end'],
  ['HTTP/1.1 204 No\r\n\r\n', 204, '', 'end'],
  [`HTTP/1.1 103 Early\r\nlink: a\r\n\r\n${OK}content-length: 2\r\n\r\nok`, 200, 'ok', 'end'],
  [`${CHUNKED}2\r\nok\r\n0\r\n\r\n`, 200, 'ok', 'end'],
  [
    `${CHUNKED}0A;a="b c"\r\n0123456789\r\n1;b\r\n!\r\n000\r\nx-sum: 1\r\n\r\n`,
    200,
    '0123456789!',
    'end',
  ],
  [`${CHUNKED}0\r\n\r\n`, 200, '', 'end'],
  // Truncated responses.
  ['', 0, '', 'reset'],
  ['HTTP/1.1 200', 0, '', 'reset'],
  [`${OK}content-length: 3\r\n\r\nok`, 200, 'ok', 'cut'],
  [`${CHUNKED}2\r\nok\r\n`, 200, 'ok', 'cut'],
  [`${CHUNKED}2\r\nok\r\n0\r\n`, 200, 'ok', 'cut'],
  [`${CHUNKED}2`, 200, '', 'reset'],
  // Responses that are not HTTP/1.1, or ambiguous.
  ['HTTP/2 200 OK\r\n\r\n', 0, '', 'garbage'],
  ['HTTP/1.1 101 Switch\r\nupgrade: x\r\n\r\n', 0, '', 'garbage'],
  ['HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n', 0, '', 'garbage'],
  [`${OK}content-length: 2\r\ncontent-length: 3\r\n\r\nok!`, 0, '', 'garbage'],
  [`${OK}content-length: +2\r\n\r\nok`, 0, '', 'garbage'],
  [`${OK}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok`, 0, '', 'garbage'],
  [`${OK}x: a\r\n folded\r\ncontent-length: 2\r\n\r\nok`, 0, '', 'garbage'],
  [`${OK}x : a\r\ncontent-length: 2\r\n\r\nok`, 0, '', 'garbage'],
  [`${OK}x: a\0b\r\ncontent-length: 2\r\n\r\nok`, 0, '', 'garbage'],
  [`${OK}x: ${'a'.repeat(70_000)}\r\ncontent-length: 2\r\n\r\nok`, 0, '', 'garbage'],
  [`${CHUNKED}x\r\nok\r\n0\r\n\r\n`, 200, '', 'garbage'],
  [`${CHUNKED}2\nok\r\n0\r\n\r\n`, 200, '', 'garbage'],
  [`${CHUNKED}2\r\nokay\r\n0\r\n\r\n`, 200, 'ok', 'cut'],
];

test('responses are parsed by RFC 9112, and others are rejected', async (t) => {
  const pool = poolFor(
    t,
    await answersOf(
      t,
      ANSWERS.map(([text]) => text),
    ),
  );
  for (const [text, status, body, end] of ANSWERS) {
    const heard = await ask(pool);
    assert.deepEqual([heard.status, heard.body, heard.end], [status, body, end], text.slice(0, 99));
  }
});

test('header names are in lower case, and a repeated header is a list', async (t) => {
  const head = 'X-One:  a b\r\nSet-Cookie: a\r\nset-cookie: b\r\nSET-COOKIE:\r\nconstructor: c\r\n';
  const pool = poolFor(t, await answersOf(t, [`${OK}${head}content-length: 0\r\n\r\n`]));
  const { headers } = await ask(pool);
  assert.deepEqual(Object.entries(headers), [
    ['x-one', 'a b'],
    ['set-cookie', ['a', 'b', '']],
    ['constructor', 'c'],
    ['content-length', '0'],
  ]);
});

test('a head with one name a thousand times costs no more than another', async (t) => {
  const head = 'a:\r\n'.repeat(16_000);
  const pool = poolFor(t, await answersOf(t, [`${OK}${head}content-length: 0\r\n\r\n`]));
  const before = process.cpuUsage();
  const { headers } = await ask(pool);
  assert.equal(headers['a']?.length, 16_000);
  // Guards against a former cost of two seconds.
  assert.ok(process.cpuUsage(before).user < 500_000);
});

/** A server that records what it reads, and responds to each short request with OK. */
async function keepingServer(t: TestContext, answer = `${OK}content-length: 2\r\n\r\nok`) {
  const seen = { text: '', connections: 0, ended: 0 };
  const url = await rawServer(t, (socket) => {
    seen.connections += 1;
    socket.on('end', () => (seen.ended += 1));
    socket.on('data', (data) => {
      seen.text += data.toString('latin1');
      socket.write(answer);
    });
  });
  return { seen, url };
}

test('a request is written as given', async (t) => {
  const { seen, url } = await keepingServer(t);
  const { host } = new URL(url);
  const pool = poolFor(t, `${url}/v1/`);
  await ask(pool, { headers: ['x-a', '1', 'X-B', '\xe9'], body: Buffer.from('{"a":"é"}') });
  await ask(pool, { method: 'GET', path: '/models', body: null });
  await ask(pool, { method: 'DELETE', path: '/x?y=%20', headers: ['Host', 'h'], body: null });
  assert.equal(
    seen.text,
    `POST /v1/x HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\nx-a: 1\r\nX-B: \xe9\r\ncontent-length: 10\r\n\r\n{"a":"\xc3\xa9"}` +
      `GET /v1/models HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n\r\n` +
      'DELETE /v1/x?y=%20 HTTP/1.1\r\nhost: h\r\nconnection: keep-alive\r\n\r\n',
  );
});

test('values cannot inject anything into the head of a request', async (t) => {
  const { seen, url } = await keepingServer(t);
  const pool = poolFor(t, url);
  for (const headers of [
    ['x', 'a\r\nx-admin: 1'],
    ['x\r\ny', 'a'],
    ['x', 'a\nb'],
    ['', 'a'],
    ['x y', 'a'],
    ['x', '\u20ac'],
    ['transfer-encoding', 'chunked'],
    ['Content-Length', '0'],
  ]) {
    assert.equal((await ask(pool, { headers })).end, 'connect', JSON.stringify(headers));
  }
  for (const path of ['/a b', '/a\r\nx: 1', '/\u20ac']) {
    assert.equal((await ask(pool, { path })).end, 'connect', path);
  }
  assert.equal(seen.text, '');
  assert.equal((await ask(pool)).end, 'end');
});

test('a body of any size arrives whole', async (t) => {
  let left = 0;
  const url = await rawServer(t, (socket) => {
    socket.on('data', (data: Buffer) => {
      if (left === 0) {
        const head = data.indexOf('\r\n\r\n') + 4;
        left = Number(/content-length: (\d+)/.exec(data.toString('latin1'))?.[1]) + head;
      }
      left -= data.length;
      if (left === 0) socket.write(`${OK}content-length: 2\r\n\r\nok`);
    });
  });
  const pool = poolFor(t, url);
  for (const size of [0, 1, 16_384, 16_385, 262_143, 262_144, 262_145, 3_000_000]) {
    assert.equal((await ask(pool, { body: Buffer.alloc(size, 'a') })).end, 'end', `${size} bytes`);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(pool.connected, 1);
});

test('a body of another length than declared fails the exchange', async (t) => {
  const pool = poolFor(t, await rawServer(t, (socket) => void socket.resume()));
  for (const sizeBytes of [5, 20]) {
    const body = {
      sizeBytes,
      async *open() {
        yield Buffer.from('0123456789');
      },
    };
    assert.equal((await ask(pool, { body })).end, 'unread');
  }
});

test('a connection serves requests in turn, and none after an ambiguous response', async (t) => {
  const ambiguous = [
    `${OK}connection: close\r\ncontent-length: 2\r\n\r\nok`,
    `${OK}content-length: 2\r\n\r\nok and more`,
    `${OK}keep-alive: timeout=2\r\ncontent-length: 2\r\n\r\nok`,
    'HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok',
  ];
  for (const answer of [
    'HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok',
    `${CHUNKED}2\r\nok\r\n0\r\n\r\n`,
    ...ambiguous,
  ]) {
    const { seen, url } = await keepingServer(t, answer);
    const pool = poolFor(t, url);
    for (let count = 0; count < 3; count += 1) {
      assert.equal((await ask(pool)).body, 'ok');
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(seen.connections, ambiguous.includes(answer) ? 3 : 1, answer);
  }
});

test('an illegal body of a 204 does not reach another response', async (t) => {
  const url = await rawServer(t, (socket) => {
    let late = '';
    socket.on('data', () => {
      socket.write(`${late}HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n`);
      late = '0\r\n\r\n';
    });
  });
  const pool = poolFor(t, url);
  for (let count = 0; count < 3; count += 1) {
    assert.equal((await ask(pool)).end, 'end');
    await new Promise((resolve) => setImmediate(resolve));
  }
});

test('a body in tiny chunks with long extensions takes no more memory than it has bytes', async (t) => {
  const chunk = `1;${'x'.repeat(4_000)}\r\na\r\n`;
  const count = 2_000;
  const url = await rawServer(t, (socket) => {
    socket.once('data', () => socket.end(`${CHUNKED}${chunk.repeat(count)}0\r\n\r\n`));
  });
  const listener = begin(poolFor(t, url));
  const { body, end } = await listener.heard.promise;
  assert.deepEqual([body, end], ['a'.repeat(count), 'end']);
  const held = new Set(listener.pieces.map(({ buffer }) => buffer));
  const heldBytes = [...held].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(heldBytes < 200_000, `${heldBytes} bytes`);
});

test('bytes on an idle connection close it', async (t) => {
  const sockets: Socket[] = [];
  const url = await rawServer(t, (socket) => {
    sockets.push(socket);
    socket.on('data', () => socket.write(`${OK}content-length: 2\r\n\r\nok`));
  });
  const pool = poolFor(t, url);
  await ask(pool);
  sockets[0]?.write(`${OK}content-length: 6\r\n\r\nforged`);
  await until(() => pool.connected === 0, 'the end of the connection');
  assert.equal((await ask(pool)).body, 'ok');
});

test('idle connections close after their time limit', async (t) => {
  const { seen, url } = await keepingServer(t);
  const pool = poolFor(t, url, { keepAliveMs: 50 });
  await ask(pool);
  assert.equal(pool.connected, 1);
  await until(() => seen.ended === 1, 'the end at the server');
  assert.equal(pool.connected, 0);
});

test('a handshake has a time limit', async (t) => {
  // The server accepts the connection and never starts TLS.
  const url = await rawServer(t, (socket) => void socket.resume());
  const pool = poolFor(t, url.replace('http:', 'https:'), { connectMs: 50 });
  const limits = { ...LIMITS, connectMs: 1_000_000, totalMs: 1_000_000 };
  assert.equal((await ask(pool, { limits })).end, 'connect');
  const refused = poolFor(t, 'http://127.0.0.1:1');
  assert.equal((await ask(refused)).end, 'connect');
  assert.equal(refused.connected, 0);
});

test('requests above the connection limit wait, also for a connection that replaces a failed one', async (t) => {
  let connections = 0;
  const url = await rawServer(t, (socket) => {
    connections += 1;
    const isBad = connections <= 4;
    socket.on('data', () => {
      if (isBad) socket.destroy();
      else socket.write(`${OK}content-length: 2\r\n\r\nok`);
    });
  });
  const pool = poolFor(t, url);
  const heard = await Promise.all(Array.from({ length: 50 }, () => ask(pool)));
  assert.equal(heard.filter(({ end }) => end === 'reset').length, 4);
  assert.equal(heard.filter(({ end }) => end === 'end').length, 46);
  assert.ok(pool.connected <= 8);
});

/** Pauses at each piece, and continues in the next turn. */
class SlowListener extends Listener {
  paused = 0;

  protected override onChunk(chunk: Buffer): void {
    super.onChunk(chunk);
    this.pause();
    this.paused += 1;
    setImmediate(() => this.resume());
  }

  protected override onEnd(): void {
    assert.equal(this.isPaused, false);
    super.onEnd();
  }
}

test('a paused reader receives at most one more piece, and not the end', async (t) => {
  const size = 5_000_000;
  for (const head of [`content-length: ${size}`, 'transfer-encoding: chunked', 'x: y']) {
    const isChunked = head.startsWith('transfer');
    const url = await rawServer(t, (socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.${head === 'x: y' ? 0 : 1} 200 OK\r\n${head}\r\n\r\n`);
        const data = 'a'.repeat(size);
        socket.end(isChunked ? `${size.toString(16)}\r\n${data}\r\n0\r\n\r\n` : data);
      });
    });
    const listener = begin(poolFor(t, url));
    await until(() => listener.pieces.length > 0, 'the first bytes');
    listener.pause();
    const { length } = listener.pieces;
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(listener.pieces.length <= length + 1);
    listener.resume();
    const { body, end } = await listener.heard.promise;
    assert.deepEqual([body.length, end], [size, 'end'], head);
    const slowPool = poolFor(t, url);
    const slow = new SlowListener(slowPool, listener.request);
    slowPool.dispatch(slow);
    const read = await slow.heard.promise;
    assert.deepEqual([read.body.length, read.end], [size, 'end'], head);
  }
});

test('TLS sessions are resumed, large responses pause, and certificates must be trusted', async (t) => {
  let resumed = 0;
  const url = await rawServer(
    t,
    (socket) => {
      if ('isSessionReused' in socket && (socket.isSessionReused as () => boolean)()) resumed += 1;
      socket.once('data', (data) => {
        socket.resume();
        const size = data.includes('/large') ? 3_000_000 : 2;
        socket.write(`${OK}content-length: ${size}\r\n\r\n${'a'.repeat(size)}`);
        if (size === 2) socket.end();
      });
    },
    { key: TEST_KEY, cert: TEST_CERTIFICATE },
  );
  assert.equal((await ask(poolFor(t, url))).end, 'connect');
  const trusted = getCACertificates('default');
  setDefaultCACertificates([...trusted, TEST_CERTIFICATE]);
  t.after(() => setDefaultCACertificates(trusted));
  const pool = poolFor(t, url);
  for (let count = 0; count < 2; count += 1) {
    assert.equal((await ask(pool)).body, 'aa');
    await until(() => pool.connected === 0, 'the end of the connection');
  }
  assert.equal(resumed, 1);
  const slow = new SlowListener(pool, {
    method: 'POST',
    path: '/large',
    headers: [],
    body: Buffer.alloc(300_000),
    limits: LIMITS,
    maxResponseBytes: 10_000_000,
  });
  pool.dispatch(slow);
  const { body, end } = await slow.heard.promise;
  assert.deepEqual([body.length, end], [3_000_000, 'end']);
  assert.ok(slow.paused > 10);
});

test('an error of the handler ends the exchange, not the process', async (t) => {
  const { url } = await keepingServer(t);
  class Faulty extends Listener {
    protected override onChunk(): void {
      throw new Error('a bug');
    }
  }
  const pool = poolFor(t, url);
  const faulty = new Faulty(pool, {
    method: 'GET',
    path: '/',
    headers: [],
    body: null,
    limits: LIMITS,
    maxResponseBytes: 100,
  });
  pool.dispatch(faulty);
  assert.equal((await faulty.heard.promise).end, 'cut');
  class FaultyAtTheEnd extends Listener {
    protected override onEnd(): void {
      throw new Error('a bug');
    }
  }
  // The test runner would report the rejection as a failure of this file.
  const listeners = process.listeners('unhandledRejection');
  process.removeAllListeners('unhandledRejection');
  t.after(() => {
    process.removeAllListeners('unhandledRejection');
    for (const listener of listeners) process.on('unhandledRejection', listener);
  });
  const rejected = once(process, 'unhandledRejection');
  pool.dispatch(new FaultyAtTheEnd(pool, faulty.request));
  assert.match(String((await rejected)[0]), /a bug/);
  assert.equal(pool.running.size, 0);
  assert.equal((await ask(pool)).end, 'end');
});
