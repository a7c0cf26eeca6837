/**
 * Closes the connections of callers that do not read: the socket accepted no byte of the response
 * for the time limit. Connections are checked periodically, so that a write costs nothing. Checks
 * are counted instead of time, so that a suspended process closes no connection.
 */
import type { Server, Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { InFlight, type Placed } from '../core/in-flight.ts';
import type { Log } from '../core/log.ts';

/** The limit may be exceeded by an eighth of it, at most by this much. */
const MAX_LOOK_MS = 5_000;
const LOOKS = 8;

interface Connection extends Placed {
  readonly socket: Socket;
  /** Checks without progress. */
  stillLooks: number;
  writtenBytes: number;
  queuedBytes: number;
}

export interface WriteTimeoutParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly timeoutMs: number;
}

export function limitWrites(server: Server, { clock, log, timeoutMs }: WriteTimeoutParts): void {
  const connections = new InFlight<Connection>();
  const lookMs = Math.min(timeoutMs / LOOKS, MAX_LOOK_MS);
  const mostLooks = Math.ceil(timeoutMs / lookMs);
  const stop = clock.every(lookMs, () => {
    for (const one of connections.all()) {
      one.stillLooks = hasMoved(one) ? 0 : one.stillLooks + 1;
      if (one.stillLooks >= mostLooks) {
        log.debug(
          { timeoutMs },
          'A connection was closed because the caller did not read the response',
        );
        one.socket.destroy();
      }
    }
  });
  server.on('close', stop);
  server.on('connection', (socket) => {
    const one = { socket, place: -1, stillLooks: 0, writtenBytes: 0, queuedBytes: 0 };
    connections.add(one);
    socket.on('close', () => connections.delete(one));
  });
}

/** Whether the kernel accepted bytes since the last check, or all of them. */
function hasMoved(one: Connection): boolean {
  const { socket } = one;
  const waitingBytes = socket.writableLength;
  const writtenBytes = socket.bytesWritten - waitingBytes;
  const queuedBytes = queuedBytesOf(socket);
  const moved =
    waitingBytes === 0 || writtenBytes !== one.writtenBytes || queuedBytes !== one.queuedBytes;
  one.writtenBytes = writtenBytes;
  one.queuedBytes = queuedBytes;
  return moved;
}

/**
 * Bytes left of the current write: a large body is one write, and `bytesWritten` changes only at its
 * end. Node's idle timeout reads the same number.
 */
function queuedBytesOf(socket: Socket): number {
  const { _handle: handle } = socket as { _handle?: { writeQueueSize?: number } | null }; // Node's
  return handle?.writeQueueSize ?? 0;
}
