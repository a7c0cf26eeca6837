/**
 * The sequences of one context: each holds the state of one conversation and runs in the same
 * decode batches as the others. A free sequence that already holds the beginning of the prompt is
 * preferred, so that a conversation goes on without reading it all again.
 */
import type { LlamaContextSequence, Token } from 'node-llama-cpp';
import { assert } from '../../core/assert.ts';
import { JobQueue } from '../../core/job-queue.ts';
import { overloaded } from './refusal.ts';

/** Choices that may wait for a free sequence; more are refused with 429. */
const MAX_WAITING = 64;

export class SequencePool {
  readonly #free: LlamaContextSequence[];
  readonly #queue: JobQueue;

  constructor(sequences: readonly LlamaContextSequence[]) {
    this.#free = [...sequences];
    this.#queue = new JobQueue({
      running: sequences.length,
      waiting: MAX_WAITING,
      retryAfterSeconds: 0,
    });
  }

  /** Refuses when `count` further choices would not fit into the queue. */
  admit(count: number): void {
    if (!this.#queue.hasRoom('', count)) throw overloaded();
  }

  /** Runs `work` with a sequence; gives it back afterwards. Rejects when `signal` aborts before. */
  async use<Result>(
    tokens: Token[],
    signal: AbortSignal,
    work: (sequence: LlamaContextSequence) => Promise<Result>,
  ): Promise<Result> {
    return await this.#queue.run(async () => {
      const sequence = this.#takeBest(tokens);
      try {
        return await work(sequence);
      } finally {
        this.#free.push(sequence);
      }
    }, signal);
  }

  #takeBest(tokens: Token[]): LlamaContextSequence {
    let best = 0;
    let bestWorth = -1;
    for (const [index, sequence] of this.#free.entries()) {
      const held = sequence.nextTokenIndex;
      const shared = held === 0 ? 0 : sequence.compareContextTokens(tokens).firstDifferentIndex;
      // Among sequences that share nothing, an empty one: a full one may still serve its caller.
      const worth = shared > 0 ? shared + 1 : Number(held === 0);
      if (worth > bestWorth) [best, bestWorth] = [index, worth];
    }
    const [sequence] = this.#free.splice(best, 1);
    assert(sequence !== undefined, 'as many jobs run as there are sequences');
    return sequence;
  }
}
