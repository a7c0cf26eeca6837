/**
 * Tools of a Messages request that run at the caller. Tools of the provider have prices of their own,
 * and add text to the prompt, which the hold does not cover.
 */
import { isJsonObject } from '../../../json/json-scan.ts';

const CLIENT_TOOL = /^(?:custom|bash_|computer_|memory_|text_editor_|tool_search_tool_)/;

/** Returns the same list if every tool is kept, and `undefined` if none is. */
export function clientTools(tools: unknown): readonly unknown[] | undefined {
  if (!Array.isArray(tools)) return undefined;
  const kept = tools.filter((tool) => isJsonObject(tool) && isClientTool(tool['type']));
  if (kept.length === tools.length) return tools;
  return kept.length === 0 ? undefined : kept;
}

function isClientTool(type: unknown): boolean {
  return typeof type !== 'string' || CLIENT_TOOL.test(type);
}
