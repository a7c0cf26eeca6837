/**
 * How many tokens a text can have at most, without a tokenizer: the bound behind every hold.
 *
 * The vocabularies in use (byte-level BPE as in GPT, Llama 3, Qwen, Mistral; SentencePiece with
 * byte fallback as in Llama 2 and Gemma) give each token at least one byte of the text, so the
 * UTF-8 length bounds the count, and nothing smaller does for all of them: a rare script or a row
 * of odd symbols really costs a token for each byte. What a chat template writes around the text
 * is not in the text; the chat flow allows for it. English is about four bytes a token: the bound
 * is about four times the truth there, which a hold gives back when it settles, and `tokensAbout`
 * is the fair guess for limits that touch no money. Vocabularies that rewrite the text first
 * (NFKC in old embedding models) can exceed it; their engines report usage of their own.
 */

/** The character rule of the specification: `ceil(chars / 3.2 * 0.95)`, kept in integers. */
const CHARS_PER_TOKEN_TENTHS = 32;

/** The most tokens that any BPE vocabulary makes of `text`, without template. */
export function tokensAtMost(text: string): number {
  return Buffer.byteLength(text);
}

/** A fair guess of the tokens of `text`, for rate limits and early refusals; never for money. */
export function tokensAbout(text: string): number {
  return Math.ceil((text.length * 10 * 0.95) / CHARS_PER_TOKEN_TENTHS);
}
