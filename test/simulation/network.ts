/**
 * Connections between machines of a world. A server that listens is found by its port; the host does
 * not matter. Bytes arrive in order, late, and never after a cut. `weather` decides how late.
 */
import net from 'node:net';
import { type Machine, type Timer, world } from './world.ts';

/** Bytes that a receiver has not read before its sender waits. */
const WINDOW_BYTES = 256 * 1024;
const FIRST_PORT = 20_000;

type Done = (error?: Error | null) => void;

interface Listener {
  readonly machine: Machine;
  readonly server: net.Server;
}

/** Members of a server that Node itself keeps. */
interface OpenServer extends net.Server {
  _handle: object | null;
  _connections: number;
  _emitCloseIfDrained(): void;
}

/** Faults of the network of one world. */
export interface Weather {
  /** One way, in milliseconds. */
  readonly delayMs: (from: Machine, to: Machine) => number;
  /** Bytes between these machines wait until this time of the world. */
  readonly partedUntilMs: (from: Machine, to: Machine) => number;
  /** Whether this write cuts the connection. */
  readonly cuts: (from: Machine, to: Machine) => boolean;
}

/** State of one run; `resetNetwork` begins the next one. */
const state = {
  listeners: new Map<number, Listener>(),
  nextPort: FIRST_PORT,
  weather: undefined as Weather | undefined,
};

export function resetNetwork(weather: Weather): void {
  state.listeners.clear();
  state.nextPort = FIRST_PORT;
  state.weather = weather;
}

function weather(): Weather {
  if (state.weather === undefined) throw new Error('There is no network');
  return state.weather;
}

function systemError(code: string, syscall: string): Error {
  return Object.assign(new Error(`${syscall} ${code}`), { code, syscall });
}

interface SocketOptions {
  readonly allowHalfOpen?: boolean;
  /** Default: the machine whose code runs. */
  readonly machine?: Machine;
}

/** One end of a connection. It replaces `net.Socket`. */
export class WorldSocket extends net.Socket {
  readonly #machine: Machine;
  #peer: WorldSocket | undefined;
  /** Bytes on their way to this end, or not read yet. */
  #inboundBytes = 0;
  #waiting: (() => void) | undefined;
  #lastArrivalMs = 0;
  #read = 0;
  #written = 0;
  #idleMs = 0;
  #idleTimer: Timer | undefined;
  #activeMs = 0;
  readonly #onDeath = (): void => this.#vanish();
  readonly #queue: (Buffer | null)[] = [];
  #wantsData = false;
  isOpen = false;
  at = '';

  constructor({ allowHalfOpen = false, machine = world().here }: SocketOptions = {}) {
    super({ allowHalfOpen });
    this.#machine = machine;
    machine.onDeath.add(this.#onDeath);
    // Accessors of a real socket, which reads them from its handle.
    Object.defineProperties(this, {
      remoteAddress: { value: '127.0.0.1' },
      remotePort: { value: 40_000 },
      remoteFamily: { value: 'IPv4' },
      bytesRead: { get: () => this.#read },
      bytesWritten: { get: () => this.#written },
    });
  }

  join(peer: WorldSocket): void {
    this.#peer = peer;
    this.isOpen = true;
  }

  /** Like that of a real socket, with a port and a host, or with options. */
  override connect(...parameters: unknown[]): this {
    const [first] = parameters;
    const { port } =
      typeof first === 'object' && first !== null
        ? (first as ConnectOptions)
        : { port: Number(first) };
    open(this, this.#machine, Number(port), callbackIn(parameters));
    return this;
  }

  override setTimeout(ms: number, done?: () => void): this {
    Reflect.set(this, 'timeout', ms);
    this.#idleMs = ms;
    this.#idleTimer?.cancel();
    this.#activeMs = world().nowMs;
    if (done !== undefined) {
      if (ms === 0) this.removeListener('timeout', done);
      else this.once('timeout', done);
    }
    if (ms > 0) this.#watch(ms);
    return this;
  }

  #watch(ms: number): void {
    this.#idleTimer = world().schedule(
      ms,
      () => {
        const idleMs = world().nowMs - this.#activeMs;
        if (idleMs >= this.#idleMs) this.emit('timeout');
        else this.#watch(this.#idleMs - idleMs);
      },
      this.#machine,
    );
  }

  override ref(): this {
    return this;
  }

  override unref(): this {
    return this;
  }

  override resetAndDestroy(): this {
    return this.destroy();
  }

  override _read(): void {
    this.#wantsData = true;
    this.#deliver();
  }

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: Done): void {
    this.#send([bytesOf(chunk, encoding)], done);
  }

  override _writev(
    chunks: { readonly chunk: Buffer | string; readonly encoding: BufferEncoding }[],
    done: Done,
  ): void {
    this.#send(
      chunks.map(({ chunk, encoding }) => bytesOf(chunk, encoding)),
      done,
    );
  }

  override _final(done: Done): void {
    this.#whenOpen(() => {
      this.#transmit(null);
      done();
    });
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#idleTimer?.cancel();
    this.#machine.onDeath.delete(this.#onDeath);
    const peer = this.#peer;
    // Unread data of the other end is lost, as after a reset.
    if (peer !== undefined && !this.readableEnded) this.#later(() => peer.reset());
    else if (peer !== undefined) this.#transmit(null);
    this.#peer = undefined;
    super._destroy(error, done);
  }

  /** The other end, or the network, has cut the connection. */
  reset(): void {
    if (this.destroyed) return;
    this.#queue.length = 0;
    this.destroy(systemError('ECONNRESET', 'read'));
  }

  /** The machine of this end died: no code of it runs, and the other end notices after a moment. */
  #vanish(): void {
    const peer = this.#peer;
    if (peer !== undefined) this.#later(() => peer.reset());
    this.#peer = undefined;
  }

  #whenOpen(work: () => void): void {
    if (this.connecting) this.once('connect', work);
    else work();
  }

  #send(chunks: readonly Buffer[], done: Done): void {
    this.#whenOpen(() => {
      const peer = this.#peer;
      if (peer === undefined) return done(systemError('EPIPE', 'write'));
      if (weather().cuts(this.#machine, peer.#machine)) {
        world().note(`cut ${this.at}`);
        this.#later(() => peer.reset());
        this.#peer = undefined;
        peer.#peer = undefined;
        return this.reset();
      }
      this.#activeMs = world().nowMs;
      // A copy, because the sender may use its buffer again.
      const bytes = Buffer.concat(chunks);
      this.#written += bytes.length;
      peer.#inboundBytes += bytes.length;
      this.#transmit(bytes);
      if (peer.#inboundBytes <= WINDOW_BYTES) done();
      else peer.#waiting = () => done();
    });
  }

  /** Lets bytes, or the end, arrive at the other side. */
  #transmit(bytes: Buffer | null): void {
    const peer = this.#peer;
    if (peer === undefined) return;
    this.#later(() => {
      world().note(`${this.at} ${bytes === null ? 'end' : describe(bytes)}`);
      peer.#queue.push(bytes);
      peer.#activeMs = world().nowMs;
      peer.#deliver();
    });
  }

  /** In order: nothing overtakes what was sent before. */
  #later(arrive: () => void): void {
    const to = this.#peer;
    if (to === undefined) return;
    const { nowMs } = world();
    const { delayMs, partedUntilMs } = weather();
    const arrivalMs = Math.max(
      nowMs + delayMs(this.#machine, to.#machine),
      partedUntilMs(this.#machine, to.#machine),
      this.#lastArrivalMs,
    );
    this.#lastArrivalMs = arrivalMs;
    world().schedule(arrivalMs - nowMs, arrive, to.#machine);
  }

  #deliver(): void {
    while (this.#wantsData && this.#queue.length > 0 && !this.destroyed) {
      const next = this.#queue.shift()!;
      if (next === null) {
        this.push(null);
        this.read(0);
        return;
      }
      this.#read += next.length;
      this.#inboundBytes -= next.length;
      this.#wantsData = this.push(next);
      if (this.#inboundBytes <= WINDOW_BYTES) this.#continue();
    }
  }

  /** The sender may write on, a moment later. */
  #continue(): void {
    const done = this.#waiting;
    if (done === undefined) return;
    this.#waiting = undefined;
    if (this.#peer !== undefined) world().schedule(1, done, this.#peer.#machine);
  }
}

/** A socket gets strings as they are. */
function bytesOf(chunk: Buffer | string, encoding: BufferEncoding): Buffer {
  return typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
}

/** The text of a message without its `Date`, which Node takes from the real clock. */
function describe(bytes: Buffer): string {
  const text = bytes.toString('latin1').replace(/\r\nDate: [^\r]*/i, '');
  return `${text.length} bytes ${text}`;
}

interface ConnectOptions {
  readonly port?: number | string;
  readonly allowHalfOpen?: boolean;
}

/** Replaces `net.connect`. */
export function connectTo(...parameters: unknown[]): net.Socket {
  const [{ allowHalfOpen = false }] = parameters as [ConnectOptions]; // as clients call it
  return new WorldSocket({ allowHalfOpen }).connect(...parameters);
}

function callbackIn(parameters: readonly unknown[]): (() => void) | undefined {
  return parameters.findLast((one) => typeof one === 'function') as (() => void) | undefined; // as Node's
}

function open(
  socket: WorldSocket,
  here: Machine,
  port: number,
  done: (() => void) | undefined,
): void {
  Reflect.set(socket, 'connecting', true);
  if (done !== undefined) socket.once('connect', done);
  const to = state.listeners.get(port);
  const delayMs = to === undefined ? 1 : weather().delayMs(here, to.machine);
  const parted = to === undefined ? 0 : weather().partedUntilMs(here, to.machine) - world().nowMs;
  const connect = (): void => {
    if (socket.destroyed) return;
    Reflect.set(socket, 'connecting', false);
    const listener = state.listeners.get(port);
    if (listener === undefined || !listener.machine.isAlive) {
      socket.destroy(systemError('ECONNREFUSED', 'connect'));
      return;
    }
    accept(socket, here, listener);
  };
  world().schedule(Math.max(delayMs, parted), connect, here);
}

function accept(socket: WorldSocket, from: Machine, { machine, server }: Listener): void {
  const accepted = new WorldSocket({ allowHalfOpen: true, machine });
  socket.join(accepted);
  accepted.join(socket);
  socket.at = `${from.name} to ${machine.name}`;
  accepted.at = `${machine.name} to ${from.name}`;
  // Node counts the connections of a server by these members.
  Object.assign(accepted, { _server: server, server });
  (server as OpenServer)._connections += 1;
  world().schedule(0, () => server.emit('connection', accepted), machine);
  socket.emit('connect');
  socket.emit('ready');
  // As after a real connect: begin to read.
  socket.read(0);
}

/** Replaces the method `listen` of a server. */
export function listenOn(server: net.Server, parameters: readonly unknown[]): net.Server {
  const [first] = parameters;
  const options: net.ListenOptions =
    typeof first === 'object' && first !== null ? first : { port: Number(first ?? 0) };
  const done = callbackIn(parameters);
  const { here } = world();
  const port =
    options.port === undefined || options.port === 0 ? (state.nextPort += 1) : options.port;
  const taken = state.listeners.get(port);
  if (taken !== undefined && taken.machine.isAlive) {
    world().immediate(() => server.emit('error', systemError('EADDRINUSE', 'listen')));
    return server;
  }
  state.listeners.set(port, { machine: here, server });
  if (done !== undefined) server.once('listening', done);
  const open = server as OpenServer;
  // Without a handle Node takes a server for closed as soon as no connection is left.
  open._handle = {};
  server.address = () => ({ address: '127.0.0.1', family: 'IPv4', port });
  server.close = (closed) => {
    if (closed !== undefined) server.once('close', () => closed());
    if (state.listeners.get(port)?.server === server) state.listeners.delete(port);
    open._handle = null;
    open._emitCloseIfDrained();
    return server;
  };
  world().immediate(() => server.emit('listening'));
  return server;
}
