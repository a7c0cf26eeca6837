/** Connections by the hundred: who is let in, and what the log says of it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, connect, type Server, type Socket } from 'node:net';
import { afterEach, describe, test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { until } from '../../test/support/until.ts';
import { limitConnections } from './connection-limits.ts';

const MAX = 8;
const sockets: Socket[] = [];
let server: Server;

async function listen(isShared: boolean): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined); // ended by the other side
    setImmediate(() => socket.destroyed || socket.write('x'));
  });
  const clock = new TestClock();
  limitConnections(server, { clock, log: memoryLog(lines), maxConnections: MAX, isShared });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return lines;
}

/** Whether a connection from an address of this machine is taken. */
async function isTaken(localAddress: string): Promise<boolean> {
  const { port } = server.address() as AddressInfo; // it listens on a port
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  sockets.push(socket);
  socket.on('error', () => undefined); // the connection is rejected, as expected
  return await Promise.race([
    once(socket, 'data').then(() => true),
    once(socket, 'close').then(() => false),
  ]);
}

async function taken(localAddress: string, times: number): Promise<number> {
  let count = 0;
  for (let at = 0; at < times; at += 1) if (await isTaken(localAddress)) count += 1;
  return count;
}

describe('open connections', () => {
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });

  test('one address cannot use all connections, and closed ones are available again', async () => {
    const lines = await listen(true);
    assert.equal(await taken('127.0.0.1', MAX + 2), 6);
    assert.equal(await taken('127.0.0.2', 2), 2);
    assert.equal(await taken('127.0.0.3', 1), 0);
    assert.deepEqual(
      lines.map(({ level, message }) => `${level} ${message}`),
      ['warn New connections of an address with many open ones are rejected'],
    );
    for (const socket of sockets.splice(0)) socket.destroy();
    // The server notices the end of the connection a moment later.
    await until(async () => isTaken('127.0.0.1'), 'room for another');
    assert.equal(await taken('127.0.0.1', 2), 2);
  });

  test('a proxy can use all connections', async () => {
    const lines = await listen(false);
    assert.equal(await taken('127.0.0.1', MAX + 1), MAX);
    assert.match(lines[0]?.message ?? '', /http.maxConnections are open/);
  });
});
