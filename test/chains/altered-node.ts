/**
 * A JSON-RPC relay to a chain, whose responses a test can change, delay or reject: a node without
 * history, a slow one, a lying one.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface RpcCall {
  readonly method: string;
  readonly params: readonly unknown[];
}

/** Members of the response except the id; `ask` returns the original response. */
export type Alter = (call: RpcCall, ask: () => Promise<unknown>) => Promise<unknown>;

export interface AlteredNode {
  readonly url: string;
  alter: Alter;
  /** Calls seen, in order. */
  readonly seen: RpcCall[];
  stop(): Promise<void>;
}

/** Response of a node that rejects a call. */
export function rpcError(code: number, message: string): { error: object } {
  return { error: { code, message } };
}

export async function startAlteredNode(target: string): Promise<AlteredNode> {
  const seen: RpcCall[] = [];
  const node = { alter: (async (_call, ask) => await ask()) as Alter };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      void answer(Buffer.concat(chunks).toString('utf8')).then(
        (text) => response.writeHead(200, { 'content-type': 'application/json' }).end(text),
        () => response.destroy(), // the test wants a broken connection
      );
    });
  });
  async function answer(body: string): Promise<string> {
    const { id, ...sent } = JSON.parse(body) as Partial<RpcCall> & { id: unknown };
    const call = { method: sent.method ?? '', params: sent.params ?? [] };
    seen.push(call);
    const ask = async (): Promise<unknown> => {
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
      return await (await fetch(target, init)).json();
    };
    const result = await node.alter(call, ask);
    return JSON.stringify({ ...(result as object), jsonrpc: '2.0', id });
  }
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo; // listening on TCP
  return Object.assign(node, {
    url: `http://127.0.0.1:${port}/`,
    seen,
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  });
}
