/**
 * Converts the tools of a request for engines, and maps an engine's call back to the tool that the
 * caller declared. Hosted tools other than web search are left out; a `tool_choice` that requires
 * one is rejected.
 */
import * as z from 'zod';
import type { JsonObject } from '../../json/json-scan.ts';
import { jsonObjects } from '../../json/json-text.ts';
import { refuseMember } from '../../json/validation.ts';
import { engineToolName, NO_PARAMETERS } from '../agents/engine-values.ts';
import type { ChatBody, ChatTool } from '../wire/chat-schema.ts';
import { isSearchTool } from '../wire/svc-parameters.ts';
import { checkPart, type Place } from './check-part.ts';
import type { ResponsesBody } from './request-schema.ts';

export interface DeclaredTool {
  readonly kind: 'function' | 'custom';
  readonly name: string;
  readonly namespace: string | undefined;
}

export interface ToolPlan {
  readonly tools: readonly ChatTool[];
  readonly choice: ChatBody['tool_choice'];
  /** Whether the search of this server is offered (`auto`) or required (`on`). */
  readonly search: 'auto' | 'on' | undefined;
  readonly declared: ReadonlyMap<string, DeclaredTool>;
  readonly echo: { readonly tools: readonly JsonObject[]; readonly choice: unknown };
}

const NAMED = { name: z.string().min(1), description: z.string().nullish() };
const FunctionTool = z.looseObject({
  ...NAMED,
  parameters: z.record(z.string(), z.unknown()).nullish(),
  strict: z.boolean().nullish(),
});
const CustomTool = z.looseObject({
  ...NAMED,
  format: z
    .looseObject({
      type: z.string(),
      syntax: z.string().nullish(),
      definition: z.string().nullish(),
    })
    .nullish(),
});
const Namespace = z.looseObject({
  name: z.string().min(1),
  tools: z.array(z.looseObject({ type: z.string().nullish() })),
});

const CUSTOM_PARAMETERS = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The input of the tool, as plain text' } },
  required: ['input'],
  additionalProperties: false,
};

interface Gathered {
  readonly tools: ChatTool[];
  readonly declared: Map<string, DeclaredTool>;
  readonly echo: JsonObject[];
  hasSearch: boolean;
}

export function planTools(body: ResponsesBody): ToolPlan {
  const all: Gathered = { tools: [], declared: new Map(), echo: [], hasSearch: false };
  for (const [at, tool] of (body.tools ?? []).entries()) addTool(all, tool, ['tools', at]);
  const wanted = choiceOf(body.tool_choice ?? 'auto', all);
  const { only } = wanted;
  const tools =
    only === undefined ? all.tools : all.tools.filter((tool) => only.has(tool.function.name));
  const isOffered = all.hasSearch && wanted.choice !== 'none' && only?.has(SEARCH) !== false;
  const isOnly = isOffered && wanted.choice === 'required' && tools.length === 0;
  return {
    tools,
    choice: tools.length === 0 || wanted.isSearch ? undefined : wanted.choice,
    search: wanted.isSearch || isOnly ? 'on' : isOffered ? 'auto' : undefined,
    declared: all.declared,
    echo: { tools: all.echo, choice: body.tool_choice ?? 'auto' },
  };
}

/** Represents the search of this server among tool names, which contain no space. */
const SEARCH = 'web search';

function addTool(all: Gathered, tool: JsonObject, place: Place): void {
  const { type } = tool;
  if (isSearchTool(type)) {
    all.echo.push(tool);
    // `false` requests a cached index, which this server does not have.
    all.hasSearch ||= tool['external_web_access'] !== false;
    return;
  }
  if (type === 'namespace') {
    const { name, tools } = checkPart(Namespace, tool, place);
    all.echo.push(tool);
    for (const [at, one] of tools.entries()) {
      addCallable(all, one, { place: [...place, 'tools', at], namespace: name });
    }
    return;
  }
  const added = addCallable(all, tool, { place, namespace: undefined });
  if (added !== undefined) all.echo.push(added);
}

/** Adds a tool that can be called; returns it as the response echoes it. */
function addCallable(
  all: Gathered,
  tool: JsonObject,
  { place, namespace }: { readonly place: Place; readonly namespace: string | undefined },
): JsonObject | undefined {
  const type = tool['type'] ?? 'function';
  if (type === 'function') {
    const { name, description, parameters, strict } = checkPart(FunctionTool, tool, place);
    add(all, { kind: 'function', name, namespace }, description, {
      parameters: parameters ?? NO_PARAMETERS,
      ...(strict === undefined || strict === null ? {} : { strict }),
    });
    const shown = { description: description ?? null, parameters: parameters ?? null };
    return { ...tool, type, ...shown, strict: strict ?? null };
  }
  if (type !== 'custom') return undefined;
  const { name, description, format } = checkPart(CustomTool, tool, place);
  const grammar = format?.definition
    ? `The input must follow this ${format.syntax ?? 'formal'} grammar:\n${format.definition}`
    : undefined;
  const about = [description, grammar].filter(Boolean).join('\n\n');
  add(all, { kind: 'custom', name, namespace }, about, { parameters: CUSTOM_PARAMETERS });
  return tool;
}

/** The first of several tools with one name is used. */
function add(
  all: Gathered,
  declared: DeclaredTool,
  description: string | null | undefined,
  rest: { readonly parameters: Record<string, unknown>; readonly strict?: boolean },
): void {
  const name = engineToolName(declared.name, declared.namespace);
  if (all.declared.has(name)) return;
  all.declared.set(name, declared);
  const about = description ? { description } : {};
  all.tools.push({ type: 'function', function: { name, ...about, ...rest } });
}

interface Choice {
  readonly choice: ChatBody['tool_choice'];
  readonly isSearch: boolean;
  readonly only: ReadonlySet<string> | undefined;
}

const WORDS = ['auto', 'none', 'required'] as const;

function choiceOf(choice: NonNullable<ResponsesBody['tool_choice']>, all: Gathered): Choice {
  const place = ['tool_choice'];
  if (typeof choice === 'string') {
    const word = WORDS.find((one) => one === choice);
    if (word === undefined) throw refuseMember(place, `Expected one of ${WORDS.join(', ')}`);
    return { choice: word, isSearch: false, only: undefined };
  }
  const { type } = choice;
  if (isSearchTool(type)) return { choice: undefined, isSearch: true, only: undefined };
  if (type === 'allowed_tools') {
    const listed = jsonObjects(choice['tools']);
    const only = listed.map((one) => (isSearchTool(one['type']) ? SEARCH : nameOf(one)));
    const mode = choice['mode'] === 'required' ? 'required' : 'auto';
    return { choice: mode, isSearch: false, only: new Set(only) };
  }
  if (type !== 'function' && type !== 'custom') {
    throw refuseMember(place, `Tools of type ${type.slice(0, 50)} are not supported`);
  }
  const name = nameOf(choice);
  if (!all.declared.has(name)) {
    throw refuseMember([...place, 'name'], 'Expected the name of one of the tools');
  }
  const chosen = { type: 'function' as const, function: { name } };
  return { choice: chosen, isSearch: false, only: undefined };
}

function nameOf(tool: JsonObject): string {
  const { name, namespace } = tool;
  if (typeof name !== 'string') return '';
  return engineToolName(name, typeof namespace === 'string' ? namespace : '');
}
