/**
 * Bounds the open connections in all and for each address: each of them is a socket of the process.
 */
import type { Server, Socket } from 'node:net';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { FairShare } from '../core/fair-share.ts';
import type { Log } from '../core/log.ts';
import { countedAddress } from './caller-address.ts';

export interface ConnectionLimitsParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly maxConnections: number;
  /** Not where they come from a proxy, which has all of them. */
  readonly isShared: boolean;
}

/** Closes new connections of a server that are too many; says so once a minute. */
export function limitConnections(server: Server, parts: ConnectionLimitsParts): void {
  const { clock, log, maxConnections, isShared } = parts;
  const open = new FairShare(maxConnections);
  let quietUntilMs = 0;
  const refused = (message: string, count: number): void => {
    if (clock.monotonicMs() < quietUntilMs) return;
    quietUntilMs = clock.monotonicMs() + MINUTE_MS;
    log.warn({ open: count, maxConnections }, message);
  };
  server.maxConnections = maxConnections;
  const full = 'New connections are refused: as many are open as may be';
  server.on('drop', () => refused(full, maxConnections));
  if (!isShared) return;
  server.on('connection', (socket: Socket) => {
    const host = countedAddress(socket.remoteAddress ?? '');
    if (open.take(host)) {
      socket.on('close', () => open.giveBack(host));
      return;
    }
    const greedy = 'New connections are refused to an address that has many, so that others get in';
    refused(greedy, open.all);
    socket.destroy();
  });
}
