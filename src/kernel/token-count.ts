/**
 * How many tokens a prompt can have at most, without a tokenizer: the bound behind every hold.
 *
 * The vocabularies in use (byte-level BPE as in GPT, Llama 3, Qwen, Mistral; SentencePiece with
 * byte fallback as in Llama 2 and Gemma) give each token at least one byte of the text, so the
 * UTF-8 length bounds the count, and nothing smaller does for all of them: a rare script or a row
 * of odd symbols really costs a token for each byte. What a chat template writes around the text
 * is not in the text, so each message and the prompt as a whole carry an allowance. English is
 * about four bytes a token: the bound is about four times the truth there, which a hold gives back
 * when it settles, and `tokensAbout` is the fair guess for limits that refuse nobody's money.
 */

/** Role marks and separators of one message; the longest known template writes 11. */
export const MESSAGE_ALLOWANCE_TOKENS = 16;

/** Begin mark, default system text and generation prompt; the longest known write about 120. */
export const TEMPLATE_ALLOWANCE_TOKENS = 256;

/** Instructions around tool definitions; the longest known templates write about 350. */
export const TOOLS_ALLOWANCE_TOKENS = 512;

/** Templates print tool schemas indented: at most one line break and indentation for each of `{}[],:`. */
const TOOL_BYTES_FACTOR = 2;

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

export interface PromptSize {
  /** UTF-8 bytes of everything the model reads as text, reasoning and tool calls included. */
  readonly textBytes: number;
  readonly messages: number;
  /** UTF-8 bytes of the JSON of `tools` and of a response schema; 0 without. */
  readonly toolBytes?: number;
  /** Bound of what images, audio and video cost, by the rules of the model. */
  readonly mediaTokens?: number;
  /** An engine refuses a longer prompt, so it is a bound as well. */
  readonly contextTokens?: number;
}

/** The most prompt tokens that a request can be billed for. */
export function promptTokensAtMost(size: PromptSize): number {
  const toolBytes = size.toolBytes ?? 0;
  const tools = toolBytes === 0 ? 0 : TOOLS_ALLOWANCE_TOKENS + toolBytes * TOOL_BYTES_FACTOR;
  const messages = size.messages * MESSAGE_ALLOWANCE_TOKENS + TEMPLATE_ALLOWANCE_TOKENS;
  const bound = size.textBytes + messages + tools + (size.mediaTokens ?? 0);
  return Math.min(bound, size.contextTokens ?? bound);
}
