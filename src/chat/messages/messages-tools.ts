/**
 * Converts the tools of a Messages request: the caller's tools become functions, hosted web search
 * becomes the search of this server, and other hosted tools are left out.
 */
import { engineToolName, NO_PARAMETERS } from '../agents/engine-values.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { jsonObjects } from '../../json/json-text.ts';
import { refuseMember } from '../../json/validation.ts';
import { isSearchTool } from '../wire/svc-parameters.ts';
import type { MessagesBody, Tool, ToolChoice } from './messages-schema.ts';

interface ToolOffer {
  readonly fields: JsonObject;
  readonly search: 'on' | 'auto' | undefined;
  readonly maxSearches: number | undefined;
  /** The caller's tool names by the engine's, where they differ. */
  readonly names: ReadonlyMap<string, string>;
}

const NO_TOOLS: ToolOffer = {
  fields: {},
  search: undefined,
  maxSearches: undefined,
  names: new Map(),
};

/** Throws 400 for a `tool_choice` that no tool of the request can satisfy. */
export function toolOffer(body: MessagesBody, canSearch: boolean): ToolOffer {
  const given = body.tools ?? [];
  const choice = body.tool_choice ?? undefined;
  if (given.length === 0) return NO_TOOLS;
  const named = namedTools(body);
  const functions = given.filter((tool) => isFunction(tool) && isOffered(tool, named, choice));
  const maySearch = canSearch && choice?.type !== 'none';
  const search = maySearch ? given.find(({ type }) => isSearchTool(type)) : undefined;
  const wantsSearch = search !== undefined && isDemanded(search, functions, choice);
  if (!wantsSearch) refuseUnknownChoice(functions, choice);
  return {
    fields: functions.length === 0 ? {} : functionFields(functions, wantsSearch ? 'none' : choice),
    search: wantsSearch ? 'on' : search && 'auto',
    maxSearches: search?.max_uses ?? undefined,
    names: changedNames(functions),
  };
}

function functionFields(
  functions: readonly Tool[],
  choice: ToolChoice | 'none' | undefined,
): JsonObject {
  const tools = functions.map(({ name, description, input_schema }) => ({
    type: 'function',
    function: {
      name: engineToolName(name ?? ''),
      ...(description ? { description } : {}),
      parameters: input_schema ?? NO_PARAMETERS,
    },
  }));
  if (choice === undefined) return { tools };
  if (choice === 'none') return { tools, tool_choice: 'none' };
  const isSerial = choice.disable_parallel_tool_use === true;
  const parallel = isSerial ? { parallel_tool_calls: false } : {};
  return { tools, tool_choice: choiceOf(choice), ...parallel };
}

function choiceOf({ type, name }: ToolChoice): unknown {
  if (type === 'any') return 'required';
  return type === 'tool'
    ? { type: 'function', function: { name: engineToolName(name ?? '') } }
    : type;
}

function changedNames(functions: readonly Tool[]): ReadonlyMap<string, string> {
  const changed = new Map<string, string>();
  for (const { name } of functions) {
    const given = name ?? '';
    const shown = engineToolName(given);
    if (shown !== given) changed.set(shown, given);
  }
  return changed;
}

function isFunction({ type, name }: Tool): boolean {
  return typeof name === 'string' && (type ?? 'custom') === 'custom';
}

/** A deferred tool is hidden until it was referenced, called or chosen. */
function isOffered(tool: Tool, named: ReadonlySet<string>, choice: ToolChoice | undefined) {
  const { name, defer_loading: isDeferred } = tool;
  return isDeferred !== true || named.has(name ?? '') || choice?.name === name;
}

/**
 * Whether `tool_choice` requires the search: by name, or as the only tool while any must be called.
 */
function isDemanded(search: Tool, functions: readonly Tool[], choice: ToolChoice | undefined) {
  if (choice?.type === 'any') return functions.length === 0;
  return choice?.type === 'tool' && choice.name === (search.name ?? 'web_search');
}

function refuseUnknownChoice(functions: readonly Tool[], choice: ToolChoice | undefined): void {
  if (choice === undefined) return;
  const isMissing =
    choice.type === 'tool'
      ? !functions.some(({ name }) => name === choice.name)
      : choice.type === 'any' && functions.length === 0;
  if (!isMissing) return;
  const which =
    typeof choice.name !== 'string' ? 'a tool' : `the tool "${choice.name.slice(0, 100)}"`;
  const message = `tool_choice requires ${which}, which is not available: only the tools of the request are, and web_search on a server with a search`;
  throw refuseMember(['tool_choice'], message, 'invalid_value');
}

function namedTools({ messages, tools }: MessagesBody): ReadonlySet<string> {
  const named = new Set<string>();
  if (tools?.some((tool) => tool.defer_loading === true) !== true) return named;
  for (const { content } of messages) if (typeof content !== 'string') addNames(content, named);
  return named;
}

function addNames(blocks: unknown, named: Set<string>): void {
  for (const { type, tool_name: referenced, name, content } of jsonObjects(blocks)) {
    if (type === 'tool_reference' && typeof referenced === 'string') named.add(referenced);
    else if (type === 'tool_use' && typeof name === 'string') named.add(name);
    else if (type === 'tool_result') addNames(content, named);
    else if (type === 'tool_search_tool_result' && isJsonObject(content)) {
      addNames(content['tool_references'], named);
    }
  }
}
