/**
 * One HTTP/1.1 connection to an upstream: writes a request, reads its answer, and takes the next.
 *
 * Invariants: one exchange at a time hears its answer in order (head, data, end), or once how it
 * broke. A connection of which it is in doubt where an answer ends is closed: after an answer to a
 * request that is not yet written, after bytes that belong to no request, after what is not HTTP/1.1
 * as RFC 9112 has it (lines end in CRLF, no folded lines, one framing). Of an answer one read at a
 * time is in memory, and a head that is bounded.
 *
 * Bytes that belong to no request are reported to the holder. On a connection that has served another
 * request before, the response in front of them may be the late one and they the true one: such an
 * exchange breaks as `doubtful`.
 *
 * It knows no pool and no limit of time but that of its handshake. It is our own because every
 * request passes it: docs/decisions/0011-upstream-http.md has the figures.
 */
import type { Socket } from 'node:net';
import { type Connector, READ_BUFFER, readBeforeReset } from './connector.ts';

/** Requests from this size on are written in pieces of it. */
export const LARGE_REQUEST_BYTES = 262_144;
/** Up to this size head and body of a request are written as one. */
const SMALL_REQUEST_BYTES = 16_384;
const MAX_HEAD_BYTES = 64 * 1024;
/** Most heads are shorter. */
const SHORT_HEAD_BYTES = 2_048;
/** Of a chunk's size with its extensions, and of a trailer. */
const MAX_LINE_BYTES = 4_096;

const HEAD_START = 'HTTP/1.';
const HEAD_END = '\r\n\r\n';
const HEAD =
  /^HTTP\/1\.[01] [1-9]\d\d(?: [\t\x20-\x7e\x80-\xff]*)?\r\n(?:[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/;
const STATUS_AT = 9;
const LENGTH = /^\d{1,15}$/;
const CHUNK_SIZE = /^([\da-f]{1,12})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?\r\n$/i;
const TRAILER = /^[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*\r\n$/;
const LF = 10;
const DOUBTFUL = 'The response may belong to an earlier request of the connection';

const NO_BYTES = Buffer.alloc(0);

/** Headers of an answer, names in lower case: one that came more than once is a list. */
export type ReceivedHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** How a connection ended under an exchange. */
export type BrokenKind =
  | 'connect' // no connection: refused, unknown host, TLS, time limit
  | 'stale' // the server closed an idle connection as we reused it; it never saw the request
  | 'reset' // the connection died before the first body byte
  | 'unread' // the same, before a large request was written: the server may not want all of it
  | 'cut' // the connection died inside the body
  | 'garbage' // the answer is not HTTP
  | 'doubtful'; // the response may belong to an earlier request of the connection

/** A body that is read while it is written, so that its size costs no memory. */
export interface StreamedBody {
  readonly sizeBytes: number;
  /** Called once for each try. */
  open(): AsyncIterable<Buffer>;
}

/** Who asks, and hears the answer. */
export interface ConnectionUser {
  /** What it asks: all of a request but the length of the body, the empty line and the body. */
  readonly head: string;
  readonly request: { readonly body: Buffer | StreamedBody | null };
  /** Set once all of it was given to the socket: no server can have acted on less. */
  isWritten: boolean;
  /** Set while a connection serves it. */
  connection: UpstreamConnection | null;
  /** Then no data comes, nor the end. */
  readonly isPaused: boolean;
  /** A connection stands, and the request is written to it. */
  sent(): void;
  /** Interim answers (1xx) are not told. */
  answered(status: number, headers: ReceivedHeaders): void;
  /** The bytes are the user's to keep. */
  received(bytes: Buffer): void;
  completed(): void;
  broke(kind: BrokenKind, message: string): void;
}

/** Who keeps the connections. */
export interface ConnectionHolder {
  /** It can take another request, within so many ms when the server has said how many. */
  freed(connection: UpstreamConnection, keepAliveMs: number | undefined): void;
  closed(connection: UpstreamConnection): void;
  /** The server sent bytes that belong to no request. */
  strayed(): void;
}

export class UpstreamConnection {
  /** Its holder's: when it has been idle for too long. */
  idleUntilMs = 0;
  isOpen = false;
  isClosed = false;
  readonly #holder: ConnectionHolder;
  readonly #socket: Socket;
  #user: ConnectionUser | null;
  /** Whether it has served another before. */
  #isReused = false;
  #readsBeforeReset = false;
  #error: Error | null = null;
  #drained: (() => void) | null = null;
  /** What comes next of the answer; of a body in chunks each part is a line but its data. */
  #expected: 'head' | 'bytes' | 'size' | 'data' | 'data end' | 'trailer' | 'close' | 'nothing' =
    'head';
  /** Of the body, or of a chunk. */
  #leftBytes = 0;
  /** Of a head or a line that is not all here. */
  #partial = NO_BYTES;
  #hasByte = false;
  #hasData = false;
  #canStay = true;
  /** Bytes that belong to no request came with the response. */
  #isDoubtful = false;
  #keepAliveMs: number | undefined;

  /** Opens it for a first request. */
  constructor(connector: Connector, holder: ConnectionHolder, user: ConnectionUser) {
    this.#holder = holder;
    this.#user = user;
    user.connection = this;
    const socket = connector.open(this.#read, () => {
      this.isOpen = true;
      stopTimer();
      if (this.#user !== null) this.send(this.#user);
    });
    const stopTimer = connector.clock.after(connector.connectMs, () =>
      socket.destroy(new Error(`No connection within ${connector.connectMs} ms`)),
    );
    socket.on('error', (error) => (this.#error = error));
    socket.on('drain', () => this.#drained?.());
    socket.on('end', () => this.#ended());
    socket.on('close', () => {
      stopTimer();
      this.#close();
    });
    this.#socket = socket;
  }

  /** Writes a request: the first, or the next when it was freed. */
  send(user: ConnectionUser): void {
    const socket = this.#socket;
    this.#user = user;
    user.connection = this;
    this.#expected = 'head';
    this.#hasByte = false;
    this.#hasData = false;
    this.#isDoubtful = false;
    const { body } = user.request;
    user.sent();
    if (body === null) {
      user.isWritten = true;
      socket.write(`${user.head}\r\n`, 'latin1');
      return;
    }
    const isBuffer = Buffer.isBuffer(body);
    const sizeBytes = isBuffer ? body.length : body.sizeBytes;
    const head = `${user.head}content-length: ${sizeBytes}${HEAD_END}`;
    user.isWritten = isBuffer && sizeBytes < LARGE_REQUEST_BYTES;
    if (isBuffer && sizeBytes <= SMALL_REQUEST_BYTES) {
      const whole = Buffer.allocUnsafe(head.length + sizeBytes);
      whole.write(head, 'latin1');
      whole.set(body, head.length);
      socket.write(whole);
      return;
    }
    if (!this.#readsBeforeReset) readBeforeReset(socket);
    this.#readsBeforeReset = true;
    socket.cork();
    socket.write(head, 'latin1');
    if (isBuffer && user.isWritten) socket.write(body);
    else void this.#writePieces(user, isBuffer ? piecesOf(body) : body.open(), sizeBytes);
    socket.uncork();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
    if (this.#expected === 'nothing') this.#complete();
  }

  /** Closes it at once, and its user hears nothing of it. */
  destroy(): void {
    this.#user = null;
    this.#socket.destroy();
    this.#close();
  }

  /** As the server takes them. What is left when the exchange has ended is not written. */
  async #writePieces(
    user: ConnectionUser,
    pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
    sizeBytes: number,
  ): Promise<void> {
    let leftBytes = sizeBytes;
    try {
      for await (const piece of pieces) {
        if (this.#user !== user) return;
        leftBytes -= piece.length;
        if (leftBytes < 0) throw new RangeError(`The body has more than its ${sizeBytes} bytes`);
        user.isWritten = leftBytes === 0;
        if (!this.#socket.write(piece) && leftBytes > 0) await this.#drain();
      }
      if (leftBytes > 0) throw new RangeError(`${leftBytes} bytes of the body are missing`);
    } catch (error) {
      if (this.#user === user) this.#break(messageOf(error));
    }
  }

  #drain(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (this.isClosed) resolve();
    this.#drained = resolve;
    return promise;
  }

  /** Takes what was read. Always gives true: reading is stopped by `pause`. */
  readonly #read = (size: number): boolean => {
    const user = this.#user;
    if (this.isClosed) return true;
    if (user === null || this.#expected === 'nothing') {
      this.#stray();
      if (user === null) this.destroy();
      return true;
    }
    let bytes = READ_BUFFER;
    let end = size;
    this.#hasByte = true;
    if (this.#partial.length > 0) {
      bytes = Buffer.concat([this.#partial, READ_BUFFER.subarray(0, size)]);
      end = bytes.length;
      this.#partial = NO_BYTES;
    }
    try {
      let at = 0;
      while (this.#expected === 'head') {
        at = this.#takeHead(user, bytes, at, end);
        if (at < 0 || this.#user !== user) return true;
      }
      if (this.#expected === 'bytes' || this.#expected === 'close') {
        const length = Math.min(end - at, this.#leftBytes);
        if (length > 0) {
          const data = Buffer.allocUnsafe(length);
          bytes.copy(data, 0, at, at + length);
          at += length;
          this.#leftBytes -= length;
          this.#hasData = true;
          user.received(data);
        }
        if (this.#leftBytes === 0) this.#expected = 'nothing';
      } else at = this.#takeChunks(user, bytes, at, end);
      if (at < end) this.#stray();
      // A reader that pauses at the last bytes waits for the end too.
      if (this.#user === user && this.#expected === 'nothing' && !user.isPaused) this.#complete();
    } catch (error) {
      const isNotHttp = error instanceof NotHttp;
      // Behind a response that was read in full, these are bytes of that response's server, not a head.
      if (isNotHttp && this.#isReused && this.#expected === 'head') this.#stray();
      this.#break(messageOf(error), isNotHttp);
    }
    return true;
  };

  /** Notes bytes that belong to no request. The connection serves no further one. */
  #stray(): void {
    this.#canStay = false;
    this.#isDoubtful = this.#isReused;
    this.#holder.strayed();
  }

  /** Breaks an exchange that waits for its first byte on a connection that served another before. */
  doubt(): void {
    if (!this.#isReused || this.#hasByte || this.#user === null) return;
    this.#isDoubtful = true;
    this.#break(DOUBTFUL);
  }

  /** Where the head ends, or -1 when it is not all here. */
  #takeHead(user: ConnectionUser, bytes: Buffer, start: number, end: number): number {
    let text = bytes.toString('latin1', start, Math.min(end, start + SHORT_HEAD_BYTES));
    let length = text.indexOf(HEAD_END);
    if (length < 0 && end - start > SHORT_HEAD_BYTES) {
      text = bytes.toString('latin1', start, Math.min(end, start + MAX_HEAD_BYTES));
      length = text.indexOf(HEAD_END);
    }
    if (length < 0) {
      const isOther = !text.startsWith(HEAD_START.slice(0, text.length));
      if (isOther || text.length >= MAX_HEAD_BYTES) throw new NotHttp('No head of an answer');
      this.#partial = Buffer.from(bytes.subarray(start, end));
      return -1;
    }
    const head = text.slice(0, length + 2);
    if (!HEAD.test(head)) throw new NotHttp('The head of the answer is not HTTP/1.1');
    const status = Number(head.slice(STATUS_AT, STATUS_AT + 3));
    // An interim answer; another protocol was not asked for.
    if (status === 101) throw new NotHttp('The answer changes the protocol');
    if (status < 200) return start + length + HEAD_END.length;
    // No server can have handled a request that it has not got.
    if (this.#isReused && !user.isWritten && status < 300) {
      this.#stray();
      throw new NotHttp(DOUBTFUL);
    }
    // Without a prototype: any name may come.
    const headers = Object.create(null) as Record<string, string | string[] | undefined>;
    for (let at = head.indexOf('\r\n') + 2; at < head.length;) {
      const colon = head.indexOf(':', at);
      const lineEnd = head.indexOf('\r\n', colon);
      const name = head.slice(at, colon).toLowerCase();
      const value = head.slice(colon + 1, lineEnd).trim();
      const before = headers[name];
      if (Array.isArray(before)) before.push(value);
      else headers[name] = before === undefined ? value : [before, value];
      at = lineEnd + 2;
    }
    this.#frame(status, headers, head.startsWith('HTTP/1.1'));
    user.answered(status, headers);
    return start + length + HEAD_END.length;
  }

  /** How long the answer is (RFC 9112 §6.3), and whether the connection stays (§9.3). */
  #frame(status: number, headers: ReceivedHeaders, isPersistent: boolean): void {
    const length = headers['content-length'];
    const coding = headers['transfer-encoding'];
    this.#leftBytes = 0;
    this.#canStay = isPersistent;
    if (headers['connection'] !== undefined) {
      const options = String(headers['connection']).toLowerCase();
      if (options.includes('close')) this.#canStay = false;
      else if (options.includes('keep-alive')) this.#canStay = true;
    }
    const hint = headers['keep-alive'];
    const seconds = hint === undefined ? undefined : /timeout=(\d{1,9})/.exec(String(hint))?.[1];
    this.#keepAliveMs = seconds === undefined ? undefined : Number(seconds) * 1_000;
    if (coding !== undefined) {
      if (length !== undefined || !/^chunked$/i.test(String(coding))) {
        throw new NotHttp('The answer has a coding other than chunks, or a length beside it');
      }
      this.#expected = 'size';
    } else if (length !== undefined) {
      if (!LENGTH.test(String(length))) throw new NotHttp('The length of the answer is no number');
      this.#expected = 'bytes';
      this.#leftBytes = Number(length);
    } else {
      this.#expected = 'close';
      this.#leftBytes = Infinity;
    }
    if (status !== 204 && status !== 304) return;
    // Such an answer has no body (RFC 9112 §6.3). A server that names one of a 204 may send it all the same.
    if (status === 204 && this.#expected !== 'close' && length !== '0') this.#canStay = false;
    this.#expected = 'bytes';
    this.#leftBytes = 0;
  }

  /** Passes the data of all chunks of a read on as one. Gives where it ended. */
  #takeChunks(user: ConnectionUser, bytes: Buffer, start: number, end: number): number {
    const data = Buffer.allocUnsafe(end - start);
    let size = 0;
    let at = start;
    try {
      while (at < end && this.#expected !== 'nothing') {
        if (this.#expected === 'data') {
          const length = Math.min(end - at, this.#leftBytes);
          bytes.copy(data, size, at, at + length);
          size += length;
          at += length;
          this.#leftBytes -= length;
          if (this.#leftBytes === 0) this.#expected = 'data end';
          continue;
        }
        const lineEnd = bytes.indexOf(LF, at) + 1;
        const isWhole = lineEnd > 0 && lineEnd <= end;
        if ((isWhole ? lineEnd : end) - at > MAX_LINE_BYTES)
          throw new NotHttp('A line is too long');
        if (!isWhole) {
          this.#partial = Buffer.from(bytes.subarray(at, end));
          at = end;
        } else {
          this.#takeLine(bytes.toString('latin1', at, lineEnd));
          at = lineEnd;
        }
      }
    } finally {
      if (size > 0) {
        this.#hasData = true;
        user.received(2 * size < data.length ? fitted(data, size) : data.subarray(0, size));
      }
    }
    return at;
  }

  /** Of a body in chunks (RFC 9112 §7.1), all that is not data. */
  #takeLine(line: string): void {
    if (this.#expected === 'size') {
      const size = CHUNK_SIZE.exec(line)?.[1];
      if (size === undefined) throw new NotHttp('The size of a chunk is no number');
      this.#leftBytes = Number.parseInt(size, 16);
      this.#expected = this.#leftBytes > 0 ? 'data' : 'trailer';
    } else if (line === '\r\n') {
      this.#expected = this.#expected === 'trailer' ? 'nothing' : 'size';
    } else if (this.#expected !== 'trailer' || !TRAILER.test(line)) {
      throw new NotHttp('A chunk does not end where it should');
    }
  }

  #complete(): void {
    const user = this.#user;
    if (user === null) return;
    if (this.#isDoubtful) {
      this.#expected = 'head';
      return this.#break(DOUBTFUL);
    }
    this.#user = null;
    user.connection = null;
    const isSent = user.isWritten && this.#socket.writableLength === 0;
    if (isSent && this.#canStay && !this.isClosed) {
      this.#isReused = true;
      this.#holder.freed(this, this.#keepAliveMs);
    } else this.destroy();
    user.completed();
  }

  /** The server sends no more. */
  #ended(): void {
    if (this.#expected !== 'close') return this.#break('The server closed');
    this.#expected = 'nothing';
    if (this.#user?.isPaused === false) this.#complete();
  }

  #close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#drained?.();
    this.#break(messageOf(this.#error ?? 'The connection was closed'));
    this.#holder.closed(this);
  }

  /** Ends the exchange, unless its answer waits whole for a reader that pauses. */
  #break(message: string, isGarbage = false): void {
    const user = this.#user;
    if (user !== null && this.#expected === 'nothing') return;
    this.destroy();
    if (user === null) return;
    user.connection = null;
    const isNoAnswer = isGarbage && !this.#hasData && !this.#isDoubtful;
    user.broke(isNoAnswer ? 'garbage' : this.#brokenKind(user), message);
  }

  #brokenKind({ isWritten }: ConnectionUser): BrokenKind {
    if (this.#isDoubtful) return 'doubtful';
    if (!this.isOpen) return 'connect';
    if (this.#hasData) return 'cut';
    if (this.#hasByte) return 'reset';
    // An idle connection may close on a large request as on any other.
    if (this.#isReused) return 'stale';
    return isWritten ? 'reset' : 'unread';
  }
}

/** What cannot be read as an answer. */
class NotHttp extends Error {}

/** The first bytes alone: those of tiny chunks with long extensions must not hold all that was read. */
function fitted(data: Buffer, size: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(size);
  data.copy(bytes, 0, 0, size);
  return bytes;
}

function* piecesOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += LARGE_REQUEST_BYTES) {
    yield body.subarray(at, at + LARGE_REQUEST_BYTES);
  }
}

/** With the code in it, once: the system's own messages begin with it. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  return error.message.includes(code) ? error.message : `${code} ${error.message}`;
}
