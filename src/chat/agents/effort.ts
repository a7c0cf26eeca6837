/** Maps the names that other APIs use for a reasoning effort to those of this server. */
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import type { ReasoningEffort } from '../wire/chat-schema.ts';

const OTHER_WORDS: Readonly<Record<string, ReasoningEffort>> = {
  off: 'none',
  disabled: 'none',
  minimum: 'minimal',
  light: 'low',
  normal: 'medium',
  default: 'medium',
  extra_high: 'xhigh',
  ultra: 'max',
  maximum: 'max',
};

/** Returns the nearest effort of this server; `undefined` if the name is missing or unknown. */
export function effortOf(word: string | null | undefined): ReasoningEffort | undefined {
  const asked = word?.toLowerCase() ?? '';
  return REASONING_EFFORTS.find((effort) => effort === asked) ?? OTHER_WORDS[asked];
}
