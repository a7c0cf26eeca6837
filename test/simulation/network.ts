/**
 * Connections between machines of a world. A server that listens is found by its port; the host does
 * not matter. Bytes arrive in order, late, and never after a cut. The weather of the world decides how late.
 */
import net from 'node:net';
import { type Machine, type Timer, world } from './world.ts';

/** Bytes that a receiver has not read before its sender waits. */
const WINDOW_BYTES = 256 * 1024;
const FIRST_PORT = 20_000;
/** The longest time of a timer. */
const NEVER_MS = 2 ** 31 - 1;

interface Chunk {
  readonly chunk: Buffer | string;
  readonly encoding: BufferEncoding;
}

type Done = (error?: Error | null) => void;

interface ConnectOptions {
  readonly port?: number | string;
  readonly allowHalfOpen?: boolean;
  /** Default: the machine whose code runs. */
  readonly machine?: Machine;
}

/** Members of a server that Node itself keeps. */
interface OpenServer extends net.Server {
  _handle: object | null;
  _connections: number;
  _emitCloseIfDrained(): void;
}

/** An error without a stack: making one takes long, and no reader needs it. */
function systemError(code: string, syscall: string): Error {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  const error = Object.assign(new Error(`${syscall} ${code}`), { code, syscall });
  Error.stackTraceLimit = stackTraceLimit;
  return error;
}

/** One way, in milliseconds. */
function delayMs(): number {
  return world().random.between(1, world().weather.delayMs);
}

/** Bytes between these machines wait until this time. */
function partedUntilMs(from: Machine, to: Machine): number {
  const { parted } = world().weather;
  const names = [from.name, to.name];
  if (parted === undefined || !names.includes(parted.from)) return 0;
  return (parted.to?.some((name) => names.includes(name)) ?? true) ? parted.untilMs : 0;
}

/** One end of a connection. It replaces `net.Socket`. */
export class WorldSocket extends net.Socket {
  readonly #machine: Machine;
  #peer: WorldSocket | undefined;
  /** Bytes on their way to this end, or not read yet. */
  #inboundBytes = 0;
  #waiting: (() => void) | undefined;
  #lastArrivalMs = 0;
  /** Bytes of one instant, which arrive together. */
  #sending: { readonly atMs: number; readonly chunks: Buffer[] } | undefined;
  #read = 0;
  #written = 0;
  #idleTimer: Timer | undefined;
  #activeMs = 0;
  readonly #onDeath = (): void => this.#leave();
  readonly #queue: (Buffer | null)[] = [];
  #wantsData = false;

  constructor({ allowHalfOpen = false, machine = world().here }: ConnectOptions = {}) {
    super({ allowHalfOpen });
    this.#machine = machine;
    machine.onDeath.add(this.#onDeath);
    // Accessors of a real socket, which reads them from its handle.
    Object.defineProperties(this, {
      remoteAddress: { value: '127.0.0.1' },
      bytesRead: { get: () => this.#read },
      bytesWritten: { get: () => this.#written },
    });
  }

  /** Like that of a real socket, with a port and a host, or with options. */
  override connect(...parameters: unknown[]): this {
    const port = Number(optionsIn(parameters).port);
    Reflect.set(this, 'connecting', true);
    const done = callbackIn(parameters);
    if (done !== undefined) this.once('connect', done);
    const to = world().listeners.get(port)?.machine;
    const parted = to === undefined ? 0 : partedUntilMs(this.#machine, to) - world().nowMs;
    world().schedule(Math.max(delayMs(), parted), () => this.#connected(port), this.#machine);
    return this;
  }

  #connected(port: number): void {
    if (this.destroyed) return;
    Reflect.set(this, 'connecting', false);
    const { machine, server } = world().listeners.get(port) ?? {};
    if (server === undefined || machine?.isAlive !== true) {
      return void this.destroy(systemError('ECONNREFUSED', 'connect'));
    }
    const accepted = new WorldSocket({ allowHalfOpen: true, machine });
    this.#peer = accepted;
    accepted.#peer = this;
    // Node counts the connections of a server by these members.
    Object.assign(accepted, { _server: server, server });
    (server as OpenServer)._connections += 1;
    // The server does not know a connection that was reset before it is accepted.
    const ignored = (): void => undefined;
    accepted.on('error', ignored);
    const accept = (): void => {
      accepted.off('error', ignored);
      if (!accepted.destroyed) server.emit('connection', accepted);
    };
    world().schedule(0, accept, machine);
    this.emit('connect');
    this.emit('ready');
    // As after a real connect: begin to read.
    this.read(0);
  }

  override setTimeout(ms: number, done?: () => void): this {
    Reflect.set(this, 'timeout', ms);
    this.#idleTimer?.cancel();
    this.#activeMs = world().nowMs;
    if (ms > 0) this.#watch(ms, ms);
    if (done === undefined) return this;
    return ms > 0 ? this.once('timeout', done) : this.removeListener('timeout', done);
  }

  #watch(idleMs: number, afterMs: number): void {
    const look = (): void => {
      const leftMs = this.#activeMs + idleMs - world().nowMs;
      if (leftMs > 0) this.#watch(idleMs, leftMs);
      else this.emit('timeout');
    };
    this.#idleTimer = world().schedule(afterMs, look, this.#machine);
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
    this.#writeAll([{ chunk, encoding }], done);
  }

  override _writev(chunks: Chunk[], done: Done): void {
    this.#writeAll(chunks, done);
  }

  #writeAll(chunks: readonly Chunk[], done: Done): void {
    // A copy, because the sender may use its buffer again.
    const bytes = Buffer.concat(
      chunks.map(({ chunk, encoding }) =>
        typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk,
      ),
    );
    this.#whenOpen(() => this.#send(bytes, done));
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
    // Unread data of the other end is lost, as after a reset.
    if (this.readableEnded) this.#transmit(null);
    else this.#leave();
    this.#peer = undefined;
    super._destroy(error, done);
  }

  /** The other end notices after a moment that this one is cut off. */
  #leave(): void {
    const peer = this.#peer;
    this.#later(() => peer?.reset());
    this.#peer = undefined;
  }

  /** The other end, or the network, has cut the connection. */
  reset(): void {
    if (this.destroyed) return;
    this.#queue.length = 0;
    this.destroy(systemError('ECONNRESET', 'read'));
  }

  #whenOpen(work: () => void): void {
    if (this.connecting) this.once('connect', work);
    else work();
  }

  #send(bytes: Buffer, done: Done): void {
    const peer = this.#peer;
    if (peer === undefined) return done(systemError('EPIPE', 'write'));
    const { cutOnce } = world().weather;
    if (cutOnce > 0 && world().random.once(cutOnce)) {
      world().note(`cut ${this.#machine.name} to ${peer.#machine.name}`);
      this.#leave();
      peer.#peer = undefined;
      return this.reset();
    }
    this.#activeMs = world().nowMs;
    this.#written += bytes.length;
    peer.#inboundBytes += bytes.length;
    this.#transmit(bytes);
    if (peer.#inboundBytes <= WINDOW_BYTES) done();
    else peer.#waiting = done;
  }

  /** Lets bytes, or the end, arrive at the other side. */
  #transmit(bytes: Buffer | null): void {
    const atMs = world().nowMs;
    if (bytes !== null && this.#sending?.atMs === atMs)
      return void this.#sending.chunks.push(bytes);
    const peer = this.#peer;
    const chunks = bytes === null ? [] : [bytes];
    this.#sending = bytes === null ? undefined : { atMs, chunks };
    this.#later(() => {
      if (peer === undefined) return;
      const arrived = chunks.length > 1 ? Buffer.concat(chunks) : (chunks[0] ?? null);
      const what = arrived === null ? 'end' : describe(arrived);
      world().note(`${this.#machine.name} to ${peer.#machine.name} ${what}`);
      peer.#queue.push(arrived);
      peer.#activeMs = world().nowMs;
      peer.#deliver();
    });
  }

  /** In order: nothing overtakes what was sent before. */
  #later(arrive: () => void): void {
    if (this.#peer === undefined) return;
    const to = this.#peer.#machine;
    const { nowMs } = world();
    const earliestMs = Math.max(partedUntilMs(this.#machine, to), this.#lastArrivalMs);
    this.#lastArrivalMs = Math.max(nowMs + delayMs(), earliestMs);
    world().schedule(this.#lastArrivalMs - nowMs, arrive, to);
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
      const done = this.#waiting;
      if (done === undefined || this.#inboundBytes > WINDOW_BYTES) continue;
      // The sender may write on, a moment later.
      this.#waiting = undefined;
      if (this.#peer !== undefined) world().schedule(1, done, this.#peer.#machine);
    }
  }
}

/** `Date` is from the real clock, and clients of Solana number the requests of all runs. */
const UNSTABLE = /\r\nDate: [^\r]*|"id":"\d{7}"/gi;

function describe(bytes: Buffer): string {
  const text = bytes.toString('latin1').replaceAll(UNSTABLE, '');
  return `${text.length} bytes ${text}`;
}

/** Replaces `net.connect`. */
export function connectTo(...parameters: unknown[]): net.Socket {
  const { allowHalfOpen = false } = optionsIn(parameters);
  return new WorldSocket({ allowHalfOpen }).connect(...parameters);
}

function optionsIn([first]: readonly unknown[]): ConnectOptions {
  if (typeof first === 'object' && first !== null) return first; // as clients and servers pass them
  return { port: Number(first ?? 0) };
}

function callbackIn(parameters: readonly unknown[]): (() => void) | undefined {
  return parameters.findLast((one) => typeof one === 'function') as (() => void) | undefined; // as Node's
}

/** Replaces the method `listen` of a server. */
export function listenOn(server: net.Server, parameters: readonly unknown[]): net.Server {
  const { here, listeners } = world();
  let port = Number(optionsIn(parameters).port ?? 0);
  if (port === 0) for (port = FIRST_PORT; listeners.has(port);) port += 1;
  listeners.set(port, { machine: here, server });
  const done = callbackIn(parameters);
  if (done !== undefined) server.once('listening', done);
  const open = server as OpenServer;
  // Without a handle Node takes a server for closed as soon as no connection is left. It looks for requests
  // that do not arrive by a real clock, and must not close connections of the world.
  Object.assign(open, { _handle: {}, connectionsCheckingInterval: NEVER_MS });
  server.address = () => ({ address: '127.0.0.1', family: 'IPv4', port });
  server.close = (closed) => {
    if (closed !== undefined) server.once('close', () => closed());
    if (listeners.get(port)?.server === server) listeners.delete(port);
    open._handle = null;
    open._emitCloseIfDrained();
    return server;
  };
  world().immediate(() => server.emit('listening'));
  return server;
}
