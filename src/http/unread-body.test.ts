/** Callers that get their response before they have sent their request body, on real connections. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type Bench, chatBody, startWithEngine } from '../../test/app/call.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { SECOND_MS } from '../core/clock.ts';

const LIMIT_BYTES = 20_000;
const PIECE = Buffer.alloc(65_536, 'x');
const CHUNK = Buffer.concat([Buffer.from('10000\r\n'), PIECE, Buffer.from('\r\n')]);
/** More than a machine without load sends between two checks. */
const MAX_SENT_BYTES = 4 * 1_024 ** 3;

describe('a response before the end of the request body', () => {
  let bench: Bench;
  let secret: string;

  before(async () => {
    bench = await startWithEngine({
      yaml: `http: { jsonLimitBytes: ${LIMIT_BYTES}, requestTimeoutSeconds: 10 }`,
    });
    ({ secret } = await bench.farebox.account('5'));
  });
  after(() => bench.stop());

  function open(
    { farebox } = bench,
    allowHalfOpen = false,
  ): { readonly socket: Socket; readonly received: () => string } {
    const { hostname, port } = new URL(farebox.url);
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen });
    let text = '';
    socket.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    socket.on('error', () => undefined); // the server closes the connection
    return { socket, received: () => text };
  }

  const headOf = (path: string, key: string, framing: string): string =>
    [
      `POST /api/v1${path} HTTP/1.1`,
      'host: x',
      `authorization: Bearer ${key}`,
      'content-type: application/json',
      `${framing}\r\n\r\n`,
    ].join('\r\n');
  const LARGE = 'content-length: 100000000000';
  const CHUNKED = 'transfer-encoding: chunked';

  /** Sends until the server closes the connection; returns the number of bytes. */
  async function sendForEver(socket: Socket, head: string): Promise<number> {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    socket.once('close', () => resolve());
    socket.write(head);
    const piece = head.includes(CHUNKED) ? CHUNK : PIECE;
    let sentBytes = 0;
    while (!socket.closed && sentBytes < MAX_SENT_BYTES) {
      sentBytes += piece.length;
      if (socket.write(piece)) continue;
      const drained = new Promise<void>((drain) => socket.once('drain', () => drain()));
      await Promise.race([drained, closed]);
    }
    socket.destroy();
    return sentBytes;
  }

  const cases = [
    ['a body above its limit', 413, '/chat/completions', () => secret, LARGE],
    ['a chunked body above its limit', 413, '/chat/completions', () => secret, CHUNKED],
    ['an unknown key', 401, '/chat/completions', () => 'none', LARGE],
    ['an unknown path', 404, '/none', () => secret, CHUNKED],
    ['a body of another type', 415, '/audio/transcriptions', () => secret, LARGE],
  ] as const;
  for (const [title, status, path, keyOf, framing] of cases) {
    test(`${title} is read up to a bound, after which the connection is closed`, async () => {
      const { socket, received } = open();
      const sentBytes = await sendForEver(socket, headOf(path, keyOf(), framing));
      assert.ok(sentBytes < MAX_SENT_BYTES, `${sentBytes} bytes were sent`);
      assert.match(received(), new RegExp(`^HTTP/1\\.1 ${status} `));
    });
  }

  test('a caller that sends nothing more is disconnected after 30 seconds', async (t) => {
    const clock = new TestClock();
    const waiting = await startWithEngine({ clock });
    t.after(() => waiting.stop());
    const { socket, received } = open(waiting);
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    socket.write(headOf('/chat/completions', 'none', LARGE));
    await until(() => received().startsWith('HTTP/1.1 401 '), 'the response');
    clock.advance(29 * SECOND_MS);
    await delay(50);
    assert.ok(!socket.closed);
    clock.advance(2 * SECOND_MS);
    await closed;
  });

  test('a caller that ends its connection with the request can send the rest', async () => {
    const body = Buffer.alloc(20_000_000, 'x');
    const head = headOf('/chat/completions', 'none', `content-length: ${body.length}`);
    for (const sent of [
      head.replace('host: x', 'host: x\r\nconnection: close'),
      // As nginx does by default.
      head.replace('HTTP/1.1', 'HTTP/1.0'),
    ]) {
      const { socket, received } = open();
      const closed = once(socket, 'close');
      socket.write(sent);
      const written = await new Promise((resolve) => socket.write(body, resolve));
      assert.equal(written ?? undefined, undefined);
      await closed;
      assert.match(received(), /^HTTP\/1\.1 401 [^]*\r\nconnection: close\r\n/i);
    }
  });

  test('the time limit of a request adds no response to an earlier one', async (t) => {
    const short = await startWithEngine({ yaml: 'http: { requestTimeoutSeconds: 1 }' });
    t.after(() => short.stop());
    const { socket, received } = open(short);
    const closed = once(socket, 'close');
    socket.write(headOf('/chat/completions', 'none', 'content-length: 1000'));
    await until(() => received().startsWith('HTTP/1.1 401 '), 'the response');
    await closed;
    assert.equal(received().match(/HTTP\/1\.1 /g)?.length, 1, received());
  });

  test('an announced end comes although the body ends before the response', async () => {
    const { ledger } = bench.farebox.app.stores;
    const funds = ledger.funds.bind(ledger);
    const { promise: isRead, resolve: read } = Promise.withResolvers<void>();
    const { promise: isSent, resolve: sent } = Promise.withResolvers<void>();
    ledger.funds = async (accountId) => {
      read();
      await isSent;
      return await funds(accountId);
    };
    const { socket, received } = open();
    const closed = once(socket, 'close');
    const head = headOf('/chat/completions', secret, CHUNKED);
    socket.write(head.replace('application/json', 'text/plain'));
    await isRead;
    socket.write('2\r\n{}\r\n0\r\n\r\n');
    await delay(50);
    sent();
    await closed;
    assert.match(received(), /^HTTP\/1\.1 415 [^]*\r\nconnection: close\r\n/i);
    ledger.funds = funds;
  });

  test('a request behind another one gets no 100 inside of its response', async () => {
    for (const chunks of [3, 1]) bench.upstream.script.push({ kind: 'stream', chunks });
    const { socket, received } = open();
    const body = JSON.stringify(chatBody({ stream: true }));
    const head = headOf('/chat/completions', secret, `content-length: ${body.length}`);
    socket.write(head + body + head.replace('host: x', 'host: x\r\nexpect: 100-continue') + body);
    const ends = (): number => received().match(/\[DONE\]/g)?.length ?? 0;
    await until(() => ends() === 2, 'both responses');
    assert.doesNotMatch(received(), /100 Continue/);
    socket.destroy();
  });

  test('the last response of a connection ends it although a later request was rejected', async () => {
    bench.upstream.script.push({ kind: 'answer', afterMs: 100, content: 'Hi' });
    const { socket, received } = open();
    const closed = once(socket, 'close');
    const body = JSON.stringify(chatBody());
    const chat = headOf('/chat/completions', secret, `content-length: ${body.length}`) + body;
    // A response to it without a 100 is the last one.
    const last = 'GET /livez HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n';
    const later = headOf('/none', secret, 'content-length: 500000') + 'x'.repeat(500_000);
    socket.write(chat + last + later);
    await closed;
    assert.match(received(), /"content":"Hi"[^]*"status":"alive"\}$/);
  });

  test('malformed bytes after a request add none to the stream that it gets', async () => {
    bench.upstream.script.push({ kind: 'stream', chunks: 2, hangAfter: 1 });
    const { socket, received } = open();
    const closed = once(socket, 'close');
    const body = JSON.stringify(chatBody({ stream: true }));
    socket.write(headOf('/chat/completions', secret, `content-length: ${body.length}`) + body);
    await until(() => received().includes('data: '), 'the first piece');
    socket.write('no request\r\n\r\n');
    await closed;
    assert.doesNotMatch(received(), /400|MALFORMED/);
  });

  test('a rejected caller that never closes its connection is disconnected', async (t) => {
    const clock = new TestClock();
    const waiting = await startWithEngine({ clock });
    t.after(() => waiting.stop());
    const { socket, received } = open(waiting, true);
    const { server } = waiting.farebox.app.server;
    const [ended, closed] = [once(socket, 'end'), once(server, 'connection')];
    socket.write('no request\r\n\r\n');
    const [connection] = (await closed) as [Socket];
    await ended;
    assert.match(received(), /^HTTP\/1\.1 400 [^]*MALFORMED_REQUEST/);
    assert.ok(!connection.destroyed);
    clock.advance(3 * SECOND_MS);
    assert.ok(connection.destroyed);
    socket.destroy();
  });

  test('a client without a valid key may send a large file to the end', async () => {
    const body = new FormData();
    body.set('file', new Blob([Buffer.alloc(24_000_000)]), 'sound.wav');
    body.set('model', 'none');
    const response = await fetch(`${bench.farebox.url}/audio/transcriptions`, {
      method: 'POST',
      headers: { authorization: 'Bearer none' },
      body,
    });
    assert.equal(response.status, 401);
    await response.text();
  });

  test('a form that is rejected while it arrives keeps the connection', async () => {
    const part = '--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n';
    const end = '--x--\r\n';
    const next = `GET /livez HTTP/1.1\r\nhost: x\r\n\r\n`;
    const head = (framing: string): string =>
      headOf('/files', secret, framing).replace(
        'application/json',
        'multipart/form-data; boundary=x',
      );
    const sized = open();
    const most = part.repeat(200);
    sized.socket.write(head(`content-length: ${2 * most.length + end.length}`) + most);
    await until(() => sized.received().includes('at most 100 parts'), 'the response');
    sized.socket.write(most + end + next);
    await until(() => sized.received().includes('"status":"alive"'), 'the next response');
    sized.socket.destroy();
    // A body of unknown length ends the connection.
    const chunked = open();
    chunked.socket.write(`${head(CHUNKED)}${most.length.toString(16)}\r\n${most}\r\n`);
    await until(() => chunked.received().includes('at most 100 parts'), 'the response');
    assert.match(chunked.received(), /^HTTP\/1\.1 400 [^]*\r\nconnection: close\r\n/i);
    chunked.socket.destroy();
  });

  test('a client that uses connections again gets each response', async () => {
    for (let turn = 0; turn < 3; turn += 1) {
      const response = await fetch(`${bench.farebox.url}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: Buffer.alloc(50_000_000, 'x'),
      });
      assert.deepEqual([response.status, response.headers.get('connection')], [413, 'close']);
      await response.text();
    }
  });

  test('a caller that ends its body keeps the connection', async () => {
    const { socket, received } = open();
    const body = Buffer.alloc(200_000, 'x');
    socket.write(headOf('/chat/completions', secret, `content-length: ${body.length}`));
    socket.write(body);
    await until(() => received().includes('HTTP/1.1 413'), 'the response');
    socket.write(`GET /api/v1/models HTTP/1.1\r\nhost: x\r\n\r\n`);
    await until(() => received().includes('HTTP/1.1 200'), 'the next response');
    socket.destroy();
  });
});
