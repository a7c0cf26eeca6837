/** Requests of simulated people. Most connections are used again, as by the clients of real ones. */
import type net from 'node:net';
import { MessageReader, headerOf } from './http-wire.ts';
import { connectTo } from './network.ts';
import { type Machine, world } from './world.ts';

/** One connection in so many ends after a response. */
const CLOSES_ONCE = 8;

export interface Reply {
  readonly status: number;
  readonly requestId: string | undefined;
  /** 0 without the header. */
  readonly retryAfterMs: number;
  readonly body: string;
}

export interface Sent {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Reads only so many bytes of the response, and leaves. */
  readonly leaveAfterBytes?: number;
  /** Leaves after so long. */
  readonly patienceMs: number;
}

/** Connections of a machine that wait for a request, by port. */
const idle = new WeakMap<Machine, Map<string, net.Socket[]>>();

function connectionTo(port: string): { readonly socket: net.Socket; readonly free: net.Socket[] } {
  const { here } = world();
  const ofMachine = idle.get(here) ?? new Map<string, net.Socket[]>();
  idle.set(here, ofMachine);
  const free = ofMachine.get(port) ?? [];
  ofMachine.set(port, free);
  for (;;) {
    const socket = free.pop();
    if (socket === undefined) break;
    if (socket.writable && !socket.readableEnded) return { socket, free };
  }
  const socket = connectTo({ port });
  socket.on('error', () => undefined); // it closes
  return { socket, free };
}

/** Resolves to `undefined` if the response did not arrive whole. */
export function send(sent: Sent): Promise<Reply | undefined> {
  const { method, url, headers = {}, body = '', leaveAfterBytes = Infinity, patienceMs } = sent;
  const { host, port, pathname, search } = new URL(url);
  const { promise, resolve } = Promise.withResolvers<Reply | undefined>();
  const { socket, free } = connectionTo(port);
  const timer = world().schedule(patienceMs, () => socket.destroy());
  const reader = new MessageReader();
  let bytes = 0;
  const end = (reply?: Reply): void => {
    timer.cancel();
    socket.off('data', receive);
    socket.off('close', lost);
    resolve(reply);
  };
  const lost = (): void => end();
  const receive = (piece: Buffer): void => {
    bytes += piece.length;
    if (bytes > leaveAfterBytes) return void socket.destroy();
    const message = reader.add(piece);
    if (message === undefined) return;
    const { head } = message;
    end({
      status: Number(head.split(' ', 2)[1]),
      requestId: headerOf(head, 'x-request-id') || undefined,
      retryAfterMs: 1_000 * Number(headerOf(head, 'retry-after')),
      body: message.body.toString('utf8'),
    });
    const isLast = headerOf(head, 'connection') === 'close' || world().random.once(CLOSES_ONCE);
    if (isLast) socket.destroy();
    else free.push(socket);
  };
  socket.on('data', receive);
  socket.on('close', lost);
  const lines = Object.entries({ host, ...headers, 'content-length': Buffer.byteLength(body) });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  socket.write(`${method} ${pathname}${search} HTTP/1.1\r\n${head}\r\n${body}`);
  return promise;
}
