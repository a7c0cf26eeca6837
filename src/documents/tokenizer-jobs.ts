/**
 * Jobs of a `tokenizer` worker: exact token counts and decoded texts for the vocabularies `o200k`
 * and `cl100k`. The merge loop is quadratic in the length of an unbroken run, so long runs are cut.
 * This changes the count of such a run by about one token in a thousand.
 */
import * as cl100k from 'gpt-tokenizer/encoding/cl100k_base';
import * as o200k from 'gpt-tokenizer/encoding/o200k_base';
import type { Encoding, Job, Reply } from './jobs.ts';

/** Longer runs without a change from space to letter are cut. */
const MAX_RUN_CHARS = 1_024;

/** Special tokens such as `<|endoftext|>` in a caller's text are counted as text. */
const PLAIN = { disallowedSpecial: new Set<string>() };

export async function runTokenizerJob(job: Job, payload: Buffer): Promise<Reply> {
  const nothing = Buffer.alloc(0);
  switch (job.kind) {
    case 'count': {
      const { countTokens } = library(job.encoding);
      const counts = texts(payload, job.sizes).map((text) => {
        let tokens = 0;
        for (const piece of pieces(text)) tokens += countTokens(piece, PLAIN);
        return tokens;
      });
      return { header: { ok: true, counts }, payload: nothing };
    }
    case 'decode':
      try {
        const ids = Array.from({ length: Math.floor(payload.length / 4) }, (_unused, at) => {
          return payload.readUInt32LE(at * 4);
        });
        return { header: { ok: true }, payload: Buffer.from(library(job.encoding).decode(ids)) };
      } catch {
        // The library only throws for unknown ids.
        const reason = `contains a token id that is not in ${job.encoding}`;
        return { header: { ok: false, reason }, payload: nothing };
      }
    default:
      return { header: { ok: false, reason: 'is not a job of a tokenizer' }, payload: nothing };
  }
}

function library(encoding: Encoding): typeof o200k | typeof cl100k {
  return encoding === 'o200k' ? o200k : cl100k;
}

function texts(payload: Buffer, sizes: readonly number[]): string[] {
  let at = 0;
  return sizes.map((size) => payload.toString('utf8', at, (at += size)));
}

/** Cuts a text within runs that are too long. */
export function pieces(text: string): string[] {
  const cut: string[] = [];
  let start = 0;
  let runStart = 0;
  let wasSpace = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const isSpace = code === 32 || (code >= 9 && code <= 13) || code === 0xa0 || code === 0x3000;
    if (wasSpace && !isSpace) runStart = at;
    wasSpace = isSpace;
    const isLowSurrogate = code >= 0xdc00 && code <= 0xdfff;
    if (at - runStart >= MAX_RUN_CHARS && !isLowSurrogate) {
      cut.push(text.slice(start, at));
      start = at;
      runStart = at;
    }
  }
  cut.push(text.slice(start));
  return cut;
}
