/** A real backend: a process of PostgreSQL with a connection, which its driver can suspend. */
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { endProcessWithUs } from '../support/end-with-us.ts';
import { type Message, messagesOf } from './postgres-messages.ts';

/** Captured before the edges replace it. */
const realConnect = net.createConnection;

/** SIGURG, by which PostgreSQL wakes a process, as a bit of a set of signals. */
const LATCH_SIGNAL = 1n << 22n;

/** A real connection. `received` gets each message, and nothing at its end. */
export class Backend {
  readonly #socket: net.Socket;
  pid = 0;
  isClosed = false;
  isSuspended = false;
  #endWithUs: (() => void) | undefined;

  constructor(path: string, startup: Buffer, received: (message?: Message) => void) {
    this.#socket = realConnect({ path });
    this.#socket.on('error', () => undefined); // it closes
    const read = messagesOf(true, (message) => {
      if (message.type === 'K') this.pid = message.body.readUInt32BE(0);
      received(message);
    });
    this.#socket.on('data', read);
    this.#socket.on('close', () => {
      this.isClosed = true;
      this.#endWithUs?.();
      received();
    });
    this.#socket.write(startup);
  }

  get receivedBytes(): number {
    return this.#socket.bytesRead;
  }

  /** Whether the process waits for a message or a lock. */
  get isAsleep(): boolean {
    if (this.pid === 0 || this.#socket.writableLength > 0) return false;
    return readOf(this.pid, 'wchan').includes('epoll');
  }

  /** Whether the suspended process has received the lock that it waited for. */
  get isWoken(): boolean {
    const [, pending = '0'] = /ShdPnd:\s*(\S+)/.exec(readOf(this.pid, 'status')) ?? [];
    return (BigInt(`0x${pending}`) & LATCH_SIGNAL) !== 0n;
  }

  /** Call it while the process waits for a lock. A signal of PostgreSQL to it then stays pending. */
  suspend(): void {
    // A suspended process does not notice that the server has ended.
    this.#endWithUs ??= endProcessWithUs(this.pid);
    this.kill('SIGSTOP');
    this.isSuspended = true;
  }

  resume(): void {
    if (this.isSuspended) this.kill('SIGCONT');
    this.isSuspended = false;
  }

  kill(signal: NodeJS.Signals): void {
    if (this.pid !== 0 && !this.isClosed) process.kill(this.pid, signal);
  }

  send(bytes: Buffer): void {
    this.#socket.write(bytes);
  }
}

/** State of a process, as reported by Linux; empty if it has ended. */
function readOf(pid: number, file: 'wchan' | 'status'): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    // The connection closes next.
    return '';
  }
}
