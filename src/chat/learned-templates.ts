/**
 * How many tokens the chat template of a model adds to a prompt: the operator's setting, or an
 * assumption that reports of engines raise. Reported counts above the bound of the hold are not
 * billed, so without this a long template would be at the operator's cost.
 *
 * Only short plain prompts are used, whose count is nearly all template. Two reports are needed and
 * the bound is limited, so that wrong counts of an engine have little effect.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Log } from '../core/log.ts';
import { tokensAtLeast } from '../core/token-count.ts';

/** Sufficient for most templates. */
export const USUAL_TEMPLATE_TOKENS = 256;
/** Longer templates need the operator's setting. */
const MAX_LEARNED_TOKENS = 4_096;
/** A prompt of this size has at most about a quarter as many tokens. */
const MAX_PROMPT_BYTES = 256;
const MAX_MODELS = 10_000;

interface Learned {
  tokens: number;
  /** Tokens that the last short prompt needed beyond the bound; else 0. */
  last: number;
}

type TemplateModel = Pick<CatalogModel, 'id' | 'templateTokens'>;

export interface CountedPrompt {
  readonly promptBytes: number;
  readonly promptTokens: number;
}

export class LearnedTemplates {
  readonly #ofModel = new Map<string, Learned>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  tokensOf({ id, templateTokens }: TemplateModel): number {
    if (templateTokens !== undefined) return templateTokens;
    return this.#ofModel.get(id)?.tokens ?? USUAL_TEMPLATE_TOKENS;
  }

  /** Two consecutive reports above the bound raise it to the lesser of both. */
  note({ id, templateTokens }: TemplateModel, { promptBytes, promptTokens }: CountedPrompt): void {
    if (templateTokens !== undefined || promptBytes > MAX_PROMPT_BYTES) return;
    let learned = this.#ofModel.get(id);
    const needed = Math.min(MAX_LEARNED_TOKENS, promptTokens - tokensAtLeast(promptBytes));
    if (needed <= (learned?.tokens ?? USUAL_TEMPLATE_TOKENS)) {
      if (learned !== undefined) learned.last = 0;
      return;
    }
    if (learned === undefined) {
      if (this.#ofModel.size >= MAX_MODELS) return;
      learned = { tokens: USUAL_TEMPLATE_TOKENS, last: 0 };
      this.#ofModel.set(id, learned);
    }
    const confirmed = Math.min(learned.last, needed);
    learned.last = needed;
    if (confirmed <= learned.tokens) return;
    learned.tokens = confirmed;
    this.#log.info(
      { model: id, templateTokens: confirmed },
      'The chat template of a model is longer than assumed; holds include it from now on',
    );
  }
}
