/** An HTTP proxy that opens CONNECT tunnels. It resolves the names of a test to loopback servers. */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';

export interface ConnectProxy {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly seen: { readonly target: string; readonly authorization: string | undefined }[];
  /** Opens tunnels, closes each connection, or rejects CONNECT with a status. */
  behaviour: 'open' | 'close' | number;
}

/** `hosts` maps a target `name:port` to a loopback port. The proxy closes with the test. */
export async function startProxy(
  t: TestContext,
  hosts: Readonly<Record<string, number>> = {},
): Promise<ConnectProxy> {
  const sockets: Socket[] = [];
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  const proxy: ConnectProxy = { host: `127.0.0.1:${port}`, seen: [], behaviour: 'open' };
  server.on('connect', (request: IncomingMessage, client: Socket) => {
    const target = request.url ?? '';
    proxy.seen.push({ target, authorization: request.headers['proxy-authorization'] });
    sockets.push(client);
    client.on('error', () => undefined);
    if (proxy.behaviour === 'close') return void client.destroy();
    if (proxy.behaviour !== 'open') {
      return void client.end(`HTTP/1.1 ${proxy.behaviour} No\r\n\r\n`);
    }
    const upstream = connect(hosts[target] ?? Number(target.split(':').at(-1)), '127.0.0.1', () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on('error', () => client.destroy());
    sockets.push(upstream);
  });
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return proxy;
}
