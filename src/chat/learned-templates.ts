/**
 * How many tokens the chat template of a model adds to a prompt: what the operator has set, or else an
 * assumption that is raised to what engines report. Without it a long default system prompt would be
 * read at the operator's cost, because a reported count above the bound of the hold is not billed.
 *
 * Only short, plain prompts teach: nearly all of their count is template. One report alone teaches
 * nothing, and there is a limit to what is learned, so that an engine with wrong counts stays bounded.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Log } from '../core/log.ts';
import { tokensAtLeast } from '../core/token-count.ts';

/** Of most templates: system defaults, role marks, the opening of the answer. */
export const USUAL_TEMPLATE_TOKENS = 256;
/** A longer template is the operator's to set. */
const MAX_LEARNED_TOKENS = 4_096;
/** Text of a prompt that is short: at most about a quarter as many tokens. */
const MAX_PROMPT_BYTES = 256;
/** More models than any operator offers; of further ones nothing is learned. */
const MAX_MODELS = 10_000;

interface Learned {
  tokens: number;
  /** What the last short prompt seemed to need, when that was more; else 0. */
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

  /** The bound on the template tokens of a model, which its holds include. */
  tokensOf({ id, templateTokens }: TemplateModel): number {
    if (templateTokens !== undefined) return templateTokens;
    return this.#ofModel.get(id)?.tokens ?? USUAL_TEMPLATE_TOKENS;
  }

  /** Learns from a plain prompt. Two in a row that need more raise the bound to the lesser of both. */
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
