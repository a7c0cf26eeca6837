/**
 * Starts document workers from a separate process (`starter-process.ts`), which transfers the pipes
 * of each worker to this process.
 */
import type { Socket } from 'node:net';
import { siblingUrl } from '../core/sibling.ts';
import { Spawner } from '../core/spawner.ts';
import type { WorkerRole } from './jobs.ts';

export type StarterOrder =
  | {
      readonly type: 'start';
      readonly id: number;
      readonly role: WorkerRole;
      readonly memoryMb: number;
    }
  | { readonly type: 'stop'; readonly id: number };

export type StarterResult =
  | { readonly type: 'input' | 'output'; readonly id: number }
  /** The starter has transferred and closed the pipes, so this process can use them. */
  | { readonly type: 'started'; readonly id: number }
  | { readonly type: 'failed'; readonly id: number; readonly reason: string };

export interface WorkerPipes {
  readonly input: Socket;
  readonly output: Socket;
}

export interface StartedWorker {
  readonly pipes: Promise<WorkerPipes>;
  readonly kill: () => void;
}

/** The first failure may be an unnoticed death of the starter; a second one is final. */
const MAX_TRIES = 2;

interface Starting {
  readonly order: StarterOrder;
  readonly pipes: PromiseWithResolvers<WorkerPipes>;
  tries: number;
  isKilled: boolean;
  input?: Socket | undefined;
  output?: Socket | undefined;
}

export class WorkerStarter {
  readonly #starting = new Map<number, Starting>();
  readonly #spawner = new Spawner<StarterOrder, StarterResult>({
    entry: siblingUrl(import.meta.url, 'starter-process'),
    onMessage: (message, pipe) => this.#received(message, pipe),
    onEnd: () => {
      for (const [id, starting] of this.#starting) this.#startAgain(id, starting);
    },
  });
  #isClosed = false;
  #last = 0;

  start(role: WorkerRole, memoryMb: number): StartedWorker {
    this.#last += 1;
    const id = this.#last;
    const order = { type: 'start', id, role, memoryMb } as const;
    const pipes = Promise.withResolvers<WorkerPipes>();
    const starting: Starting = { order, pipes, tries: 0, isKilled: false };
    this.#starting.set(id, starting);
    this.#order(starting);
    return {
      pipes: pipes.promise,
      kill: () => {
        starting.isKilled = true;
        this.#spawner.send({ type: 'stop', id });
      },
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#spawner.close();
  }

  #order(starting: Starting): void {
    starting.tries += 1;
    this.#spawner.order(starting.order);
  }

  #startAgain(id: number, starting: Starting): void {
    starting.input?.destroy();
    starting.output?.destroy();
    starting.input = undefined;
    starting.output = undefined;
    const isWanted = !this.#isClosed && !starting.isKilled;
    if (isWanted && starting.tries < MAX_TRIES) return this.#order(starting);
    this.#starting.delete(id);
    starting.pipes.reject(new Error('The process that starts document workers has ended'));
  }

  #received(message: StarterResult, pipe: Socket | undefined): void {
    const starting = this.#starting.get(message.id);
    if (starting === undefined) return void pipe?.destroy();
    if (message.type === 'input' || message.type === 'output') {
      if (pipe !== undefined) starting[message.type] = pipe;
      return;
    }
    this.#starting.delete(message.id);
    const { pipes, input, output } = starting;
    if (message.type === 'started' && input !== undefined && output !== undefined) {
      pipes.resolve({ input, output });
    } else {
      pipes.reject(new Error(message.type === 'failed' ? message.reason : 'A pipe was lost'));
    }
  }
}
