/**
 * Bounds what a caller can send after its response. A response can be complete before the request is,
 * such as a 413 or a 401. Closing the connection at once would reset it, and a caller that is still
 * sending could lose the response. So the server discards the rest of any body that it would have
 * taken, such as a large file with an unknown key. It stops reading a longer one, and then closes the
 * connection.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, SECOND_MS } from '../core/clock.ts';

/** The default limit of a body. A caller that sends no more can use its connection again. */
const MAX_DISCARDED_BYTES = 36_000_000;
const MAX_DISCARD_MS = 30 * SECOND_MS;
const CHECK_MS = 100;
/** For a caller that reads only when it cannot send more. */
const CLOSE_AFTER_MS = 2 * SECOND_MS;

/**
 * Called before an error response. Returns whether the rest of the body is or may be too long, so that
 * the response has to announce the end of the connection; otherwise a caller would use it again.
 */
export function isRestTooLong(request: IncomingMessage): boolean {
  const { complete, headers, socket } = request;
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  const isLong = length === undefined ? coding !== undefined : Number(length) > MAX_DISCARDED_BYTES;
  if (complete || !isLong) return false;
  // Node would close an announced connection with the response; `limitUnreadBody` closes it.
  const { destroySoon } = socket as Partial<Pick<Socket, 'destroySoon'>>; // not of an internal call
  socket.destroySoon = () => {
    if (!request.complete) return;
    if (destroySoon === undefined) socket.end();
    else destroySoon.call(socket);
  };
  return true;
}

/**
 * Called after the response of an incomplete request. `isLast`: the response announced the end.
 * Adds the connection to `responded` until the request ends.
 */
export function limitUnreadBody(
  request: IncomingMessage,
  isLast: boolean,
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
    if (isLast) socket.destroy();
  };
  socket.once('close', end);
  request.once('end', end);
}
