/**
 * Rewrites top-level members of other APIs before validation: aliases, nulls, tools, `tool_choice`,
 * `response_format`, service parameters and model suffixes. An unchanged member keeps its identity.
 */
import { canonicalMessages } from './foreign-messages.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { jsonObjects, withoutNulls } from '../../json/json-text.ts';
import { functionName } from './chat-choice.ts';
import { isSearchTool, takeParameters } from './svc-parameters.ts';
import { refuseMember } from '../../json/validation.ts';

const ALIASES: readonly (readonly [alias: string, name: string])[] = [
  ['input', 'messages'],
  ['max_output_tokens', 'max_tokens'],
  ['promptCacheKey', 'prompt_cache_key'],
];

type Fields = Record<string, unknown>;

export function canonicalFields(body: JsonObject, serviceName: string): Fields {
  const fields: Fields = {};
  for (const key in body) {
    const value = body[key];
    // `null` means absent; a `__proto__` member would change the prototype.
    if (value !== null && value !== undefined && key !== '__proto__') fields[key] = value;
  }
  const { input } = fields;
  if (typeof input === 'string') fields['input'] = [{ role: 'user', content: input }];
  for (const [alias, name] of ALIASES) {
    if (!Object.hasOwn(fields, alias)) continue;
    fields[name] ??= fields[alias];
    delete fields[alias];
  }
  rewriteCaps(fields);
  rewriteText(fields);
  takeParameters(fields, serviceName, rewriteTools(fields));
  if (Object.hasOwn(fields, 'messages')) fields['messages'] = canonicalMessages(fields['messages']);
  return fields;
}

/** Values <= 0 mean the model's default. */
function rewriteCaps(fields: Fields): void {
  for (const key of ['max_tokens', 'max_completion_tokens']) {
    const value = fields[key];
    if (typeof value === 'number' && value <= 0) delete fields[key];
  }
  if (Array.isArray(fields['stop']) && fields['stop'].length === 0) delete fields['stop'];
}

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
    const given = withoutNulls(inner);
    if (typeof given['name'] !== 'string') {
      return { ...format, json_schema: { ...given, name: DEFAULT_SCHEMA_NAME } };
    }
    return given === inner ? format : { ...format, json_schema: given };
  }
  const { name, description: _description, strict: _strict, schema: _absent, ...keywords } = inner;
  if (typeof name === 'string' && Object.keys(keywords).length === 0) return format;
  return { type: 'json_schema', json_schema: { name: DEFAULT_SCHEMA_NAME, schema: inner } };
}

const DEFAULT_SCHEMA_NAME = 'response';

function flatFormat(format: JsonObject): JsonObject {
  const { type, json_schema: _absent, ...inner } = format;
  return { type, json_schema: { name: DEFAULT_SCHEMA_NAME, ...withoutNulls(inner) } };
}

/** Converts the tools; removes search tools from the list and returns them as parameters. */
function rewriteTools(fields: Fields): Fields {
  const { tools } = fields;
  const asked: Fields = {};
  if (Array.isArray(tools)) {
    const kept: unknown[] = [];
    for (const tool of tools as readonly unknown[]) {
      const type = isJsonObject(tool) ? tool['type'] : undefined;
      if (isSearchTool(type)) {
        asked['enable_web_search'] = 'auto';
      } else if (type === 'x_search') asked['enable_x_search'] = true;
      else kept.push(canonicalTool(tool));
    }
    const same = kept.length === tools.length && kept.every((tool, at) => tool === tools[at]);
    if (kept.length === 0) delete fields['tools'];
    else if (!same) fields['tools'] = kept;
  }
  const choice = canonicalChoice(fields['tool_choice']);
  if (isJsonObject(choice) && choice['type'] === 'allowed_tools') {
    Object.assign(fields, allowedTools(choice['allowed_tools'], fields['tools']));
    return {};
  }
  if (!Object.hasOwn(fields, 'tools')) {
    delete fields['parallel_tool_calls'];
    const isForced = choice !== undefined && choice !== 'auto' && choice !== 'none';
    if (isForced && asked['enable_web_search'] !== undefined) asked['enable_web_search'] = 'on';
    // Several engines reject a tool choice without tools.
    if (!isForced || Object.keys(asked).length > 0) delete fields['tool_choice'];
    else fields['tool_choice'] = choice;
  } else if (Object.hasOwn(fields, 'tool_choice')) {
    fields['tool_choice'] = choice;
  }
  // A search is a call of a tool too.
  return choice === 'none' ? {} : asked;
}

/** The allowed ones of the tools, and the mode as the choice. */
function allowedTools(allowed: unknown, tools: unknown): Fields {
  const { mode, tools: listed } = isJsonObject(allowed) ? allowed : {};
  const names = new Set(jsonObjects(listed).map(functionName));
  const given = jsonObjects(tools);
  const known = new Set(given.map(functionName));
  const isMode = mode === 'auto' || mode === 'required';
  if (!isMode || names.size === 0 || names.has(undefined) || !names.isSubsetOf(known)) {
    const message =
      'Expected allowed_tools with the mode auto or required, and with functions that are among the tools';
    throw refuseMember(['tool_choice'], message);
  }
  return { tool_choice: mode, tools: given.filter((tool) => names.has(functionName(tool))) };
}

function canonicalTool(tool: unknown): unknown {
  if (!isJsonObject(tool)) return tool;
  if (isJsonObject(tool['function'])) {
    const given = withoutNulls(tool);
    const made = withoutNulls(tool['function']);
    if (given['type'] !== undefined && given === tool && made === tool['function']) return tool;
    return { type: 'function', ...given, function: made };
  }
  const { type, name, description = null, parameters, input_schema = null, strict = null } = tool;
  const kind = type ?? 'function';
  if ((kind !== 'function' && kind !== 'custom') || typeof name !== 'string') return tool;
  const members = { name, description, parameters: parameters ?? input_schema, strict };
  return { type: 'function', function: withoutNulls(members) };
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
