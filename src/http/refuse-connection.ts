/** Responds to bytes that are no complete request of HTTP/1.1, and closes their connection. */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import { errorResponse } from './error-response.ts';
import { REASON_PHRASES } from './request-context.ts';

/** For a caller that does not close its side. */
const CLOSE_AFTER_MS = 2 * SECOND_MS;

/** Error codes of Node's parser; others are malformed requests. */
const PARSER_CODES: Readonly<Record<string, FaultCode>> = {
  HPE_HEADER_OVERFLOW: 'HEADERS_TOO_LARGE',
  ERR_HTTP_REQUEST_TIMEOUT: 'REQUEST_TOO_SLOW',
};

/**
 * `error` is of Node's parser; there is no context yet, so the bytes are written by hand. A request
 * whose response has begun, or has ended (`hasResponse`), gets none.
 */
export function refuseConnection(
  error: { readonly code?: string },
  socket: Socket,
  hasResponse: boolean,
  clock: Clock,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable || hasResponse || hasBegun(socket)) {
    socket.destroy();
    return;
  }
  const code = PARSER_CODES[error.code ?? ''] ?? 'MALFORMED_REQUEST';
  const answer = errorResponse(new Fault(code, { canRetry: false }), false);
  const body = JSON.stringify(answer.body);
  const head = [
    `HTTP/1.1 ${answer.status} ${REASON_PHRASES[answer.status] ?? 'Unknown'}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'x-content-type-options: nosniff',
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  socket.once(
    'close',
    clock.after(CLOSE_AFTER_MS, () => socket.destroy()),
  );
}

/** Whether the current response of a connection has begun. */
function hasBegun(socket: Socket): boolean {
  const { _httpMessage: response } = socket as { _httpMessage?: ServerResponse | null }; // Node's
  return response?.headersSent === true;
}
