/** How hard to think, in the words of other interfaces. */
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import type { ReasoningEffort } from '../wire/chat-schema.ts';

/** Words of agents that the list does not have, by the nearest one that it has. */
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

/** The nearest of our efforts; `undefined` for no word, and for one that says nothing. */
export function effortOf(word: string | null | undefined): ReasoningEffort | undefined {
  const asked = word?.toLowerCase() ?? '';
  return REASONING_EFFORTS.find((effort) => effort === asked) ?? OTHER_WORDS[asked];
}
