/** One server in front of one scripted engine, for tests of all kinds of models. */
import { once } from 'node:events';
import { type IncomingHttpHeaders, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { sameMinute } from '../support/still-clock.ts';

export interface Heard {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** The body as JSON; a test that reads it from something else fails there. */
  readonly json: ReturnType<typeof JSON.parse>;
}

type Answer = (heard: Heard, response: ServerResponse) => unknown;

/** Responds to each path as its test defines; an undefined path is a 404. */
export class ScriptedEngine {
  readonly heard: Heard[] = [];
  readonly #answers = new Map<string, Answer>();
  readonly #server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const bytes = Buffer.concat(chunks);
      const { method = 'GET', url: path = '', headers } = request;
      const one: Heard = {
        method,
        path,
        headers,
        bytes,
        get json() {
          return JSON.parse(bytes.toString());
        },
      };
      this.heard.push(one);
      const answer = this.#answers.get(path);
      if (answer === undefined) return void response.writeHead(404).end('{}');
      void answer(one, response);
    });
  });

  async start(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const { port } = this.#server.address() as AddressInfo; // a listening TCP server has one
    return `http://127.0.0.1:${port}/v1`;
  }

  /** `path` is below `/v1`. */
  on(path: string, answer: Answer): void {
    this.#answers.set(`/v1${path}`, answer);
  }

  onJson(path: string, body: unknown, status = 200): void {
    this.on(path, (_heard, response) => sendJson(response, body, status));
  }

  last(): Heard {
    const heard = this.heard.at(-1);
    if (heard === undefined) throw new Error('The engine was not asked');
    return heard;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

export function sendJson(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** Server-sent events, and `[DONE]` at the end. */
export function sendEvents(response: ServerResponse, events: readonly unknown[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const event of events) response.write(`data: ${JSON.stringify(event)}\n\n`);
  response.end('data: [DONE]\n\n');
}

const SETTINGS = `
fetch: { allow: [127.0.0.0/8] }
limits:
  unsoldPerMinute: 1000000
  guard: { failures: 100000 }
`;

export interface ModelFixture {
  readonly engine: ScriptedEngine;
  /** Origin of the engine, which also serves files that callers name by URL. */
  readonly engineUrl: string;
  readonly farebox: TestApp;
  stop(): Promise<void>;
}

/** `models` is YAML; the engine is called `studio`. */
export async function startModelFixture(models: string): Promise<ModelFixture> {
  const engine = new ScriptedEngine();
  const url = await engine.start();
  const yaml = `engines: { studio: { url: "${url}" } }\n${SETTINGS}\nmodels:\n${models}`;
  let farebox: TestApp;
  try {
    farebox = await startTestApp({ yaml, clock: sameMinute() });
  } catch (error) {
    // Nothing may stay behind: an open server would keep the test process alive.
    await engine.close();
    throw error;
  }
  return {
    engine,
    engineUrl: url,
    farebox,
    stop: async () => {
      await farebox.audit();
      await farebox.stop();
      await engine.close();
    },
  };
}
