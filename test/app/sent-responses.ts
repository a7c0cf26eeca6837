/** Records the responses of a server. Needs no part of the server. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { targetPath } from '../../src/core/request-target.ts';

/** Larger bodies are not recorded. */
const MAX_BODY_BYTES = 1024 * 1024;

export interface SentResponse {
  readonly method: string;
  /** Without query and fragment. */
  readonly path: string;
  readonly status: number;
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  /** As it was sent, so perhaps compressed. */
  readonly body: Buffer;
  /** `false` if the response was cut or its body was too large. */
  readonly isWhole: boolean;
}

/** Calls `done` when the response was sent or the caller has disconnected; never without a response. */
export function copyResponse(
  request: IncomingMessage,
  response: ServerResponse,
  done: (answer: SentResponse) => void,
): void {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  const keep = (chunk: unknown, encoding: unknown): void => {
    if (typeof chunk !== 'string' && !Buffer.isBuffer(chunk)) return;
    const textEncoding = typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8'; // Node takes no other
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, textEncoding) : Buffer.from(chunk);
    sizeBytes += bytes.length;
    if (sizeBytes <= MAX_BODY_BYTES) chunks.push(bytes);
  };
  const write = response.write.bind(response) as (...all: unknown[]) => boolean;
  const end = response.end.bind(response) as (...all: unknown[]) => ServerResponse;
  // Both functions have overloads; only the first argument matters.
  response.write = ((chunk: unknown, ...rest: unknown[]) => {
    keep(chunk, rest[0]);
    return write(chunk, ...rest);
  }) as typeof response.write;
  response.end = ((chunk: unknown, ...rest: unknown[]) => {
    keep(chunk, rest[0]);
    return end(chunk, ...rest);
  }) as typeof response.end;
  response.once('close', () => {
    if (!response.headersSent) return;
    done({
      method: request.method ?? '',
      path: targetPath(request.url),
      status: response.statusCode,
      headers: headersOf(response),
      body: Buffer.concat(chunks),
      isWhole: response.writableFinished && sizeBytes <= MAX_BODY_BYTES,
    });
  });
}

/** Headers as they were written, by lower-case name. */
function headersOf(response: ServerResponse): Readonly<Record<string, string>> {
  // A flat list of headers for `writeHead` is only in the sent text.
  const text = (response as unknown as { _header: string | null })._header ?? '';
  const lines = text
    .split('\r\n')
    .slice(1)
    .filter((line) => line.includes(':'));
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
}
