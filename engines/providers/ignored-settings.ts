/**
 * Rejects chats with a setting that the package ignores, although the completion depends on it. A package reports
 * this with its response: the first such request for a model is sent, and later ones are rejected before the call.
 */
import type { LanguageModelV4CallOptions } from '@ai-sdk/provider';
import { ProviderFailure } from './failure.ts';

/** Names in the options and warnings of packages, and in a chat. */
const SETTINGS = [
  ['stopSequences', 'stop'],
  ['seed', 'seed'],
] as const;

export class IgnoredSettings {
  readonly #known = new Set<string>();

  /** Throws a `ProviderFailure` for a setting that the model is known to ignore. */
  check(model: string, options: LanguageModelV4CallOptions): void {
    for (const [name, member] of SETTINGS) {
      if (options[name] !== undefined && this.#known.has(`${name} ${model}`)) throw refusal(member);
    }
  }

  /** Throws a `ProviderFailure` if one of the warnings is about such a setting. */
  learn(model: string, warnings: readonly { readonly type: string; feature?: unknown }[]): void {
    for (const [name, member] of SETTINGS) {
      if (!warnings.some(({ type, feature }) => type === 'unsupported' && feature === name))
        continue;
      this.#known.add(`${name} ${model}`);
      throw refusal(member);
    }
  }
}

function refusal(member: string): ProviderFailure {
  return new ProviderFailure(
    400,
    `The provider does not support "${member}" of this model; omit it`,
  );
}
