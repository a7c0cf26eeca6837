/**
 * HTTP/1.1 of the simulated peers. The server under test has the real one of Node.js; its peers need only
 * messages that it and undici write, and a small reader saves much of the time of a run.
 */
import net from 'node:net';

const HEAD_END = '\r\n\r\n';
/** Ends a body in chunks. */
export const LAST_CHUNK = '0\r\n\r\n';
export const JSON_TYPE = 'application/json';
const NOTHING: Buffer = Buffer.alloc(0);
const HEXADECIMAL = 16;

export interface HttpMessage {
  /** The first line and the headers, in lower case. */
  readonly head: string;
  readonly body: Buffer;
}

/** The value of a header, or an empty text. */
export function headerOf(head: string, name: string): string {
  const at = head.indexOf(`\r\n${name}: `);
  if (at < 0) return '';
  const from = at + name.length + 4;
  const end = head.indexOf('\r\n', from);
  return head.slice(from, end < 0 ? undefined : end);
}

/** The messages of one direction of a connection. Each is whole before the next one begins. */
export class MessageReader {
  #bytes = NOTHING;
  #head: string | undefined;
  /** Length of the body; `undefined` for one in chunks. */
  #size: number | undefined;

  /** Returns the message if `piece` is its end. */
  add(piece: Buffer): HttpMessage | undefined {
    this.#bytes = this.#bytes.length === 0 ? piece : Buffer.concat([this.#bytes, piece]);
    if (this.#head === undefined && !this.#hasHead()) return undefined;
    const body = this.#body();
    if (this.#head === undefined || body === undefined) return undefined;
    const message = { head: this.#head, body };
    this.#head = undefined;
    this.#bytes = NOTHING;
    return message;
  }

  #hasHead(): boolean {
    const size = this.#bytes.indexOf(HEAD_END);
    if (size < 0) return false;
    const head = this.#bytes.toString('latin1', 0, size).toLowerCase();
    this.#head = head;
    const isChunked = headerOf(head, 'transfer-encoding') === 'chunked';
    this.#size = isChunked ? undefined : Number(headerOf(head, 'content-length'));
    this.#bytes = this.#bytes.subarray(size + HEAD_END.length);
    return true;
  }

  #body(): Buffer | undefined {
    const bytes = this.#bytes;
    if (this.#size !== undefined) return bytes.length < this.#size ? undefined : bytes;
    const end = bytes.toString('latin1', Math.max(0, bytes.length - LAST_CHUNK.length));
    return end === LAST_CHUNK ? chunksIn(bytes) : undefined;
  }
}

function chunksIn(bytes: Buffer): Buffer | undefined {
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const line = bytes.indexOf('\r\n', at);
    if (line < 0) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, line), HEXADECIMAL);
    const from = line + 2;
    if (bytes.length < from + size + 2) return undefined;
    if (size === 0) return Buffer.concat(chunks);
    chunks.push(bytes.subarray(from, from + size));
    at = from + size + 2;
  }
}

/** A server whose clients wait for a response before the next request, as undici does. */
export function serveHttp(
  port: number,
  respond: (request: HttpMessage, socket: net.Socket) => void,
): void {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined); // its client left
    socket.on('end', () => socket.end());
    const reader = new MessageReader();
    socket.on('data', (piece: Buffer) => {
      const request = reader.add(piece);
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
