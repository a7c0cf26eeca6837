/**
 * Top-level members in other spellings, rewritten before validation: aliases, nulls, tools,
 * `tool_choice`, `response_format`, the service parameters and the suffixes of the model name.
 *
 * Invariant: a member that needs no change keeps its identity, so that its bytes are kept.
 */
import { canonicalMessages } from './foreign-messages.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import {
  isParameterName,
  normaliseParameters,
  splitModelSuffixes,
  webSearchMode,
} from './svc-parameters.ts';

const ALIASES: readonly (readonly [alias: string, name: string])[] = [
  ['input', 'messages'],
  ['max_output_tokens', 'max_tokens'],
  ['promptCacheKey', 'prompt_cache_key'],
];

type Fields = Record<string, unknown>;

/** The canonical members of a chat body, not yet validated. */
export function canonicalFields(body: JsonObject, serviceName: string): Fields {
  const fields: Fields = {};
  for (const key in body) {
    const value = body[key];
    // `null` for an optional member is the same as absent; a defined key cannot be shadowed.
    if (value !== null && key !== '__proto__') fields[key] = value;
  }
  for (const [alias, name] of ALIASES) {
    if (!Object.hasOwn(fields, alias)) continue;
    fields[name] ??= fields[alias];
    delete fields[alias];
  }
  rewriteCaps(fields);
  rewriteText(fields);
  const search = rewriteTools(fields);
  rewriteParameters(fields, serviceName, search);
  if (Object.hasOwn(fields, 'messages')) fields['messages'] = canonicalMessages(fields['messages']);
  return fields;
}

/** Values <= 0 mean "the model's default"; an empty stop list means none. */
function rewriteCaps(fields: Fields): void {
  for (const key of ['max_tokens', 'max_completion_tokens']) {
    const value = fields[key];
    if (typeof value === 'number' && value <= 0) delete fields[key];
  }
  if (Array.isArray(fields['stop']) && fields['stop'].length === 0) delete fields['stop'];
}

/** `text: {verbosity, format}` of the Responses interface. */
function rewriteText(fields: Fields): void {
  const text = fields['text'];
  if (isJsonObject(text) && isJsonObject(text['format'])) {
    fields['response_format'] ??= text['format'];
  }
  const format = fields['response_format'];
  if (isJsonObject(format)) fields['response_format'] = canonicalFormat(format);
}

function canonicalFormat(format: JsonObject): JsonObject {
  if (format['type'] !== 'json_schema') return format;
  const inner = format['json_schema'];
  if (!isJsonObject(inner)) return isJsonObject(format['schema']) ? flatFormat(format) : format;
  if (isJsonObject(inner['schema'])) {
    if (typeof inner['name'] === 'string') return format;
    return { ...format, json_schema: { ...inner, name: DEFAULT_SCHEMA_NAME } };
  }
  // A bare schema stands where the wrapper should.
  return { type: 'json_schema', json_schema: { name: DEFAULT_SCHEMA_NAME, schema: inner } };
}

const DEFAULT_SCHEMA_NAME = 'response';

function flatFormat(format: JsonObject): JsonObject {
  const { type, json_schema: _absent, ...inner } = format;
  return { type, json_schema: { name: DEFAULT_SCHEMA_NAME, ...inner } };
}

interface ToolSearch {
  readonly web: boolean;
  readonly social: boolean;
}

/** Converts the tools; search tools become parameters and leave the list. */
function rewriteTools(fields: Fields): ToolSearch {
  const tools = fields['tools'];
  let web = false;
  let social = false;
  if (Array.isArray(tools)) {
    const kept: unknown[] = [];
    for (const tool of tools as readonly unknown[]) {
      const type = isJsonObject(tool) ? tool['type'] : undefined;
      if (typeof type === 'string' && type.startsWith('web_search')) web = true;
      else if (type === 'x_search') social = true;
      else kept.push(canonicalTool(tool));
    }
    const same = kept.length === tools.length && kept.every((tool, at) => tool === tools[at]);
    if (kept.length === 0) delete fields['tools'];
    else if (!same) fields['tools'] = kept;
  }
  rewriteToolChoice(fields);
  return { web, social };
}

function canonicalTool(tool: unknown): unknown {
  if (!isJsonObject(tool)) return tool;
  if (isJsonObject(tool['function'])) {
    return tool['type'] === undefined ? { ...tool, type: 'function' } : tool;
  }
  const { type, name, description, parameters, input_schema, strict } = tool;
  const isForeign = type === undefined || type === null || type === 'function' || type === 'custom';
  if (!isForeign || typeof name !== 'string') return tool;
  const members = { name, description, parameters: parameters ?? input_schema, strict };
  const given = Object.entries(members).filter(
    ([, value]) => value !== undefined && value !== null,
  );
  return { type: 'function', function: Object.fromEntries(given) };
}

function rewriteToolChoice(fields: Fields): void {
  if (!Object.hasOwn(fields, 'tools')) {
    // A choice among no tools has no meaning, and several engines refuse it.
    for (const key of ['tool_choice', 'parallel_tool_calls']) {
      if (Object.hasOwn(fields, key)) delete fields[key];
    }
    return;
  }
  if (Object.hasOwn(fields, 'tool_choice')) {
    fields['tool_choice'] = canonicalChoice(fields['tool_choice']);
  }
}

function canonicalChoice(choice: unknown): unknown {
  if (choice === 'any') return 'required';
  if (!isJsonObject(choice)) return choice;
  const { type, name } = choice;
  if (isJsonObject(choice['function'])) return choice;
  if ((type === 'function' || type === 'tool') && typeof name === 'string') {
    return { type: 'function', function: { name } };
  }
  if (type === 'any') return 'required';
  return type === 'auto' || type === 'none' || type === 'required' ? type : choice;
}

/** Precedence, weakest first: tool types, `web_search`, the parameter object, suffixes. */
function rewriteParameters(fields: Fields, serviceName: string, search: ToolSearch): void {
  const merged: Record<string, unknown> = {};
  if (search.web) merged['enable_web_search'] = 'auto';
  if (search.social) merged['enable_x_search'] = true;
  for (const key of ['web_search', 'enable_web_search']) {
    if (!Object.hasOwn(fields, key)) continue;
    merged['enable_web_search'] = isJsonObject(fields[key]) ? 'on' : webSearchMode(fields[key]);
    delete fields[key];
  }
  let refused: unknown;
  for (const key of ['svc_parameters', `${serviceName}_parameters`]) {
    // For a service called `svc` the second is the first, which is gone by then.
    if (!Object.hasOwn(fields, key)) continue;
    const given = normaliseParameters(fields[key]);
    if (isJsonObject(given)) assignParameters(merged, given);
    else refused = given;
    delete fields[key];
  }
  if (typeof fields['model'] === 'string') {
    const { model, parameters } = splitModelSuffixes(fields['model']);
    fields['model'] = model;
    assignParameters(merged, parameters);
  }
  const asked = refused ?? merged;
  if (!isJsonObject(asked) || Object.keys(asked).length > 0) fields['svc_parameters'] = asked;
}

function assignParameters(into: Record<string, unknown>, from: JsonObject): void {
  for (const [key, value] of Object.entries(from)) {
    if (value !== undefined && value !== null && isParameterName(key)) into[key] = value;
  }
}
