/**
 * A small OpenAI-shaped engine for tests and benches: a real `node:http` server with deterministic
 * answers and faults on demand. Each request takes the next scripted behaviour, else `otherwise`.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export type Behaviour =
  | { readonly kind: 'json'; readonly usage?: boolean; readonly sizeBytes?: number }
  | {
      readonly kind: 'stream';
      readonly chunks: number;
      /** Pause between chunks; 0 writes all at once. */
      readonly everyMs?: number;
      readonly usage?: boolean;
      /** Chunks after which the connection is cut, or the engine hangs. */
      readonly cutAfter?: number;
      readonly hangAfter?: number;
    }
  | { readonly kind: 'reset' }
  | { readonly kind: 'hang' }
  /** A head and then nothing; or a head and then a cut. */
  | { readonly kind: 'head-hang' }
  | { readonly kind: 'head-cut' }
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly headers?: Record<string, string>;
      readonly body?: string;
    }
  | { readonly kind: 'html' }
  | { readonly kind: 'not-http' }
  | { readonly kind: 'half-json' };

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

export class TestUpstream {
  /** Behaviours of the next requests, first come first served. */
  readonly script: Behaviour[] = [];
  readonly seen: SeenRequest[] = [];
  otherwise: Behaviour = { kind: 'json', usage: true };
  /** Requests whose client left before the end. */
  abandoned = 0;
  /** Requests that have no end yet. */
  active = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => void this.#answer(request, response));
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  /** Listens on a free port of 127.0.0.1, on `port`, or on a local socket. */
  static async start(at: { port?: number; path?: string } = {}): Promise<TestUpstream> {
    const server = createServer({ keepAliveTimeout: 60_000 });
    const upstream = new TestUpstream(server);
    if (at.path === undefined) server.listen(at.port ?? 0, '127.0.0.1');
    else server.listen(at.path);
    await once(server, 'listening');
    return upstream;
  }

  get port(): number {
    // A listening TCP server has an AddressInfo.
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/v1`;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** Dies at once: no new connections, and the open ones are closed as they stand. */
  async kill(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Closes the connections that serve no request now, as a keep-alive time limit does. */
  dropIdle(): void {
    this.#server.closeIdleConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    this.active += 1;
    response.on('close', () => {
      this.active -= 1;
      if (!response.writableFinished) this.abandoned += 1;
    });
    response.on('error', () => undefined); // the client left: `abandoned` has counted it
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    await once(request, 'end');
    const { method = '', url: path = '', headers } = request;
    const body = Buffer.concat(chunks).toString('utf8');
    this.seen.push({ method, path, headers, body });
    if (path.endsWith('/models')) return sendModels(response);
    const behaviour = this.script.shift() ?? this.otherwise;
    await behave(behaviour, response, modelOf(body));
  }
}

function modelOf(body: string): string {
  return /"model":"([^"]*)"/.exec(body)?.[1] ?? 'none';
}

function sendModels(response: ServerResponse): void {
  response.setHeader('content-type', 'application/json');
  response.end(
    '{"object":"list","data":[{"id":"tiny","object":"model"},{"id":"large","object":"model"}]}',
  );
}

async function behave(
  behaviour: Behaviour,
  response: ServerResponse,
  model: string,
): Promise<void> {
  switch (behaviour.kind) {
    case 'json':
      return sendJson(response, model, behaviour.usage !== false, behaviour.sizeBytes ?? 0);
    case 'stream':
      return sendStream(response, model, behaviour);
    case 'reset':
      response.socket?.resetAndDestroy();
      return;
    case 'hang':
      return;
    case 'head-hang':
    case 'head-cut':
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      if (behaviour.kind === 'head-cut') setTimeout(() => response.destroy(), 5);
      return;
    case 'status':
      response.writeHead(behaviour.status, {
        'content-type': 'application/json',
        ...behaviour.headers,
      });
      response.end(behaviour.body ?? `{"error":{"message":"status ${behaviour.status}"}}`);
      return;
    case 'html':
      response.writeHead(200, { 'content-type': 'text/html' });
      response.end('<html>a router page</html>');
      return;
    case 'not-http':
      response.socket?.end('SSH-2.0-OpenSSH_9.6\r\n');
      return;
    case 'half-json':
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end('{"choices":[');
  }
}

/** The body of the JSON answer; `sizeBytes` of padding in the content. */
export function chatJson(model: string, hasUsage: boolean, sizeBytes = 0): string {
  const message = { role: 'assistant', content: `Hello ${'x'.repeat(sizeBytes)}` };
  return JSON.stringify({
    id: 'chatcmpl-0',
    object: 'chat.completion',
    created: 1_750_000_000,
    model,
    choices: [{ index: 0, message, finish_reason: 'stop' }],
    ...(hasUsage ? { usage: USAGE } : {}),
  });
}

const USAGE = { prompt_tokens: 12, completion_tokens: 5, total_tokens: 17 };

function sendJson(response: ServerResponse, model: string, usage: boolean, size: number): void {
  response.setHeader('content-type', 'application/json');
  response.end(chatJson(model, usage, size));
}

/** The events of a streamed answer: role, `chunks` words, finish, usage, `[DONE]`. */
export function chatEvents(model: string, chunks: number, hasUsage: boolean): string[] {
  const event = (choices: unknown, more: object = {}): string =>
    `data: ${JSON.stringify({
      id: 'chatcmpl-0',
      object: 'chat.completion.chunk',
      created: 1_750_000_000,
      model,
      choices,
      ...more,
    })}\n\n`;
  const delta = (value: object, finish: string | null = null): string =>
    event([{ index: 0, delta: value, finish_reason: finish }]);
  const words = Array.from({ length: chunks }, (_, index) => delta({ content: ` w${index}` }));
  const usage = hasUsage
    ? [
        event([], {
          usage: { prompt_tokens: 12, completion_tokens: chunks, total_tokens: 12 + chunks },
        }),
      ]
    : [];
  const role = delta({ role: 'assistant', content: '' });
  return [role, ...words, delta({}, 'stop'), ...usage, 'data: [DONE]\n\n'];
}

async function sendStream(
  response: ServerResponse,
  model: string,
  behaviour: Extract<Behaviour, { kind: 'stream' }>,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const events = chatEvents(model, behaviour.chunks, behaviour.usage !== false);
  for (const [index, event] of events.entries()) {
    if (response.destroyed) return;
    if (index === behaviour.hangAfter) return;
    if (index === behaviour.cutAfter) {
      // Let what was written leave before the connection dies.
      setTimeout(() => response.destroy(), 5);
      return;
    }
    if (!response.write(event)) await writable(response);
    const { everyMs = 0 } = behaviour;
    if (everyMs > 0) await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
  response.end();
}

/** Resolves when more can be written, or when there is nobody left to write to. */
async function writable(response: ServerResponse): Promise<void> {
  await new Promise<void>((resolve) => {
    const go = (): void => {
      response.off('drain', go).off('close', go);
      resolve();
    };
    response.on('drain', go).on('close', go);
  });
}
