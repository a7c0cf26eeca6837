/**
 * HTTP/1.1 of the simulated peers. The server under test has the real one of Node.js; its peers need only
 * messages that it and undici write, and a small reader saves much of the time of a run. Their bodies
 * contain no carriage return. Most connections are used again, as by the clients of real people.
 */
import net from 'node:net';
import { connectTo } from './network.ts';
import { world } from './world.ts';

const HEAD_END = '\r\n\r\n';
/** Ends a body in chunks. */
export const LAST_CHUNK = '0\r\n\r\n';
/** The size of a chunk, with the end of the chunk before. */
const CHUNK_SIZE = /(?:^|\r\n)[\da-f]+\r\n/g;
export const JSON_TYPE = 'application/json';
const HEXADECIMAL = 16;
/** One connection in so many ends after a response. */
const CLOSES_ONCE = 8;

export interface HttpMessage {
  /** The first line and the headers, in lower case. */
  readonly head: string;
  /** A character for each byte. */
  readonly body: string;
}

/** The value of a header, or an empty text. */
function headerOf(head: string, name: string): string {
  const at = head.indexOf(`\r\n${name}: `);
  if (at < 0) return '';
  const from = at + name.length + 4;
  const end = head.indexOf('\r\n', from);
  return head.slice(from, end < 0 ? undefined : end);
}

/** Returns a function that takes pieces of messages, and returns a message if the piece is its end. */
function messageReader(): (piece: Buffer) => HttpMessage | undefined {
  /** The head is empty until it is whole. */
  let [head, body] = ['', ''];
  return (piece) => {
    body += piece.toString('latin1');
    if (head === '') {
      const size = body.indexOf(HEAD_END);
      if (size < 0) return undefined;
      head = body.slice(0, size).toLowerCase();
      body = body.slice(size + HEAD_END.length);
    }
    const isChunked = headerOf(head, 'transfer-encoding') === 'chunked';
    const isWhole = isChunked
      ? body.endsWith(`\r\n${LAST_CHUNK}`) || body === LAST_CHUNK
      : body.length >= Number(headerOf(head, 'content-length'));
    if (!isWhole) return undefined;
    const message = { head, body: isChunked ? body.replaceAll(CHUNK_SIZE, '') : body };
    [head, body] = ['', ''];
    return message;
  };
}

/** A server whose clients wait for a response before the next request, as undici does. */
export function serveHttp(
  port: number,
  respond: (request: HttpMessage, socket: net.Socket) => void,
): void {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined); // its client left
    socket.on('end', () => socket.end());
    const read = messageReader();
    socket.on('data', (piece: Buffer) => {
      const request = read(piece);
      if (request !== undefined) respond(request, socket);
    });
  });
  server.listen({ port });
}

/** A response with a length; without a body, the head of one that is sent in chunks. */
export function responseOf(status: number, type: string, body?: string): string {
  const size =
    body === undefined
      ? 'transfer-encoding: chunked'
      : `content-length: ${Buffer.byteLength(body)}`;
  return `HTTP/1.1 ${status} Status\r\ncontent-type: ${type}\r\n${size}${HEAD_END}${body ?? ''}`;
}

export function chunkOf(text: string): string {
  return `${Buffer.byteLength(text).toString(HEXADECIMAL)}\r\n${text}\r\n`;
}

export interface Reply {
  readonly status: number;
  readonly requestId: string | undefined;
  /** 0 without the header. */
  readonly retryAfterMs: number;
  /** Requests of the minute. */
  readonly requestsLeft: number | undefined;
  readonly body: string;
}

interface Request {
  /** Default: POST. */
  readonly method?: 'GET' | 'PUT';
  /** An API key. */
  readonly secret?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON; a text is sent as it is. */
  readonly body?: object | string;
  /** Reads only so many bytes of the response, and leaves. */
  readonly leaveAfterBytes?: number;
  /** Leaves after so long. */
  readonly patienceMs: number;
}

function connectionTo(port: string): net.Socket {
  const waiting = world().here.idle[port] ?? [];
  for (let socket = waiting.pop(); socket !== undefined; socket = waiting.pop()) {
    if (socket.writable && !socket.readableEnded) return socket;
  }
  const socket = connectTo({ port });
  socket.on('error', () => undefined); // it closes
  return socket;
}

/** Sends a request. Resolves to `undefined` if the response did not arrive whole. */
export function send(
  url: string,
  { method, secret, headers, body, leaveAfterBytes = Infinity, patienceMs }: Request,
): Promise<Reply | undefined> {
  const { host, port, pathname } = new URL(url);
  const { promise, resolve } = Promise.withResolvers<Reply | undefined>();
  const socket = connectionTo(port);
  const timer = world().schedule(patienceMs, () => socket.destroy());
  const read = messageReader();
  let bytes = 0;
  const end = (reply?: Reply): void => {
    timer.cancel();
    socket.off('data', receive);
    socket.off('close', lost);
    resolve(reply);
  };
  const lost = (): void => end();
  const receive = (piece: Buffer): void => {
    bytes += piece.length;
    if (bytes > leaveAfterBytes) return void socket.destroy();
    const message = read(piece);
    if (message === undefined) return;
    const { head } = message;
    const left = headerOf(head, 'x-ratelimit-remaining-requests');
    end({
      status: Number(head.split(' ', 2)[1]),
      requestId: headerOf(head, 'x-request-id') || undefined,
      retryAfterMs: 1_000 * Number(headerOf(head, 'retry-after')),
      requestsLeft: left === '' ? undefined : Number(left),
      body: message.body,
    });
    const isLast = headerOf(head, 'connection') === 'close' || world().random.once(CLOSES_ONCE);
    if (isLast) socket.destroy();
    else (world().here.idle[port] ??= []).push(socket);
  };
  socket.on('data', receive);
  socket.on('close', lost);
  const text = typeof body === 'object' ? JSON.stringify(body) : (body ?? '');
  const lines = Object.entries({
    host,
    ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
    ...(typeof body === 'object' && { 'content-type': JSON_TYPE }),
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  socket.write(`${method ?? 'POST'} ${pathname} HTTP/1.1\r\n${head}\r\n${text}`);
  return promise;
}
