/**
 * Exact token counts in a separate process, because the vocabularies take 100 MB and long inputs
 * take time. Used where the result depends on the count (embedding limits, an engine without usage)
 * and for callers that send token ids; admission uses estimates.
 */
import { assert } from '../core/assert.ts';
import type { Encoding, TokenJob, Unreadable } from './jobs.ts';
import type { RunOptions, WorkerPool } from './worker-pool.ts';

type TokenizerOptions = Omit<RunOptions, 'timeoutMs'>;

/** Counting 10 MB of ordinary text takes one second. */
const TIMEOUT_MS = 10_000;

export class Tokenizer {
  readonly #pool: WorkerPool;

  constructor(pool: WorkerPool) {
    this.#pool = pool;
  }

  /** The number of tokens of each text, in order; not `ok` if the worker failed. */
  async count(texts: readonly string[], encoding: Encoding, options: TokenizerOptions = {}) {
    const parts = texts.map((text) => Buffer.from(text));
    const sizes = parts.map((part) => part.length);
    const reply = await this.#run(
      { kind: 'count', encoding, sizes },
      Buffer.concat(parts),
      options,
    );
    if (!reply.ok) return reply;
    assert(reply.counts?.length === texts.length, 'one count for each text');
    return { ok: true as const, counts: reply.counts };
  }

  /** The text of token ids; not `ok` if an id is not in the vocabulary. */
  async decode(ids: readonly number[], encoding: Encoding, options: TokenizerOptions = {}) {
    if (!ids.every((id) => Number.isInteger(id) && id >= 0 && id <= 0xffffffff)) {
      return { ok: false as const, reason: 'contains a value that is not a token id' };
    }
    const bytes = Buffer.alloc(ids.length * 4);
    for (const [index, id] of ids.entries()) bytes.writeUInt32LE(id, index * 4);
    const reply = await this.#run({ kind: 'decode', encoding }, bytes, options);
    return reply.ok ? { ok: true as const, text: reply.payload.toString() } : reply;
  }

  async #run(job: TokenJob, payload: Buffer, options: TokenizerOptions) {
    const outcome = await this.#pool.run(job, payload, { ...options, timeoutMs: TIMEOUT_MS });
    if (!outcome.ok) {
      const reason = 'could not be counted within the limits of time and memory';
      return { ok: false, reason } satisfies Unreadable;
    }
    const { header, payload: bytes } = outcome.reply;
    return header.ok ? { ...header, payload: bytes } : header;
  }
}
