import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { heapBytes } from '../../test/support/heap-bytes.ts';
import { rawServer } from '../../test/support/raw-server.ts';
import { Origins } from '../net/origins.ts';
import { ByteBudget, nodeClient } from './node-client.ts';
import { KeptResponse } from './rpc-response.ts';

test('name and password of the URL are percent-decoded; an invalid escape is used literally', async () => {
  const server = createServer((request, response) => {
    response.end(request.headers.authorization);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  for (const [given, meant] of [
    ['anna:a%40b', 'anna:a@b'],
    ['anna:100%', 'anna:100%'],
    ['%zz:b%E9', '%zz:b\ufffd'],
  ]) {
    const client = nodeClient({
      url: `http://${given}@127.0.0.1:${port}/`,
      connections: 1,
      clock: systemClock(),
      origins: new Origins(() => undefined),
    });
    const reply = await client.post({
      body: Buffer.from('{}'),
      timeoutMs: 5_000,
      maxBytes: 1_000,
      canStream: false,
      mayRepeat: false,
      caller: '',
      budget: new ByteBudget(1_000),
      signal: undefined,
    });
    await client.close();
    assert.ok(reply.ok);
    assert.equal(reply.body.toString(), `Basic ${Buffer.from(meant ?? '').toString('base64')}`);
  }
  server.close();
});

test('a reply of single bytes takes little more memory than its bytes', async (t) => {
  const pieces = 300_000;
  const url = await rawServer(t, (socket) => {
    const head = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
    socket.once('data', () => socket.write(`${head}${'1\r\na\r\n'.repeat(pieces)}0\r\n\r\n`));
  });
  const origins = new Origins(() => undefined);
  const client = nodeClient({ url, connections: 1, clock: systemClock(), origins });
  t.after(() => client.close());
  const usedBytes = heapBytes();
  let grownBytes = Infinity;
  let countedBytes = 0;
  const budget = new (class extends ByteBudget {
    override take(caller: string, bytes: number): boolean {
      countedBytes += bytes;
      if (countedBytes === pieces) grownBytes = heapBytes() - usedBytes;
      return super.take(caller, bytes);
    }
  })(4 * pieces);
  const reply = await client.post({
    body: Buffer.from('{}'),
    timeoutMs: 5_000,
    maxBytes: pieces,
    canStream: false,
    mayRepeat: false,
    caller: '',
    budget,
    signal: undefined,
  });
  assert.ok(reply.ok);
  assert.equal(reply.body.length, pieces);
  assert.ok(grownBytes < 20 * pieces, String(grownBytes));
});

test('a stored response of single bytes takes little more memory than its bytes', () => {
  const pieces = 300_000;
  const kept = new KeptResponse(new ByteBudget(10 * pieces), 'a');
  const usedBytes = heapBytes();
  for (let at = 0; at < pieces; at += 1) kept.add(Buffer.from('a'));
  const grownBytes = heapBytes() - usedBytes;
  assert.equal(kept.body()?.length, pieces);
  kept.drop();
  assert.ok(grownBytes < 20 * pieces, String(grownBytes));
});
