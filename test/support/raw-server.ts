/** A TCP server whose connections a test handles. */
import { createServer, type Server, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import { listen } from './loopback.ts';

/** Origin of the server, which closes with the test. With `tls` it uses TLS. */
export async function rawServer(
  t: TestContext,
  serve: (socket: Socket) => void,
  tls?: TlsOptions,
): Promise<string> {
  const sockets = new Set<Socket>();
  const accept = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => undefined); // the client may disconnect at any time
    serve(socket);
  };
  const server: Server = tls === undefined ? createServer(accept) : createTlsServer(tls, accept);
  const port = await listen(server);
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`;
}
