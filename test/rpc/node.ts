/** A node for tests of the RPC proxy: an HTTP server whose replies the test decides. */
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface JsonRpcCall {
  readonly jsonrpc: '2.0';
  readonly id: unknown;
  readonly method: string;
  readonly params?: readonly unknown[];
}

export interface NodeRequest {
  readonly text: string;
  readonly calls: readonly JsonRpcCall[];
  readonly isBatch: boolean;
  readonly headers: IncomingMessage['headers'];
}

export type NodeResponse = (request: NodeRequest, response: ServerResponse) => void;

export interface TestNode {
  readonly url: string;
  /** Requests of callers, without the proxy's own requests for the chain id and the head. */
  readonly requests: NodeRequest[];
  respond: NodeResponse;
  /** The newest block, and the hashes of blocks, which only the proxy itself requests. */
  head: () => string;
  /** Milliseconds before the node reports its newest block. */
  headDelayMs: number;
  hashOf: (number: string) => string;
  /** The number of a tag such as `finalized`; `undefined` if the node does not have the tag. */
  tagged: (tag: string) => string | undefined;
  readonly close: () => Promise<void>;
}

type Members = Readonly<Record<string, unknown>>;

/** Replies to every call, in order, with these members. */
export function replyWith(
  members: Members | ((call: JsonRpcCall) => Members),
  status?: number,
): NodeResponse {
  return (request, response) => {
    const items = request.calls.map((call) => ({
      jsonrpc: '2.0',
      id: call.id,
      ...(typeof members === 'function' ? members(call) : members),
    }));
    sendJson(response, request.isBatch ? items : items[0], status);
  };
}

/** Returns `result(call)` for every call, in order, as a correct node does. */
export function echoNode(
  result: (call: JsonRpcCall) => unknown = (call) => `${call.method} done`,
): NodeResponse {
  return replyWith((call) => ({ result: result(call) }));
}

export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  sendText(response, JSON.stringify(value), status);
}

export function sendText(response: ServerResponse, text: string, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(text);
}

const IDENTITY = new Set(['eth_chainId', 'starknet_chainId', 'getGenesisHash']);
const HEAD = new Set(['eth_blockNumber', 'starknet_blockNumber', 'getSlot']);

/** Starts a node of the given chain on a free loopback port. */
export async function startNode(
  chainId: string,
  respond: NodeResponse = echoNode(),
): Promise<TestNode> {
  const requests: NodeRequest[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      const parsed = JSON.parse(text) as JsonRpcCall | JsonRpcCall[];
      const isBatch = Array.isArray(parsed);
      const calls = isBatch ? parsed : [parsed];
      const [first] = calls;
      const { id = null, method = '', params } = first ?? {};
      const isProbe = !isBatch && params?.length === 0;
      if (isProbe && IDENTITY.has(method)) {
        return sendJson(response, { jsonrpc: '2.0', id, result: chainId });
      }
      if (isProbe && HEAD.has(method)) {
        const reply = { jsonrpc: '2.0', id, result: node.head() };
        return void setTimeout(() => sendJson(response, reply), node.headDelayMs);
      }
      // Tests do not send the number of a block in this form.
      if (
        !isBatch &&
        method === 'eth_getBlockByNumber' &&
        /"params":\["0x\w+",false\]/.test(text)
      ) {
        const block = { number: params?.[0], hash: node.hashOf(String(params?.[0])) };
        return sendJson(response, { jsonrpc: '2.0', id, result: block });
      }
      if (!isBatch && /"params":\["(?:finalized|safe)",false\]/.test(text)) {
        const number = node.tagged(String(params?.[0]));
        const result = number === undefined ? null : { number, hash: node.hashOf(number) };
        return sendJson(response, { jsonrpc: '2.0', id, result });
      }
      const seen = { text, calls, isBatch, headers: request.headers };
      requests.push(seen);
      node.respond(seen, response);
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo; // a listening TCP server has such an address
  const node: TestNode = {
    url: `http://127.0.0.1:${port}/key-secret`,
    requests,
    respond,
    head: () => '0x10',
    headDelayMs: 0,
    hashOf: (number) => `hash of ${number}`,
    tagged: () => undefined,
    close: async () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return node;
}
