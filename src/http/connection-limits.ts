/**
 * Bounds the open connections, and what one address may have of them: each is a socket of the
 * process, and who opens many and sends nothing would shut everybody else out.
 */
import type { Server, Socket } from 'node:net';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { countedAddress } from './caller-address.ts';

/** What is left when so many are open is for addresses that have less than the rest of them. */
const SHARE_FOR_ALL = 3 / 4;

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
  const open = new Map<string, number>();
  let all = 0;
  let quietUntilMs = 0;
  const refused = (message: string): void => {
    if (clock.monotonicMs() < quietUntilMs) return;
    quietUntilMs = clock.monotonicMs() + MINUTE_MS;
    log.warn({ open: all, maxConnections }, message);
  };
  server.maxConnections = maxConnections;
  server.on('drop', () => refused('New connections are refused: as many are open as may be'));
  server.on('connection', (socket: Socket) => {
    const host = countedAddress(socket.remoteAddress ?? '');
    const own = (open.get(host) ?? 0) + 1;
    open.set(host, own);
    all += 1;
    socket.on('close', () => {
      const left = (open.get(host) ?? 0) - 1;
      if (left > 0) open.set(host, left);
      else open.delete(host);
      all -= 1;
    });
    const isGreedy = own > maxConnections * (1 - SHARE_FOR_ALL);
    if (!isShared || !isGreedy || all <= maxConnections * SHARE_FOR_ALL) return;
    refused('New connections are refused to an address that has many, so that others get in');
    socket.destroy();
  });
}
