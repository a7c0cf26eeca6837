/** Responses of the video APIs without a package. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createTaskProvider } from './video-tasks.ts';

test('an endless response is cut off, and the connection is closed', async () => {
  let isClosed = false;
  const server = createServer((_request, response) => {
    response.on('close', () => void (isClosed = true));
    response.on('error', () => undefined); // cut off, as expected
    const write = (): void => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536, ' ')));
    };
    response.on('drain', write);
    write();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo; // it listens on a port
  const settings = { apiKey: 'k', baseURL: `http://127.0.0.1:${port}` };
  const model = createTaskProvider('luma', settings).videoModel('ray-2');
  const operation = { path: '/generations/1' };
  await assert.rejects(model.doStatus({ operation }), /more than 1000000 bytes/);
  while (!isClosed) await new Promise((resolve) => setTimeout(resolve, 5));
  server.close();
});
