/**
 * A small OpenAI-compatible engine for tests and benchmarks: a real `node:http` server with
 * deterministic responses and faults on demand. Each request uses the next scripted behaviour, or
 * `otherwise`.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export type Behaviour =
  | { readonly kind: 'json'; readonly usage?: boolean; readonly sizeBytes?: number }
  | {
      readonly kind: 'stream';
      readonly chunks: number;
      /** Pause between chunks; 0 writes all at once. */
      readonly everyMs?: number;
      readonly usage?: boolean;
      /** Number of chunks after which the connection is cut, or the engine hangs. */
      readonly cutAfter?: number;
      readonly hangAfter?: number;
      /** Delays the final event until it resolves. */
      readonly endsAfter?: Promise<unknown>;
    }
  /** Text of the completion, streamed if the request sets `stream`. */
  | ScriptedResponse
  /** A vector for each input: its length or first token id, its index, and 1. */
  | { readonly kind: 'embeddings'; readonly maxBatch?: number; readonly usage?: boolean | number }
  /** A handler of the test. */
  | { readonly kind: 'own'; readonly answer: (response: ServerResponse, body: string) => void }
  | { readonly kind: 'reset' }
  | { readonly kind: 'hang' }
  /** A response head without a body; or a head and then a broken connection. */
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

export interface ScriptedResponse {
  readonly kind: 'answer';
  /** Delay before the first output, in ms. */
  readonly afterMs?: number;
  /** Resolves before the first output. */
  readonly after?: Promise<unknown>;
  readonly content?: string;
  readonly reasoning?: string;
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: string }[];
  readonly promptTokens?: number;
  readonly completionTokens?: number;
  /** With `false` the engine reports no usage. */
  readonly usage?: boolean;
  readonly extraUsage?: Readonly<Record<string, unknown>>;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

const MAX_TRIES = 50;

export class TestUpstream {
  /** Behaviours of the next requests, in order. */
  readonly script: Behaviour[] = [];
  readonly seen: SeenRequest[] = [];
  otherwise: Behaviour = { kind: 'json', usage: true };
  /** Number of requests whose client disconnected before the end. */
  abandoned = 0;
  /** Number of running requests. */
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
    const where = at.path === undefined ? { host: '127.0.0.1', port: at.port ?? 0 } : at;
    for (let tries = 1; ; tries += 1) {
      server.listen(where);
      try {
        await once(server, 'listening');
        return upstream;
      } catch (error) {
        // The port may still serve a connection of another test for a moment.
        const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
        if (!isTaken || at.port === undefined || tries === MAX_TRIES) throw error;
        await delay(100);
      }
    }
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

  /** Stops immediately: rejects new connections and closes the open ones. */
  async kill(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Closes idle connections, as a keep-alive timeout does. */
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
    response.on('error', () => undefined); // the client disconnected, and `abandoned` has counted it
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    await once(request, 'end');
    const { method = '', url: path = '', headers } = request;
    const body = Buffer.concat(chunks).toString('utf8');
    this.seen.push({ method, path, headers, body });
    if (path.endsWith('/models')) return sendModels(response);
    if (path.endsWith('/v1/completions')) return sendTexts(response, JSON.parse(body));
    const behaviour = this.script.shift() ?? this.otherwise;
    await behave(behaviour, response, { model: modelOf(body), body });
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

interface TextsRequest {
  readonly prompt?: unknown;
  readonly n?: number;
  readonly stream?: boolean;
}

/** Every prompt gets the same continuation, independent of the script. */
function sendTexts(response: ServerResponse, { prompt, n = 1, stream }: TextsRequest): void {
  const isList = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  const count = n * (isList ? prompt.length : 1);
  const choices = Array.from({ length: count }, (_, index) => {
    return { text: ' blue', index, logprobs: null, finish_reason: 'stop' };
  });
  const answer = JSON.stringify({ object: 'text_completion', choices, usage: USAGE });
  const type = stream === true ? 'text/event-stream' : 'application/json';
  response.writeHead(200, { 'content-type': type });
  response.end(stream === true ? `data: ${answer}\n\ndata: [DONE]\n\n` : answer);
}

/** Handles one request with a behaviour, for scripts that depend on the request. */
export async function behave(
  behaviour: Behaviour,
  response: ServerResponse,
  { model, body }: { readonly model: string; readonly body: string },
): Promise<void> {
  switch (behaviour.kind) {
    case 'json':
      return sendJson(response, model, behaviour.usage !== false, behaviour.sizeBytes ?? 0);
    case 'stream':
      return sendStream(response, model, behaviour);
    case 'answer':
      if (behaviour.afterMs !== undefined) await delay(behaviour.afterMs);
      await behaviour.after;
      return sendResponse(response, model, behaviour, /"stream":\s*true/.test(body));
    case 'embeddings':
      return sendEmbeddings(response, JSON.parse(body), behaviour);
    case 'own':
      return behaviour.answer(response, body);
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

/** Body of the JSON response, with `sizeBytes` of padding in the content. */
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

/** Events of a streamed response: role, `chunks` words, finish reason, usage, `[DONE]`. */
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

function sendResponse(
  response: ServerResponse,
  model: string,
  answer: ScriptedResponse,
  isStream: boolean,
): void {
  const { promptTokens = 100, completionTokens = 10, extraUsage = {} } = answer;
  const counted = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...extraUsage,
  };
  const usage = answer.usage === false ? {} : { usage: counted };
  const head = { id: 'chatcmpl-0', created: 1_750_000_000, model };
  const calls = answer.toolCalls?.map((call, index) => {
    return { index, id: `call_${index}`, type: 'function', function: call };
  });
  const finish_reason = calls === undefined ? 'stop' : 'tool_calls';
  if (!isStream) {
    const message = {
      role: 'assistant',
      content: answer.content ?? null,
      ...(answer.reasoning === undefined ? {} : { reasoning_content: answer.reasoning }),
      ...(calls === undefined ? {} : { tool_calls: calls }),
    };
    response.setHeader('content-type', 'application/json');
    const choices = [{ index: 0, message, finish_reason }];
    response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, ...usage }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (choices: unknown, more: object = {}): void => {
    const chunk = { ...head, object: 'chat.completion.chunk', choices, ...more };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  const delta = (value: object, finish: string | null = null): void =>
    send([{ index: 0, delta: value, finish_reason: finish }]);
  delta({ role: 'assistant', content: '' });
  if (answer.reasoning !== undefined) delta({ reasoning_content: answer.reasoning });
  for (const word of answer.content?.split(/(?<= )/) ?? []) delta({ content: word });
  for (const call of calls ?? []) {
    const { index, id, type } = call;
    delta({
      tool_calls: [{ index, id, type, function: { name: call.function.name, arguments: '' } }],
    });
    for (const piece of call.function.arguments.match(/.{1,5}/gs) ?? []) {
      delta({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
  }
  delta({}, finish_reason);
  if (answer.usage !== false) send([], usage);
  response.end('data: [DONE]\n\n');
}

/** Members of an embeddings body on which the response depends. */
interface EmbeddingsBody {
  readonly model: string;
  readonly input: string | readonly (string | number | readonly number[])[];
  readonly encoding_format?: string;
}

function sendEmbeddings(
  response: ServerResponse,
  body: EmbeddingsBody,
  behaviour: Extract<Behaviour, { kind: 'embeddings' }>,
): void {
  const { input, model } = body;
  const isOne = typeof input === 'string' || typeof input[0] === 'number';
  const inputs = isOne ? [input] : input;
  if (inputs.length > (behaviour.maxBatch ?? 2_048)) {
    response.writeHead(422, { 'content-type': 'application/json' });
    response.end('{"error":{"message":"batch too large"}}');
    return;
  }
  const data = inputs.map((one, index) => {
    const values = Float32Array.of(firstOf(one), index, 1);
    const bytes = Buffer.from(values.buffer);
    const embedding = body.encoding_format === 'base64' ? bytes.toString('base64') : [...values];
    return { object: 'embedding', index, embedding };
  });
  const tokens = typeof behaviour.usage === 'number' ? behaviour.usage : inputs.length * 3;
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  response.setHeader('content-type', 'application/json');
  const counted = behaviour.usage === false ? {} : { usage };
  response.end(JSON.stringify({ object: 'list', model, data, ...counted }));
}

/** Number that differs between inputs: the length of a text, or the first token id. */
function firstOf(input: EmbeddingsBody['input'][number] | readonly unknown[]): number {
  if (typeof input === 'string') return input.length;
  return Number([input].flat()[0]);
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
      // Lets the written data arrive before the connection is cut.
      setTimeout(() => response.destroy(), 5);
      return;
    }
    if (index === events.length - 1) await behaviour.endsAfter;
    if (!response.write(event)) await writable(response);
    const { everyMs = 0 } = behaviour;
    if (everyMs > 0) await delay(everyMs);
  }
  response.end();
}

/** Resolves when more data can be written, or the connection is closed. */
async function writable(response: ServerResponse): Promise<void> {
  await new Promise<void>((resolve) => {
    const go = (): void => {
      response.off('drain', go).off('close', go);
      resolve();
    };
    response.on('drain', go).on('close', go);
  });
}
