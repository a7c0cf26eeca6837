/**
 * HTTP/1.1 of the simulated peers. The server under test has the real one of Node.js; its peers need only
 * messages that it and undici write, and a small reader saves much of the time of a run. Their bodies
 * contain no carriage return.
 */
import net from 'node:net';

const HEAD_END = '\r\n\r\n';
/** Ends a body in chunks. */
export const LAST_CHUNK = '0\r\n\r\n';
/** The size of a chunk, with the end of the chunk before. */
const CHUNK_SIZE = /(?:^|\r\n)[\da-f]+\r\n/g;
export const JSON_TYPE = 'application/json';
const HEXADECIMAL = 16;

export interface HttpMessage {
  /** The first line and the headers, in lower case. */
  readonly head: string;
  /** A character for each byte. */
  readonly body: string;
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
  #text = '';
  /** Empty until the head is whole. */
  #head = '';

  /** Returns the message if `piece` is its end. */
  add(piece: Buffer): HttpMessage | undefined {
    this.#text += piece.toString('latin1');
    if (this.#head === '') {
      const size = this.#text.indexOf(HEAD_END);
      if (size < 0) return undefined;
      this.#head = this.#text.slice(0, size).toLowerCase();
      this.#text = this.#text.slice(size + HEAD_END.length);
    }
    const [head, body] = [this.#head, this.#text];
    const isChunked = headerOf(head, 'transfer-encoding') === 'chunked';
    const isWhole = isChunked
      ? body.endsWith(`\r\n${LAST_CHUNK}`) || body === LAST_CHUNK
      : body.length >= Number(headerOf(head, 'content-length'));
    if (!isWhole) return undefined;
    [this.#head, this.#text] = ['', ''];
    return { head, body: isChunked ? body.replaceAll(CHUNK_SIZE, '') : body };
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
