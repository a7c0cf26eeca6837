/** An HTTP proxy that opens CONNECT tunnels. It resolves the names of a test to loopback servers. */
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { listen } from './loopback.ts';

export interface ConnectProxy {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly seen: { readonly target: string; readonly authorization: string | undefined }[];
  /** Opens tunnels, closes each connection, or rejects CONNECT with a status. */
  behaviour: 'open' | 'close' | number;
  readonly close: () => void;
}

/** Ports of loopback by the target `name:port`. */
type Hosts = Readonly<Record<string, number>>;

/** A proxy that closes with the test. */
export async function startProxy(t: TestContext, hosts: Hosts = {}): Promise<ConnectProxy> {
  const proxy = await openProxy(hosts);
  t.after(proxy.close);
  return proxy;
}

export async function openProxy(hosts: Hosts): Promise<ConnectProxy> {
  const sockets: Socket[] = [];
  const server = createServer();
  const proxy: ConnectProxy = {
    host: `127.0.0.1:${await listen(server)}`,
    seen: [],
    behaviour: 'open',
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
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
  return proxy;
}
