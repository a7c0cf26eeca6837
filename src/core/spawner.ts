/**
 * A small child process that starts programs for the server. Starting a program copies the page
 * tables of its parent, which blocks a server of two gigabytes for 0.2 s. The spawner is forked by
 * the first order, again after it has died, and ends with the server.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { compileCache } from './compile-cache.ts';

const HEAP_MB = 256;

export interface SpawnerOptions<Answer> {
  readonly entry: URL;
  readonly onMessage: (answer: Answer, pipe: Socket | undefined) => void;
  readonly onEnd: () => void;
}

export class Spawner<Order extends object, Answer> {
  readonly #options: SpawnerOptions<Answer>;
  #child: ChildProcess | undefined;

  constructor(options: SpawnerOptions<Answer>) {
    this.#options = options;
  }

  /** Sends an order; starts the process if it is not running. */
  order(order: Order): void {
    this.#child ??= this.#fork();
    this.send(order);
  }

  /** Sends an order if the process is running. A failed send is followed by its end event. */
  send(order: Order): void {
    // A process that could not be started may have no channel.
    if (this.#child?.connected === true) this.#child.send(order, () => undefined);
  }

  async close(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  #fork(): ChildProcess {
    const { entry, onMessage, onEnd } = this.#options;
    const child = fork(entry, [], {
      env: compileCache(),
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    child.on('message', (message, handle) => {
      const pipe = handle as Socket | undefined; // no other handle is sent
      // A late message of an ended process, while a newer one is in use.
      if (this.#child !== child) return void pipe?.destroy();
      onMessage(message as Answer, pipe); // it sends no other message
    });
    const end = (): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      onEnd();
    };
    child.once('exit', end);
    child.on('error', end);
    return child;
  }
}
