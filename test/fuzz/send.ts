/** Sends one request on its own connection, and returns the complete response. */
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { targetPath } from '../../src/core/request-target.ts';
import type { FuzzRequest } from './requests.ts';

export interface Answer {
  readonly status: number;
  /** In the order on the wire. */
  readonly headers: readonly (readonly [string, string])[];
  /** Body as sent, which can be compressed. */
  readonly body: Buffer;
  readonly tookMs: number;
}

/** Stops when the caller aborts. */
const ENDLESS = /\/events\/?$/;
const EVENT_END = '\n\n';

/** Rejects if no complete response arrives in `limitMs`; of an endless one the first events are enough. */
export async function send(origin: string, request: FuzzRequest, limitMs: number): Promise<Answer> {
  const { hostname, port, host } = new URL(origin);
  const started = performance.now();
  const length = request.body === undefined ? [] : ['content-length', String(request.body.length)];
  const outgoing = httpRequest({
    hostname,
    port,
    agent: false,
    method: request.method,
    path: request.target,
    headers: ['host', host, ...request.headers.flat(), ...length] as never, // a flat list is accepted at runtime
    signal: AbortSignal.timeout(limitMs),
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve);
    // An accepted upgrade or tunnel is a response too.
    outgoing.once('upgrade', resolve).once('connect', resolve).once('error', reject);
  });
  outgoing.end(request.body);
  const response = await answered;
  // The server can respond before it has read everything, and close the connection.
  outgoing.on('error', () => undefined);
  const chunks: Buffer[] = [];
  const isEndless = response.statusCode === 200 && ENDLESS.test(targetPath(request.target));
  for await (const chunk of response) {
    chunks.push(chunk as Buffer);
    // Leaving the loop closes the connection.
    if (isEndless && chunks.at(-1)?.includes(EVENT_END) === true) break;
  }
  const { rawHeaders } = response;
  return {
    status: response.statusCode ?? 0,
    headers: Array.from({ length: rawHeaders.length / 2 }, (_, index) => [
      rawHeaders[index * 2] ?? '',
      rawHeaders[index * 2 + 1] ?? '',
    ]),
    body: Buffer.concat(chunks),
    tookMs: performance.now() - started,
  };
}

/** Writes bytes and half-closes the connection; returns all received bytes. Rejects after `limitMs`. */
export async function sendBytes(origin: string, bytes: Buffer, limitMs: number): Promise<Buffer> {
  const { hostname, port } = new URL(origin);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  // A reset after the response is how a server stops reading.
  socket.on('error', () => undefined);
  const timer = setTimeout(() => socket.destroy(new Error('too slow')), limitMs);
  let isLate = true;
  try {
    socket.end(bytes);
    await once(socket, 'close');
    isLate = socket.errored?.message === 'too slow';
  } finally {
    clearTimeout(timer);
  }
  if (isLate) throw new Error(`The connection was not closed within ${limitMs} ms`);
  return Buffer.concat(chunks);
}
