/**
 * The parent's side of an embedded engine: a child process that speaks the field's HTTP protocol on
 * a loopback port. It owns starting, restarting and stopping of one child.
 *
 * - The child gets its settings and a fresh secret by message, never by argv or environment, and
 *   inherits no environment: nothing that the parent knows leaks into code that reads foreign data.
 * - A crash costs one child. It is started again with the same secret and, when it is free, on the
 *   same port, so that an address stays good; after repeated crashes only after a pause. A child
 *   that says itself why it cannot start is left alone until somebody asks for it.
 */
import { type ChildProcess, fork } from 'node:child_process';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';

/** Where a running child answers, and the Bearer token that it asks for. */
export interface LocalAddress {
  /** Without a trailing slash, for example `http://127.0.0.1:40123`. */
  readonly url: string;
  readonly apiKey: string;
}

export interface LocalChildOptions {
  /** For the log and for error messages, for example `cutout`. */
  readonly name: string;
  /** The child's entry file; it calls `serveLocal`. */
  readonly entry: URL;
  /** What the child is sent at each start; JSON. */
  readonly settings: () => unknown;
  /** Upper bound of the child's JavaScript heap. */
  readonly heapMb?: number;
  readonly startTimeoutMs?: number;
  /** Gets every message of the child that is not part of the start. */
  readonly onMessage?: (message: unknown) => void;
  readonly onExit?: () => void;
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
}

const DEFAULT_START_TIMEOUT_MS = 30_000;
const DEFAULT_HEAP_MB = 512;
/** A child that lived less than this crashed at once. */
const SHORT_LIFE_MS = 10_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 60_000;
/** Between a crash and the start of the next child. */
const RESTART_MS = 100;
const CLOSE_GRACE_MS = 2_000;
/** Of the child's own output, per chunk. */
const LOGGED_CHARACTERS = 500;

/** The entry file beside a module: `.ts` in the source tree, `.js` in a build. */
export function entryBeside(moduleUrl: string, name: string): URL {
  return new URL(`./${name}${moduleUrl.endsWith('.ts') ? '.ts' : '.js'}`, moduleUrl);
}

interface Running {
  readonly child: ChildProcess;
  readonly address: Promise<LocalAddress>;
  readonly exited: Promise<void>;
  readonly startedMs: number;
}

export class LocalChild {
  readonly #options: LocalChildOptions;
  #running: Running | undefined;
  #port = 0;
  #crashes = 0;
  #notBeforeMs = 0;
  #closed = false;
  readonly #apiKey: string;
  #isHopeless = false;
  #cancelRestart: (() => void) | undefined;

  constructor(options: LocalChildOptions) {
    this.#options = options;
    this.#apiKey = options.ids.hex(32);
  }

  /** The child's process id, `undefined` while it does not run. */
  get pid(): number | undefined {
    return this.#running?.child.pid;
  }

  /** Starts the child when it does not run. Faults: SERVICE_UNAVAILABLE when it cannot start. */
  async address(): Promise<LocalAddress> {
    if (this.#closed) throw new Fault('SHUTTING_DOWN');
    if (this.#running === undefined) {
      const waitMs = this.#notBeforeMs - this.#options.clock.monotonicMs();
      if (waitMs > 0) throw this.#unavailable(waitMs, 'it crashed repeatedly');
      this.#cancelRestart?.();
      this.#isHopeless = false;
      this.#running = this.#start();
    }
    return await this.#running.address;
  }

  /** Sends a message when the child runs; a child that does not run gets none. */
  send(message: object): void {
    const child = this.#running?.child;
    if (child?.connected === true) child.send(message);
  }

  /** Ends the child and resolves when it is gone. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelRestart?.();
    const running = this.#running;
    if (running === undefined) return;
    // The child exits by itself when the channel closes; the timer is for one that hangs.
    if (running.child.connected) running.child.disconnect();
    const cancel = this.#options.clock.after(CLOSE_GRACE_MS, () => running.child.kill('SIGKILL'));
    await running.exited;
    cancel();
  }

  #start(): Running {
    const { name, entry, log, clock } = this.#options;
    const child = fork(entry, [], {
      env: {},
      execArgv: [`--max-old-space-size=${this.#options.heapMb ?? DEFAULT_HEAP_MB}`],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      serialization: 'json',
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        log.debug({ engine: name, output: text.slice(0, LOGGED_CHARACTERS) }, 'Engine output');
      });
    }
    const exited = new Promise<void>((resolve) => {
      child.once('exit', (code, signal) => {
        this.#exited(child, code, signal);
        resolve();
      });
    });
    const address = this.#ready(child);
    // Whoever waits for the address sees the failure; without a waiter it is in the log.
    address.catch(() => undefined);
    return { child, address, exited, startedMs: clock.monotonicMs() };
  }

  async #ready(child: ChildProcess): Promise<LocalAddress> {
    const { clock, settings } = this.#options;
    const apiKey = this.#apiKey;
    return await new Promise<LocalAddress>((resolve, reject) => {
      const cancel = clock.after(this.#options.startTimeoutMs ?? DEFAULT_START_TIMEOUT_MS, () => {
        child.kill('SIGKILL');
        reject(this.#unavailable(FIRST_PAUSE_MS, 'it did not start in time'));
      });
      const fail = (reason: string): void => {
        cancel();
        reject(this.#unavailable(FIRST_PAUSE_MS, reason));
      };
      child.once('error', (error) => fail(error.message));
      child.once('exit', () => fail('it ended while it started'));
      child.on('message', (message: unknown) => {
        const start = message as { type?: unknown; port?: unknown; error?: unknown }; // checked below
        if (start.type === 'ready' && typeof start.port === 'number') {
          cancel();
          this.#port = start.port;
          resolve({ url: `http://127.0.0.1:${start.port}`, apiKey });
        } else if (start.type === 'failed') {
          this.#isHopeless = true;
          fail(String(start.error));
        } else this.#options.onMessage?.(message);
      });
      child.send({ type: 'start', settings: settings(), apiKey, port: this.#port });
    });
  }

  #exited(child: ChildProcess, code: number | null, signal: string | null): void {
    const running = this.#running;
    if (running?.child !== child) return;
    this.#running = undefined;
    this.#options.onExit?.();
    if (this.#closed) return;
    const nowMs = this.#options.clock.monotonicMs();
    this.#crashes = nowMs - running.startedMs < SHORT_LIFE_MS ? this.#crashes + 1 : 1;
    const growth = 2 ** (this.#crashes - 2);
    const pauseMs = this.#crashes > 1 ? Math.min(FIRST_PAUSE_MS * growth, LONGEST_PAUSE_MS) : 0;
    this.#notBeforeMs = nowMs + pauseMs;
    if (!this.#isHopeless) {
      this.#cancelRestart = this.#options.clock.after(pauseMs + RESTART_MS, () => {
        // A start that fails again plans the next one, or says in the log that it is hopeless.
        this.address().catch(() => undefined);
      });
    }
    this.#options.log.warn({ engine: this.#options.name, code, signal }, 'An engine process ended');
  }

  #unavailable(waitMs: number, reason: string): Fault {
    return new Fault('SERVICE_UNAVAILABLE', {
      message: `The ${this.#options.name} engine is not available: ${reason}`,
      retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)),
    });
  }
}
