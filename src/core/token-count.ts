/**
 * How many tokens a text has, as far as that can be said without a tokenizer. The one place for
 * such figures; exact counts are `documents/tokenizer.ts`.
 *
 * `tokensAtMost` is the bound behind every hold. The vocabularies in use (byte-level BPE as in GPT,
 * Llama 3, Qwen, Mistral; SentencePiece with byte fallback as in Llama 2 and Gemma) give each token
 * at least one byte of the text, so the UTF-8 length bounds the count, and nothing smaller does for
 * all of them: a rare script or a row of odd symbols really costs a token for each byte. What a
 * chat template writes around the text is not in the text; the chat flow allows for it.
 * Vocabularies that rewrite the text first (NFKC in old embedding models) can exceed it; their
 * engines report usage of their own. All sizes are UTF-8 bytes unless the name says otherwise.
 */

/** No known tokenizer packs more bytes of text than this into a token, over a whole prompt. */
const MOST_BYTES_PER_TOKEN = 16;
/** Nearly all prose, code and scripts take at least this many bytes a token. */
const FEW_BYTES_PER_TOKEN = 3;
/** English prose takes about this many. */
const USUAL_BYTES_PER_TOKEN = 4;
/** The longest token of the cl100k and o200k vocabularies. */
const MOST_BYTES_OF_ONE_TOKEN = 128;
/** A picture of 1024 × 1024: models take 256 (Gemma) to 1,600 (Llama 3.2) for it. */
const USUAL_TOKENS_PER_IMAGE = 1_024;
/** One minute, at 25 a second. */
const USUAL_TOKENS_PER_AUDIO = 1_500;
/** Sixteen frames of 256. */
const USUAL_TOKENS_PER_VIDEO = 4_096;
/** The cap of Qwen-VL for one picture. */
const MOST_TOKENS_PER_MEDIUM = 16_384;

/** The most tokens that any BPE vocabulary makes of a text, without template. */
export function tokensAtMost(textBytes: number): number {
  return textBytes;
}

/** Fewer tokens than this no vocabulary makes of a long text. */
export function tokensAtLeast(textBytes: number): number {
  return Math.floor(textBytes / MOST_BYTES_PER_TOKEN);
}

/** More than nearly every text has: to leave room, never for money. */
export function tokensMostly(textBytes: number): number {
  return Math.ceil(textBytes / FEW_BYTES_PER_TOKEN);
}

/** A fair count: what is billed when the engine has not counted. */
export function tokensAbout(textBytes: number): number {
  return Math.ceil(textBytes / USUAL_BYTES_PER_TOKEN);
}

/** The text that so many tokens usually have. */
export function bytesUsually(tokens: number): number {
  return tokens * USUAL_BYTES_PER_TOKEN;
}

/** No answer of so many tokens has more text, not even one of the longest tokens. */
export function bytesAtMost(tokens: number): number {
  return tokens * MOST_BYTES_PER_TOKEN + MOST_BYTES_OF_ONE_TOKEN;
}

export interface MediaCounts {
  readonly imageCount: number;
  readonly audioCount: number;
  readonly videoCount: number;
}

/** What is billed for media when the engine has not counted. */
export function mediaTokensAbout(media: MediaCounts): number {
  return (
    media.imageCount * USUAL_TOKENS_PER_IMAGE +
    media.audioCount * USUAL_TOKENS_PER_AUDIO +
    media.videoCount * USUAL_TOKENS_PER_VIDEO
  );
}

/** The most tokens that media take, for models whose context is not known. */
export function mediaTokensAtMost(media: MediaCounts): number {
  return (media.imageCount + media.audioCount + media.videoCount) * MOST_TOKENS_PER_MEDIUM;
}

/** The longest text that `tokens` tokens of cl100k or o200k can have: any longer one has more tokens. */
export function bytesOfTokens(tokens: number): number {
  return tokens * MOST_BYTES_OF_ONE_TOKEN;
}

/** The most tokens that another vocabulary makes of the text behind `count` token ids. */
export function tokensBehindIds(count: number): number {
  return tokensAtMost(count * MOST_BYTES_OF_ONE_TOKEN);
}
