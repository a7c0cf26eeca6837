/**
 * Log probabilities of the content tokens in the OpenAI shape. Text can be held back behind the
 * tokens that made it, so that each entry waits until its text is shown; entries of text that is
 * never shown (a stop text) are dropped.
 */
import type { LlamaModel, Token } from 'node-llama-cpp';

export interface ScoredText {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[];
}

export interface TokenLogprob extends ScoredText {
  readonly top_logprobs: ScoredText[];
}

/** OpenAI's floor for what has no chance at all: JSON knows no infinity. */
const LOWEST = -9999;

export class LogprobTrack {
  readonly #model: LlamaModel;
  readonly #top: number;
  #waiting: { readonly entry: TokenLogprob; readonly start: number; readonly end: number }[] = [];
  #written = 0;
  #shown = 0;

  constructor(model: LlamaModel, top: number) {
    this.#model = model;
    this.#top = top;
  }

  /** Notes a sampled token and the text that became complete with it. */
  add(
    output: { token: Token; confidence?: number; probabilities?: Map<Token, number> },
    text: string,
  ): void {
    const start = this.#written;
    this.#written += text.length;
    const best: ScoredText[] = [];
    for (const [token, chance] of output.probabilities ?? []) {
      if (best.length >= this.#top || chance <= 0) break;
      best.push(this.#score(token, chance));
    }
    const entry = { ...this.#score(output.token, output.confidence ?? 0), top_logprobs: best };
    this.#waiting.push({ entry, start, end: this.#written });
  }

  /** The entries whose text is now shown; `isCut` also lets go of one that is shown in part. */
  release(length: number, isCut: boolean): TokenLogprob[] {
    this.#shown += length;
    const isDue = (wait: { start: number; end: number }): boolean =>
      isCut ? wait.start < this.#shown : wait.end <= this.#shown;
    const due = this.#waiting.filter(isDue);
    this.#waiting = this.#waiting.filter((wait) => !isDue(wait));
    return due.map((wait) => wait.entry);
  }

  #score(token: Token, chance: number): ScoredText {
    const text = this.#model.detokenize([token], true);
    const logprob = chance > 0 ? Math.log(chance) : LOWEST;
    return { token: text, logprob, bytes: [...Buffer.from(text, 'utf8')] };
  }
}
