/**
 * Answers to what is no HTTP request, or one that does not end: there is no context yet, so the
 * bytes are written by hand and the connection is closed.
 */
import type { Socket } from 'node:net';
import { Fault, type FaultCode } from '../core/faults.ts';
import { errorAnswer } from './error-response.ts';
import { reasonPhrase } from './request-context.ts';

/** `error` is what Node's parser says. */
export function refuseConnection(error: { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const answer = errorAnswer(new Fault(codeOf(error.code), { canRetry: false }), false);
  const body = JSON.stringify(answer.body);
  const head = [
    `HTTP/1.1 ${answer.status} ${reasonPhrase(answer.status)}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'x-content-type-options: nosniff',
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

function codeOf(code: string | undefined): FaultCode {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return 'HEADERS_TOO_LARGE';
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'REQUEST_TOO_SLOW';
    default:
      return 'MALFORMED_REQUEST';
  }
}
