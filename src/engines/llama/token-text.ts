/**
 * Turns tokens into text one by one. A token can end in the middle of a character: its text waits
 * for the next token, so that no replacement character is ever handed out for a whole one.
 */
import type { LlamaModel, Token } from 'node-llama-cpp';

/** UTF-8 characters have up to four bytes, a token at least one. */
const MAX_PENDING = 4;
/** Tokens before, for tokenizers whose spacing depends on them. */
const LOOK_BACK = 4;
const REPLACEMENT = '\uFFFD';

export class TokenText {
  readonly #model: LlamaModel;
  readonly #markTexts: ReadonlyMap<Token, string>;
  #before: Token[];
  #pending: Token[] = [];

  constructor(model: LlamaModel, markTexts: ReadonlyMap<Token, string>, prompt: readonly Token[]) {
    this.#model = model;
    this.#markTexts = markTexts;
    this.#before = prompt.slice(-LOOK_BACK);
  }

  /** The text that is complete with this token. */
  push(token: Token): string {
    const mark = this.#markTexts.get(token);
    if (mark !== undefined) return this.end() + this.#advance([token], mark);
    this.#pending.push(token);
    const text = this.#model.detokenize(this.#pending, false, this.#before);
    if (text.endsWith(REPLACEMENT) && this.#pending.length < MAX_PENDING) return '';
    return this.#flush(text);
  }

  /** What is left when no token follows. */
  end(): string {
    if (this.#pending.length === 0) return '';
    return this.#flush(this.#model.detokenize(this.#pending, false, this.#before));
  }

  #flush(text: string): string {
    const tokens = this.#pending;
    this.#pending = [];
    return this.#advance(tokens, text);
  }

  #advance(tokens: readonly Token[], text: string): string {
    this.#before = [...this.#before, ...tokens].slice(-LOOK_BACK);
    return text;
  }
}
