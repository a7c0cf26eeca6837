/**
 * Token counts of text without a tokenizer; for exact counts see `documents/tokenizer.ts`. All
 * sizes are UTF-8 bytes unless the name says otherwise.
 *
 * `tokensAtMost` is the bound behind every hold. The vocabularies in use (byte-level BPE as in GPT,
 * Llama 3, Qwen, Mistral; SentencePiece with byte fallback as in Llama 2 and Gemma) use at least
 * one byte of text per token, so the UTF-8 length is an upper bound. No smaller one is valid: rare
 * scripts and symbols do cost a token per byte. The bound excludes the chat template, which the
 * chat flow adds. Vocabularies that rewrite the text first (NFKC in old embedding models) can
 * exceed it; their engines report usage.
 */

/** No known tokenizer averages more bytes per token than this over a whole prompt. */
const MOST_BYTES_PER_TOKEN = 16;
/** Nearly all prose, code and scripts have at least this many bytes per token. */
const FEW_BYTES_PER_TOKEN = 3;
const USUAL_BYTES_PER_TOKEN = 4;
/** The longest token of the cl100k and o200k vocabularies. */
const MOST_BYTES_OF_ONE_TOKEN = 128;
/** An image of 1024 × 1024: 256 (Gemma) to 1,600 (Llama 3.2) tokens. */
const USUAL_TOKENS_PER_IMAGE = 1_024;
/** One minute, at 25 a second. */
const USUAL_TOKENS_PER_AUDIO = 1_500;
/** Sixteen frames of 256. */
const USUAL_TOKENS_PER_VIDEO = 4_096;
/** The limit of Qwen-VL for one image. */
const MOST_TOKENS_PER_MEDIUM = 16_384;

/** The most tokens that any BPE vocabulary makes of a text, without template. */
export function tokensAtMost(textBytes: number): number {
  return textBytes;
}

/** The fewest tokens that any vocabulary makes of a long text. */
export function tokensAtLeast(textBytes: number): number {
  return Math.floor(textBytes / MOST_BYTES_PER_TOKEN);
}

/** Above the count of nearly every text: for capacity, never for money. */
export function tokensMostly(textBytes: number): number {
  return Math.ceil(textBytes / FEW_BYTES_PER_TOKEN);
}

/** An estimate, billed if the engine reports no usage. */
export function tokensAbout(textBytes: number): number {
  return Math.ceil(textBytes / USUAL_BYTES_PER_TOKEN);
}

/** The typical text length of this many tokens. */
export function bytesUsually(tokens: number): number {
  return tokens * USUAL_BYTES_PER_TOKEN;
}

/** An upper bound of the text of a completion, even one of the longest tokens. */
export function bytesAtMost(tokens: number): number {
  return tokens * MOST_BYTES_PER_TOKEN + MOST_BYTES_OF_ONE_TOKEN;
}

export interface MediaCounts {
  readonly imageCount: number;
  readonly audioCount: number;
  readonly videoCount: number;
}

/** Billed for media if the engine reports no usage. */
export function mediaTokensAbout(media: MediaCounts): number {
  return (
    media.imageCount * USUAL_TOKENS_PER_IMAGE +
    media.audioCount * USUAL_TOKENS_PER_AUDIO +
    media.videoCount * USUAL_TOKENS_PER_VIDEO
  );
}

/** The most tokens that media take, for models with unknown context size. */
export function mediaTokensAtMost(media: MediaCounts): number {
  return (media.imageCount + media.audioCount + media.videoCount) * MOST_TOKENS_PER_MEDIUM;
}

/** The longest text that `tokens` tokens of cl100k or o200k can have. */
export function bytesOfTokens(tokens: number): number {
  return tokens * MOST_BYTES_OF_ONE_TOKEN;
}

/** The most tokens that another vocabulary makes of the text behind `count` token ids. */
export function tokensBehindIds(count: number): number {
  return tokensAtMost(count * MOST_BYTES_OF_ONE_TOKEN);
}
