/**
 * Picks the next token from the raw distribution of a model. The library reports probabilities only
 * after its sampler has scaled and truncated them, but `logprobs` must describe the model's own
 * distribution. For requests with `logprobs` the library therefore returns the raw distribution,
 * and this sampler applies bias and penalties, then `top_k`, `top_p`, `min_p` and the temperature,
 * in the library's order.
 *
 * It does not support grammars or the repetition penalty; the latter depends on the sign of logits,
 * which probabilities do not show.
 */

export interface RawSampling {
  /** 0 always picks the most likely token. */
  readonly temperature: number;
  /** 1 keeps all tokens; so does 0 for `topK` and `minP`. */
  readonly topP: number;
  readonly topK: number;
  readonly minP: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly logitBias: ReadonlyMap<number, number>;
}

interface Candidate<Token> {
  readonly token: Token;
  /** The logit, shifted by a constant that is the same for all tokens. */
  readonly logit: number;
}

export class RawSampler<Token extends number> {
  readonly #sampling: RawSampling;
  #state: number;

  constructor(sampling: RawSampling, seed: number) {
    this.#sampling = sampling;
    this.#state = seed >>> 0;
  }

  /**
   * `probabilities` covers the whole vocabulary, the most likely first; `recent` holds the tokens
   * that penalties count. Returns `undefined` if every token has probability 0.
   */
  pick(probabilities: ReadonlyMap<Token, number>, recent: readonly Token[]): Token | undefined {
    const { temperature, topK } = this.#sampling;
    const all = this.#candidates(probabilities, recent);
    if (temperature === 0) return all[0]?.token;
    const kept = this.#likeliest(topK > 0 ? all.slice(0, topK) : all);
    const weights = weightsOf(kept, temperature);
    let left = this.#fraction() * weights.reduce((sum, weight) => sum + weight, 0);
    for (const [at, weight] of weights.entries()) {
      left -= weight;
      if (left < 0) return kept[at]?.token;
    }
    return kept.at(-1)?.token;
  }

  /** The tokens with a probability above 0, the most likely first. */
  #candidates(
    probabilities: ReadonlyMap<Token, number>,
    recent: readonly Token[],
  ): Candidate<Token>[] {
    const { frequencyPenalty, presencePenalty, logitBias } = this.#sampling;
    const changes = new Map<number, number>(logitBias);
    if (frequencyPenalty !== 0 || presencePenalty !== 0) {
      const counts = new Map<number, number>();
      for (const token of recent) counts.set(token, (counts.get(token) ?? 0) + 1);
      for (const [token, count] of counts) {
        const penalty = count * frequencyPenalty + presencePenalty;
        changes.set(token, (changes.get(token) ?? 0) - penalty);
      }
    }
    const candidates: Candidate<Token>[] = [];
    for (const [token, chance] of probabilities) {
      if (chance <= 0) continue;
      candidates.push({ token, logit: Math.log(chance) + (changes.get(token) ?? 0) });
    }
    if (changes.size > 0) candidates.sort((one, other) => other.logit - one.logit);
    return candidates;
  }

  /** Applies `top_p` and `min_p`; keeps at least the most likely token. */
  #likeliest(candidates: Candidate<Token>[]): Candidate<Token>[] {
    const { topP, minP } = this.#sampling;
    let kept = candidates;
    if (topP < 1) {
      const weights = weightsOf(kept, 1);
      let left = topP * weights.reduce((sum, weight) => sum + weight, 0);
      let count = 0;
      while (count < kept.length && (count === 0 || left > 0)) left -= weights[count++] ?? 0;
      kept = kept.slice(0, count);
    }
    if (minP <= 0) return kept;
    const least = (kept[0]?.logit ?? 0) + Math.log(minP);
    return kept.filter(({ logit }, at) => at === 0 || logit >= least);
  }

  /** Mulberry32: a pseudo-random number in [0, 1). */
  #fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }
}

/** Relative to the most likely token, so that no value overflows. */
function weightsOf(candidates: readonly Candidate<number>[], temperature: number): number[] {
  const most = candidates[0]?.logit ?? 0;
  return candidates.map(({ logit }) => Math.exp((logit - most) / temperature));
}
