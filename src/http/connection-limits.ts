/** Limits the open connections in total and per address. */
import type { Server, Socket } from 'node:net';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { FairShare } from '../core/fair-share.ts';
import type { Log } from '../core/log.ts';
import { countedAddress } from './caller-address.ts';

export interface ConnectionLimitsParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly maxConnections: number;
  /** Whether to limit addresses; `false` behind a proxy. */
  readonly isShared: boolean;
}

/** Closes new connections above the limits; logs a warning once a minute. */
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
  const full = 'New connections are rejected: http.maxConnections are open';
  server.on('drop', () => refused(full, maxConnections));
  if (!isShared) return;
  server.on('connection', (socket: Socket) => {
    const host = countedAddress(socket.remoteAddress ?? '');
    if (open.take(host)) {
      socket.on('close', () => open.giveBack(host));
      return;
    }
    refused('New connections of an address with many open ones are rejected', open.all);
    socket.destroy();
  });
}
