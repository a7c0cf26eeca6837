/** An HTTP server as an engine of any kind, with responses of the test. */
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import { endServer, listen } from './loopback.ts';

export interface Heard {
  readonly method: string;
  readonly path: string;
  readonly key: string | undefined;
  readonly body: string;
}

export type Answer = (heard: Heard, response: ServerResponse) => unknown;

export type LoopbackEngine = Awaited<ReturnType<typeof openEngine>>;

/** An engine with responses of the test. */
export async function openEngine() {
  const heard: Heard[] = [];
  const engine = { answer: ((_heard, response) => response.end()) as Answer };
  const server = createServer((request: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('latin1');
      const key = request.headers['idempotency-key']?.toString();
      const one = { method: request.method ?? '', path: request.url ?? '', key, body };
      heard.push(one);
      void engine.answer(one, response);
    });
  });
  return Object.assign(engine, {
    heard,
    url: `http://127.0.0.1:${await listen(server)}`,
    close: () => endServer(server),
  });
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
