/**
 * A JSON-RPC relay between the code under test and a chain. It can lose the reply (the node has
 * acted, but the caller does not know) or the request, reject calls with a status or a JSON-RPC
 * error as public nodes do, and be slow.
 */
import { createServer, request as httpRequest } from 'node:http';
import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Fate =
  | 'pass'
  | 'lose-reply'
  | 'lose-request'
  | { readonly status: number }
  | { readonly code: number; readonly message: string }
  | { readonly delayMs: number };

export interface FaultProxy {
  readonly url: string;
  /** Returns the fault for each JSON-RPC method. Default: `pass`. */
  fate: (method: string) => Fate | Promise<Fate>;
  /** Received methods, in order. */
  readonly seen: string[];
  stop(): Promise<void>;
}

export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const seen: string[] = [];
  const proxy = { fate: (_method: string): Fate | Promise<Fate> => 'pass' };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const { method = '', id } = JSON.parse(body.toString('utf8')) as {
        method?: string;
        id?: number;
      };
      seen.push(method);
      void Promise.resolve(proxy.fate(method)).then((fate) => {
        meet(fate, { target, id, body, response });
      });
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

interface Relayed {
  readonly target: string;
  readonly id: number | undefined;
  readonly body: Buffer;
  readonly response: ServerResponse;
}

function meet(fate: Fate, relayed: Relayed): void {
  const { id, response } = relayed;
  if (fate === 'lose-request') return void response.destroy();
  if (typeof fate === 'string') return relay(relayed, fate === 'lose-reply');
  if ('delayMs' in fate) return void setTimeout(() => relay(relayed, false), fate.delayMs);
  const status = 'status' in fate ? fate.status : 200;
  const error = 'status' in fate ? { code: -32_000, message: 'Too busy' } : fate;
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id, error }));
}

function relay({ target, body, response }: Relayed, losesReply: boolean): void {
  const relayed = httpRequest(
    target,
    { method: 'POST', headers: { 'content-type': 'application/json' } },
    (answer) => {
      if (losesReply) {
        answer.resume();
        return void answer.on('end', () => response.destroy());
      }
      response.writeHead(answer.statusCode ?? 500, { 'content-type': 'application/json' });
      answer.pipe(response);
    },
  );
  relayed.on('error', () => response.destroy());
  relayed.end(body);
}

async function listen(server: Server): Promise<void> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
}
