/**
 * The sequences of one context: each holds the state of one conversation and runs in the same
 * decode batches as the others. A free sequence that already holds the beginning of the prompt is
 * preferred, so that a conversation goes on without reading it all again. The queue is bounded.
 */
import type { LlamaContextSequence, Token } from 'node-llama-cpp';

import { EngineRefusal } from './engine-refusal.ts';

interface Waiter {
  readonly tokens: Token[];
  readonly grant: (sequence: LlamaContextSequence) => void;
}

export class SequencePool {
  readonly #free: LlamaContextSequence[];
  readonly #waiting: Waiter[] = [];
  readonly #maxWaiting: number;

  constructor(sequences: readonly LlamaContextSequence[], maxWaiting: number) {
    this.#free = [...sequences];
    this.#maxWaiting = maxWaiting;
  }

  /** Refuses when `count` further choices would not fit into the queue. */
  admit(count: number): void {
    const mustWait = this.#waiting.length + count - this.#free.length;
    if (mustWait > this.#maxWaiting) {
      throw new EngineRefusal(
        'overloaded',
        'Too many requests wait for this model, try again soon',
      );
    }
  }

  /** Runs `work` with a sequence; gives it back afterwards. Rejects when `signal` aborts before. */
  async use<Result>(
    tokens: Token[],
    signal: AbortSignal,
    work: (sequence: LlamaContextSequence) => Promise<Result>,
  ): Promise<Result> {
    const sequence = this.#takeBest(tokens) ?? (await this.#wait(tokens, signal));
    try {
      return await work(sequence);
    } finally {
      this.#release(sequence);
    }
  }

  #takeBest(tokens: Token[]): LlamaContextSequence | undefined {
    let best = -1;
    let bestShared = -1;
    for (const [index, sequence] of this.#free.entries()) {
      const held = sequence.nextTokenIndex;
      const shared = held === 0 ? 0 : sequence.compareContextTokens(tokens).firstDifferentIndex;
      // Among sequences that share nothing, an empty one: a full one may still serve its caller.
      const worth = shared > 0 ? shared + 1 : Number(held === 0);
      if (worth > bestShared) [best, bestShared] = [index, worth];
    }
    return best < 0 ? undefined : this.#free.splice(best, 1)[0];
  }

  async #wait(tokens: Token[], signal: AbortSignal): Promise<LlamaContextSequence> {
    signal.throwIfAborted();
    return await new Promise((resolve, reject) => {
      const waiter: Waiter = {
        tokens,
        grant: (sequence) => {
          signal.removeEventListener('abort', leave);
          resolve(sequence);
        },
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(new DOMException('The caller has left the queue', 'AbortError'));
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#waiting.push(waiter);
    });
  }

  #release(sequence: LlamaContextSequence): void {
    this.#free.push(sequence);
    const next = this.#waiting.shift();
    if (next === undefined) return;
    const best = this.#takeBest(next.tokens);
    if (best !== undefined) next.grant(best);
  }
}
