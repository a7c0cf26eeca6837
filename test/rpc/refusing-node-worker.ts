/**
 * A node in a worker thread that rejects requests above its limit after the head, and closes the
 * connection with the body unread, so that its reset arrives while we write. It serves other
 * requests normally. `workerData`: `{ limitBytes, refusal }`; posts its port.
 */
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

// See above for the members.
const { limitBytes, refusal } = workerData as { limitBytes: number; refusal: string };

const server = createServer((socket) => {
  let text = '';
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => {
    text += data.toString('latin1');
    const headEnd = text.indexOf('\r\n\r\n');
    if (headEnd < 0) return;
    const size = Number(/content-length: (\d+)/i.exec(text)?.[1]);
    if (size > limitBytes) {
      socket.pause();
      if (refusal === '') return void socket.resetAndDestroy();
      return void socket.write(refusal, () => socket.resetAndDestroy());
    }
    if (text.length < headEnd + 4 + size) return;
    const body = text.slice(headEnd + 4, headEnd + 4 + size);
    text = text.slice(headEnd + 4 + size);
    const reply = JSON.stringify(responseTo(JSON.parse(body)));
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${reply.length}\r\n\r\n${reply}`);
  });
});

function responseTo(request: unknown): unknown {
  if (Array.isArray(request)) return request.map(responseTo);
  const { id, method } = request as { id: unknown; method: string }; // admitted by Farebox
  return { jsonrpc: '2.0', id, result: method === 'eth_chainId' ? '0x1' : `${method} done` };
}

server.listen(0, '127.0.0.1', () =>
  // `address()` returns an `AddressInfo`, because the server listens on TCP.
  parentPort?.postMessage((server.address() as AddressInfo).port),
);
