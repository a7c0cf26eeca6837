/** A minimal HTTP server around the RPC proxy, for clients and benchmarks that need a URL. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Fault } from '../../src/core/faults.ts';
import { formatRpcCost } from '../../src/rpc/rpc.ts';
import type { Rpc } from '../../src/rpc/rpc.ts';

export interface RpcServer {
  /** Returns the URL of a network. */
  url(network: string): string;
  readonly credits: number[];
  readonly close: () => Promise<void>;
}

export async function startRpcServer(rpc: Rpc): Promise<RpcServer> {
  const credits: number[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
      serve(request.url?.split('/').at(-1) ?? '', body).catch((error: unknown) => {
        const status = error instanceof Fault ? error.status : 500;
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ error: error instanceof Error ? error.message : 'failed' }));
      });
    });
    async function serve(network: string, body: Buffer): Promise<void> {
      const answer = await rpc.run(rpc.parse(network, body), { caller: 'test' });
      credits.push(answer.credits);
      response.setHeader('content-type', 'application/json');
      response.setHeader('x-svc-rpc-credits', answer.credits);
      response.setHeader('x-svc-rpc-cost-usd', formatRpcCost(rpc.cost(answer.credits)));
      if (answer.rest === undefined) {
        response.end(answer.body);
        return;
      }
      response.write(answer.body);
      answer.rest.on('error', () => response.destroy());
      answer.rest.pipe(response);
    }
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo; // a listening TCP server has such an address
  return {
    url: (network) => `http://127.0.0.1:${port}/${network}`,
    credits,
    close: async () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
