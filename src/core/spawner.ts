/**
 * A small process that starts programs for the server. To start a program is to copy the page tables of
 * whoever starts it: a server of two gigabytes stands still for a fifth of a second. The spawner is
 * forked by its first order, and again by the first one after its end; it ends with the server.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { compileCache } from './compile-cache.ts';

const HEAP_MB = 256;

export interface SpawnerOptions<Answer> {
  readonly entry: URL;
  /** What it says, with the pipe that it hands over. */
  readonly hear: (answer: Answer, pipe: Socket | undefined) => void;
  /** The process has ended, and with it what it has started. */
  readonly ended: () => void;
}

export class Spawner<Order extends object, Answer> {
  readonly #options: SpawnerOptions<Answer>;
  #child: ChildProcess | undefined;

  constructor(options: SpawnerOptions<Answer>) {
    this.#options = options;
  }

  /** Tells the process, and starts it first where there is none. */
  order(order: Order): void {
    this.#child ??= this.#fork();
    this.tell(order);
  }

  /** Tells the process, where there is one. That it cannot be told is seen at its end. */
  tell(order: Order): void {
    this.#child?.send(order, () => undefined);
  }

  async close(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  #fork(): ChildProcess {
    const { entry, hear, ended } = this.#options;
    const child = fork(entry, [], {
      env: compileCache(),
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    child.on('message', (message, handle) => {
      const pipe = handle as Socket | undefined; // no other handle is sent
      // One that has ended may be heard late, of what another is asked by now.
      if (this.#child !== child) return void pipe?.destroy();
      hear(message as Answer, pipe); // it says nothing else
    });
    const end = (): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      ended();
    };
    child.once('exit', end);
    child.on('error', end);
    return child;
  }
}
