/** The members of a Messages request that turn reasoning on or off. */
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';

/** The engine rejects smaller budgets. */
const LEAST_BUDGET_TOKENS = 1_024;

interface Message {
  readonly role: string;
  readonly content: readonly JsonObject[];
}

/**
 * Returns `thinking` and the effort. A caller of this protocol has set them; otherwise the effort of
 * the chat becomes adaptive reasoning. A required tool call excludes reasoning.
 */
export function thinkingMembers(
  chat: JsonObject,
  own: JsonObject | undefined,
  messages: readonly Message[],
  isForced: boolean,
): { readonly thinking?: unknown; readonly effort?: unknown } {
  if (own === undefined) {
    const { reasoning_effort: effort } = chat;
    if (typeof effort !== 'string') return {};
    if (effort === 'none') return { thinking: { type: 'disabled' } };
    const least = effort === 'minimal' ? 'low' : effort;
    return isForced ? { effort: least } : { thinking: { type: 'adaptive' }, effort: least };
  }
  const config = isJsonObject(own['output_config']) ? own['output_config'] : {};
  const thinking = fittingThinking(own['thinking'], chat['max_tokens']);
  const isAllowed = !isForced && (!hasBudget(thinking) || mayThink(messages));
  return { thinking: isAllowed ? thinking : undefined, effort: config['effort'] };
}

const LOW_BUDGET_TOKENS = 2_048;
const MEDIUM_BUDGET_TOKENS = 8_192;
const HIGH_BUDGET_TOKENS = 24_576;

/** The effort of a chat as a budget, for models without adaptive reasoning. */
export function budgetOf(
  { reasoning_effort: effort, max_tokens }: JsonObject,
  messages: readonly Message[],
): unknown {
  if (typeof effort !== 'string' || effort === 'none' || !mayThink(messages)) return undefined;
  const isLow = effort === 'low' || effort === 'minimal';
  const more = effort === 'medium' ? MEDIUM_BUDGET_TOKENS : HIGH_BUDGET_TOKENS;
  const budget_tokens = isLow ? LOW_BUDGET_TOKENS : more;
  return fittingThinking({ type: 'enabled', budget_tokens }, max_tokens);
}

/** The budget has to be below the output limit, which the hold may have lowered. */
export function fittingThinking(thinking: unknown, maxTokens: unknown): unknown {
  if (!hasBudget(thinking) || typeof maxTokens !== 'number') return thinking;
  if (maxTokens > thinking.budget_tokens) return thinking;
  if (maxTokens <= LEAST_BUDGET_TOKENS) return { type: 'disabled' };
  return { ...thinking, budget_tokens: maxTokens - 1 };
}

function hasBudget(thinking: unknown): thinking is JsonObject & { budget_tokens: number } {
  return isJsonObject(thinking) && typeof thinking['budget_tokens'] === 'number';
}

/** With a budget, the tool call that a result follows has to begin with reasoning. */
function mayThink(messages: readonly Message[]): boolean {
  const isResult = messages.at(-1)?.content.some(({ type }) => type === 'tool_result') === true;
  const first = messages.at(-2)?.content[0]?.['type'];
  return !isResult || first === 'thinking' || first === 'redacted_thinking';
}
