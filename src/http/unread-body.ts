/**
 * Bounds what a caller can send after its response. A response can be complete before the request is,
 * such as a 413 or a 401. Closing the connection at once would reset it, and a caller that is still
 * sending could lose the response. So the server discards the rest of any body that it would have
 * taken, such as a large file with an unknown key. It stops reading a longer one, and then closes the
 * connection.
 */
import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { type Clock, SECOND_MS } from '../core/clock.ts';

/** The default limit of a body. A caller that sends no more can use its connection again. */
const MAX_DISCARDED_BYTES = 36_000_000;
const MAX_DISCARD_MS = 30 * SECOND_MS;
const CHECK_MS = 100;
/** For a caller that reads only when it cannot send more. */
const CLOSE_AFTER_MS = 2 * SECOND_MS;

/**
 * Called before an error response: keeps the connection open until the rest of the request has been
 * discarded. Returns whether the rest is or may be too long, so that the response has to announce the
 * end of the connection; otherwise a caller would use it again. `isSent`: whether the response has
 * been sent; before, an earlier response can end the connection.
 */
export function keepForRest(request: IncomingMessage, isSent: () => boolean): boolean {
  const { complete, headers, socket } = request;
  if (complete) return false;
  // Node closes a connection with its last response. That of an internal call is no socket.
  if (socket instanceof Socket) {
    const close = (): void => Socket.prototype.destroySoon.call(socket);
    socket.destroySoon = () => {
      if (isSent() && !request.complete) request.once('end', close);
      else close();
    };
  }
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  return length === undefined ? coding !== undefined : Number(length) > MAX_DISCARDED_BYTES;
}

/**
 * Called after the response of an incomplete request. Adds the connection to `responded` until the
 * request ends.
 */
export function limitUnreadBody(
  request: IncomingMessage,
  clock: Clock,
  responded: WeakSet<Socket>,
): void {
  const { socket } = request;
  if (socket.destroyed) return;
  responded.add(socket);
  const maxBytes = socket.bytesRead + MAX_DISCARDED_BYTES;
  let closesMs = clock.monotonicMs() + MAX_DISCARD_MS;
  let isStopped = false;
  // Node does not report bytes that it discards, and a listener of the connection disturbs it.
  const stopChecks = clock.every(CHECK_MS, () => {
    const nowMs = clock.monotonicMs();
    if (nowMs >= closesMs) socket.destroy();
    if (isStopped || socket.bytesRead <= maxBytes) return;
    isStopped = true;
    closesMs = Math.min(closesMs, nowMs + CLOSE_AFTER_MS);
    // A request that is being read would resume the connection.
    request.pause();
    socket.pause();
  });
  const end = (): void => {
    stopChecks();
    responded.delete(socket);
    socket.off('close', end);
  };
  socket.once('close', end);
  request.once('end', end);
}
