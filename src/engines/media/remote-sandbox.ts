/** Runs sandboxed programs from a process of its own, with the same limits and outcomes. */
import { siblingUrl } from '../../core/sibling.ts';
import { Spawner } from '../../core/spawner.ts';
import type { SandboxOutcome, SandboxRun } from './sandbox.ts';

export type SandboxOrder =
  | ({ readonly type: 'start'; readonly id: number } & Pick<
      SandboxRun,
      'command' | 'args' | 'env' | 'limits'
    >)
  | { readonly type: 'stop'; readonly id: number };

export type SandboxResult =
  | { readonly type: 'lines'; readonly id: number; readonly lines: readonly string[] }
  | { readonly type: 'ended'; readonly id: number; readonly outcome: SandboxOutcome }
  | { readonly type: 'failed'; readonly id: number; readonly reason: string };

interface Running {
  readonly run: SandboxRun;
  readonly ended: PromiseWithResolvers<SandboxOutcome>;
}

export class RemoteSandbox {
  readonly #running = new Map<number, Running>();
  readonly #spawner = new Spawner<SandboxOrder, SandboxResult>({
    entry: siblingUrl(import.meta.url, 'sandbox-process'),
    onMessage: (message) => this.#receive(message),
    onEnd: () => {
      for (const { ended } of this.#running.values()) {
        ended.reject(new Error('The process that starts media programs has ended'));
      }
    },
  });
  #last = 0;

  /** As `runSandboxed`; also rejects if the process that started the program dies. */
  readonly run = async (run: SandboxRun): Promise<SandboxOutcome> => {
    const { command, args, env, limits, signal } = run;
    signal.throwIfAborted();
    this.#last += 1;
    const id = this.#last;
    const ended = Promise.withResolvers<SandboxOutcome>();
    this.#running.set(id, { run, ended });
    const stop = (): void => this.#spawner.send({ type: 'stop', id });
    signal.addEventListener('abort', stop, { once: true });
    try {
      this.#spawner.order({ type: 'start', id, command, args, env, limits });
      return await ended.promise;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      signal.removeEventListener('abort', stop);
      this.#running.delete(id);
    }
  };

  async close(): Promise<void> {
    await this.#spawner.close();
  }

  #receive(message: SandboxResult): void {
    const running = this.#running.get(message.id);
    if (running === undefined) return;
    if (message.type === 'lines') for (const line of message.lines) running.run.onLine?.(line);
    else if (message.type === 'ended') running.ended.resolve(message.outcome);
    else running.ended.reject(new Error(message.reason));
  }
}
