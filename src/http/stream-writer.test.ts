/** Streamed bodies on real connections: chunked, HTTP/1.0, pipelined, slow, closed. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import fc from 'fast-check';
import { StreamWriter } from './stream-writer.ts';

type Answer = (writer: StreamWriter, path: string, response: ServerResponse) => Promise<void>;

/** A server that responds to every request with a stream; returns the port. */
async function serve(t: TestContext, answer: Answer): Promise<number> {
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    void answer(new StreamWriter(response), request.url ?? '', response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function dial(port: number): Socket {
  return connect(port, '127.0.0.1');
}

function bodyOf(answer: string): string {
  return answer.slice(answer.indexOf('\r\n\r\n') + 4);
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('pieces of any size in any tick arrive unchanged, and the connection is reused', async (t) => {
  let ticks: readonly (readonly Uint8Array[])[] = [];
  const port = await serve(t, async (writer) => {
    for (const pieces of ticks) {
      for (const piece of pieces) writer.write(Buffer.from(piece));
      await nextTurn();
    }
    writer.write(Buffer.from('with the '));
    writer.end(Buffer.from('end'));
  });
  const bytes = fc.uint8Array({ maxLength: 40 });
  const paces = fc.array(fc.array(bytes, { maxLength: 4 }), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(paces, async (given) => {
      ticks = given;
      const answer = await fetch(`http://127.0.0.1:${port}/`);
      assert.equal(answer.headers.get('transfer-encoding'), 'chunked');
      assert.equal(answer.headers.get('connection'), 'keep-alive');
      const wanted = Buffer.concat([...given.flat(), Buffer.from('with the end')]);
      assert.deepEqual(Buffer.from(await answer.arrayBuffer()), wanted);
    }),
    { numRuns: 60 },
  );
});

test('the pieces of one tick are one chunk', async (t) => {
  const port = await serve(t, async (writer) => {
    writer.write(Buffer.from('one '));
    writer.write(Buffer.from('two '));
    await nextTurn();
    writer.write(Buffer.alloc(0));
    writer.write(Buffer.from('three'));
    await nextTurn();
    writer.end(Buffer.alloc(0));
  });
  const socket = dial(port);
  socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  assert.equal(bodyOf(await text(socket)), '8\r\none two \r\n5\r\nthree\r\n0\r\n\r\n');
});

test('a caller of HTTP/1.0 gets the bytes without chunk frames', async (t) => {
  const port = await serve(t, async (writer) => {
    writer.write(Buffer.from('one '));
    await nextTurn();
    writer.end(Buffer.from('two'));
  });
  const socket = dial(port);
  socket.write('GET / HTTP/1.0\r\n\r\n');
  assert.equal(bodyOf(await text(socket)), 'one two');
});

test('a stream waits for the previous response of its connection', async (t) => {
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  const port = await serve(t, async (writer, path) => {
    for (const piece of ['a', 'b', 'c']) {
      writer.write(Buffer.from(path + piece));
      await nextTurn();
    }
    if (path === '/1') await mayEnd;
    else end();
    writer.write(Buffer.from(`${path}d`));
    await nextTurn();
    writer.end(Buffer.from('.'));
  });
  const socket = dial(port);
  socket.write('GET /1 HTTP/1.1\r\nhost: x\r\n\r\n');
  socket.write('GET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  const answers = (await text(socket)).split('HTTP/1.1 200 OK').slice(1);
  assert.deepEqual(answers.map(bodyOf), [
    '3\r\n/1a\r\n3\r\n/1b\r\n3\r\n/1c\r\n3\r\n/1d\r\n1\r\n.\r\n0\r\n\r\n',
    '3\r\n/2a\r\n3\r\n/2b\r\n3\r\n/2c\r\n3\r\n/2d\r\n1\r\n.\r\n0\r\n\r\n',
  ]);
});

test('a slow caller gets everything, with backpressure', async (t) => {
  const piece = Buffer.alloc(64 * 1024, 'x');
  const count = 400;
  const { promise: isFull, resolve: full } = Promise.withResolvers<void>();
  const port = await serve(t, async (writer) => {
    for (let at = 0; at < count; at += 1) {
      if (!writer.write(piece)) {
        full();
        await new Promise<void>((resolve) => writer.onDrain(resolve));
      }
      await nextTurn();
    }
    writer.end(Buffer.from('end'));
  });
  const socket = dial(port);
  socket.pause();
  socket.write('GET / HTTP/1.0\r\n\r\n');
  await isFull;
  assert.equal(bodyOf(await text(socket)).length, count * piece.length + 3);
});

test('a piece after the end is dropped, and the next response is unchanged', async (t) => {
  const port = await serve(t, async (writer, path) => {
    writer.write(Buffer.from(path));
    await nextTurn();
    writer.end(Buffer.from('.'));
    writer.write(Buffer.from('late'));
    await nextTurn();
  });
  const socket = dial(port);
  const received = text(socket);
  socket.write('GET /1 HTTP/1.1\r\nhost: x\r\n\r\n');
  await once(socket, 'data');
  socket.write('GET /2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  assert.doesNotMatch(await received, /late/);
});

test('a disconnected caller ends the wait without an error', async (t) => {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const port = await serve(t, async (writer, _path, response) => {
    while (writer.write(Buffer.alloc(64 * 1024))) await nextTurn();
    const drained = new Promise<void>((resolve) => writer.onDrain(resolve));
    const closed = once(response, 'close');
    socket.destroy();
    await Promise.all([drained, closed]);
    writer.write(Buffer.from('nobody reads this'));
    await nextTurn();
    writer.end(Buffer.from('nor this'));
    end();
  });
  const socket = dial(port);
  socket.pause();
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  await ended;
});
