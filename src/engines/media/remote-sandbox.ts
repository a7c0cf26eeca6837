/**
 * Runs sandboxed programs from a process of its own (`sandbox-process.ts`), which is started by the
 * first of them and again when it has died. The same bounds hold, and the same ends.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { compileCache } from '../../core/compile-cache.ts';
import { siblingUrl } from '../../core/sibling.ts';
import type { SandboxOutcome, SandboxRun } from './sandbox.ts';

export type SandboxOrder =
  | ({ readonly type: 'start'; readonly id: number } & Pick<
      SandboxRun,
      'command' | 'args' | 'env' | 'limits'
    >)
  | { readonly type: 'stop'; readonly id: number };

export type SandboxAnswer =
  | { readonly type: 'lines'; readonly id: number; readonly lines: readonly string[] }
  | { readonly type: 'ended'; readonly id: number; readonly outcome: SandboxOutcome }
  | { readonly type: 'failed'; readonly id: number; readonly reason: string };

const HEAP_MB = 256;

interface Running {
  readonly run: SandboxRun;
  readonly ended: PromiseWithResolvers<SandboxOutcome>;
}

export class RemoteSandbox {
  readonly #running = new Map<number, Running>();
  #child: ChildProcess | undefined;
  #last = 0;

  /** As `runSandboxed`; rejects as well when the process dies that has started the program. */
  readonly run = async (run: SandboxRun): Promise<SandboxOutcome> => {
    const { command, args, env, limits, signal } = run;
    signal.throwIfAborted();
    this.#last += 1;
    const id = this.#last;
    const ended = Promise.withResolvers<SandboxOutcome>();
    this.#running.set(id, { run, ended });
    const stop = (): void => this.#tell({ type: 'stop', id });
    signal.addEventListener('abort', stop, { once: true });
    try {
      this.#child ??= this.#start();
      this.#tell({ type: 'start', id, command, args, env, limits });
      return await ended.promise;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      signal.removeEventListener('abort', stop);
      this.#running.delete(id);
    }
  };

  /** Ends the process, and what runs. */
  async close(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  #tell(order: SandboxOrder): void {
    // That it cannot be told is seen at its end.
    this.#child?.send(order, () => undefined);
  }

  #start(): ChildProcess {
    const child = fork(siblingUrl(import.meta.url, 'sandbox-process'), [], {
      env: compileCache(),
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    child.on('message', (message: unknown) => this.#hear(message as SandboxAnswer)); // it says nothing else
    const end = (): void => {
      if (this.#child !== child) return;
      this.#child = undefined;
      for (const { ended } of this.#running.values()) {
        ended.reject(new Error('The process that starts media programs has ended'));
      }
    };
    child.once('exit', end);
    child.on('error', end);
    return child;
  }

  #hear(said: SandboxAnswer): void {
    const running = this.#running.get(said.id);
    if (running === undefined) return;
    if (said.type === 'lines') for (const line of said.lines) running.run.onLine?.(line);
    else if (said.type === 'ended') running.ended.resolve(said.outcome);
    else running.ended.reject(new Error(said.reason));
  }
}
