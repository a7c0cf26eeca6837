/** Requests of simulated people. Most connections are used again, as by the clients of real ones. */
import type net from 'node:net';
import { JSON_TYPE, MessageReader, headerOf } from './http-wire.ts';
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

interface Post {
  /** An API key. */
  readonly secret?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** Reads only so many bytes of the response, and leaves. */
  readonly leaveAfterBytes?: number;
  /** Leaves after so long. */
  readonly patienceMs: number;
}

/** Connections of a machine that wait for a request, by port. */
const idle = new WeakMap<Machine, Map<string, net.Socket[]>>();

function idleTo(port: string): net.Socket[] {
  const { here } = world();
  const ofMachine = idle.get(here) ?? new Map<string, net.Socket[]>();
  idle.set(here, ofMachine);
  const sockets = ofMachine.get(port) ?? [];
  ofMachine.set(port, sockets);
  return sockets;
}

function connectionTo(port: string): net.Socket {
  const sockets = idleTo(port);
  for (let socket = sockets.pop(); socket !== undefined; socket = sockets.pop()) {
    if (socket.writable && !socket.readableEnded) return socket;
  }
  const socket = connectTo({ port });
  socket.on('error', () => undefined); // it closes
  return socket;
}

/** Sends a POST request. Resolves to `undefined` if the response did not arrive whole. */
export function send(
  url: string,
  { secret, headers, body, leaveAfterBytes = Infinity, patienceMs }: Post,
): Promise<Reply | undefined> {
  const { host, port, pathname } = new URL(url);
  const { promise, resolve } = Promise.withResolvers<Reply | undefined>();
  const socket = connectionTo(port);
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
      body: message.body,
    });
    const isLast = headerOf(head, 'connection') === 'close' || world().random.once(CLOSES_ONCE);
    if (isLast) socket.destroy();
    else idleTo(port).push(socket);
  };
  socket.on('data', receive);
  socket.on('close', lost);
  const text = body === undefined ? '' : JSON.stringify(body);
  const lines = Object.entries({
    host,
    ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
    ...(body !== undefined && { 'content-type': JSON_TYPE }),
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  socket.write(`POST ${pathname} HTTP/1.1\r\n${head}\r\n${text}`);
  return promise;
}
