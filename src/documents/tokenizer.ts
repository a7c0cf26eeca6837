/**
 * Exact token counts, in a process of their own: the vocabularies take 100 MB and long inputs take
 * time. Used where the answer depends on the count (embedding limits, an engine without usage) and
 * for callers that send token ids; admission uses the bounds of `kernel/token-count.ts`.
 */
import { assert } from '../core/assert.ts';
import type { Encoding, ReplyHeader } from './jobs.ts';
import type { RunOptions, WorkerPool } from './worker-pool.ts';

export type { Encoding } from './jobs.ts';

export interface TokenizerOptions {
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

export type TokenIds =
  | { readonly ok: true; readonly ids: readonly number[] }
  | { readonly ok: false; readonly reason: string };

export type TokenText =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly reason: string };

export type TokenCounts =
  | { readonly ok: true; readonly counts: readonly number[] }
  | { readonly ok: false; readonly reason: string };

export interface Tokenizer {
  /** The number of tokens of each text, in order; not `ok` when the worker gave up. */
  count(
    texts: readonly string[],
    encoding: Encoding,
    options?: TokenizerOptions,
  ): Promise<TokenCounts>;
  encode(text: string, encoding: Encoding, options?: TokenizerOptions): Promise<TokenIds>;
  /** The text of token ids; not `ok` when an id is not in the vocabulary. */
  decode(
    ids: readonly number[],
    encoding: Encoding,
    options?: TokenizerOptions,
  ): Promise<TokenText>;
}

/** A count of 10 MB of ordinary text takes one second. */
const TIMEOUT_MS = 10_000;

export function createTokenizer(pool: WorkerPool): Tokenizer {
  return {
    async count(texts, encoding, options = {}) {
      const parts = texts.map((text) => Buffer.from(text));
      const sizes = parts.map((part) => part.length);
      const outcome = await pool.run(
        { kind: 'count', encoding, sizes },
        Buffer.concat(parts),
        limits(options),
      );
      if (!outcome.ok) return gaveUp();
      const { header } = outcome.reply;
      if (!header.ok) return header;
      assert(header.counts?.length === texts.length, 'one count for each text');
      return { ok: true, counts: header.counts };
    },
    async encode(text, encoding, options = {}) {
      const outcome = await pool.run(
        { kind: 'encode', encoding },
        Buffer.from(text),
        limits(options),
      );
      if (!outcome.ok) return gaveUp();
      const { header, payload } = outcome.reply;
      return header.ok ? { ok: true, ids: readIds(payload) } : header;
    },
    async decode(ids, encoding, options = {}) {
      const bytes = writeIds(ids);
      if (bytes === undefined) return { ok: false, reason: 'holds something that is no token id' };
      const outcome = await pool.run({ kind: 'decode', encoding }, bytes, limits(options));
      if (!outcome.ok) return gaveUp();
      const { header, payload } = outcome.reply;
      return header.ok ? { ok: true, text: payload.toString() } : header;
    },
  };
}

function limits(options: TokenizerOptions): RunOptions {
  return { timeoutMs: TIMEOUT_MS, signal: options.signal, caller: options.caller };
}

function gaveUp(): Extract<ReplyHeader, { ok: false }> {
  return { ok: false, reason: 'could not be counted within the limits of time and memory' };
}

function writeIds(ids: readonly number[]): Buffer | undefined {
  const bytes = Buffer.alloc(ids.length * 4);
  for (const [index, id] of ids.entries()) {
    if (!Number.isInteger(id) || id < 0 || id > 0xffffffff) return undefined;
    bytes.writeUInt32LE(id, index * 4);
  }
  return bytes;
}

function readIds(bytes: Buffer): number[] {
  return Array.from({ length: bytes.length / 4 }, (_unused, index) =>
    bytes.readUInt32LE(index * 4),
  );
}
