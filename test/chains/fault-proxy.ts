/**
 * A JSON-RPC relay between the code under test and a chain, which can lose what a test says:
 * the reply (the node has acted, the caller does not know) or the request (the node never saw it).
 */
import { createServer, request as httpRequest } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Fate = 'pass' | 'lose-reply' | 'lose-request';

export interface FaultProxy {
  readonly url: string;
  /** Decides for each JSON-RPC method; `pass` when not set. */
  fate: (method: string) => Fate;
  /** Methods seen, in order. */
  readonly seen: string[];
  stop(): Promise<void>;
}

export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const seen: string[] = [];
  const proxy = { fate: (_method: string): Fate => 'pass' };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const { method = '' } = JSON.parse(body.toString('utf8')) as { method?: string };
      seen.push(method);
      const fate = proxy.fate(method);
      if (fate === 'lose-request') return void response.destroy();
      const relayed = httpRequest(
        target,
        { method: 'POST', headers: { 'content-type': 'application/json' } },
        (answer) => {
          if (fate === 'lose-reply') {
            answer.resume();
            return void answer.on('end', () => response.destroy());
          }
          response.writeHead(answer.statusCode ?? 500, { 'content-type': 'application/json' });
          answer.pipe(response);
        },
      );
      relayed.on('error', () => response.destroy());
      relayed.end(body);
    });
  });
  await listen(server);
  const { port } = server.address() as AddressInfo; // listening on TCP
  return Object.assign(proxy, {
    url: `http://127.0.0.1:${port}`,
    seen,
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  });
}

async function listen(server: Server): Promise<void> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
}
