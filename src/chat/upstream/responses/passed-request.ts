/**
 * The body of `POST /responses` for an engine of the same protocol: the caller's bytes, with the
 * stored conversation in place of `previous_response_id`. The engine stores nothing and runs no tool
 * itself, because the hold does not cover hosted tools.
 */
import { isJsonObject, type JsonObject, type ParsedObject } from '../../../json/json-scan.ts';
import { spliceObject } from '../../../json/json-splice.ts';
import { jsonObjects } from '../../../json/json-text.ts';
import { isSealed } from '../../agents/sealed-text.ts';
import { BEYOND_HOLD } from '../../wire/engine-request.ts';
import type { PassOptions } from '../upstream.ts';
import { SEALED_REASONING } from './chat-to-responses.ts';

/** Tools that the caller runs. */
const CALLERS_TOOLS = new Set<unknown>([
  'apply_patch',
  'custom',
  'function',
  'local_shell',
  'namespace',
  'tool_search',
]);

/** Members for this server, and those that an engine would act on beyond the hold. */
const LEFT_OUT = {
  ...BEYOND_HOLD,
  background: undefined,
  context_management: undefined,
  max_tool_calls: undefined,
  metadata: undefined,
  previous_response_id: undefined,
  prompt_cache_key: undefined,
  svc_parameters: undefined,
  user: undefined,
};

export interface PassedItems {
  /** Items of the stored turns before the input, oldest first. */
  readonly history: readonly JsonObject[];
  /** Stored items by id. */
  readonly referenced: ReadonlyMap<unknown, JsonObject>;
}

interface PassedTarget extends Omit<PassOptions, 'refusal'> {
  readonly serviceName: string;
  /** Whether the engine can read the encrypted reasoning; that of another provider is rejected. */
  readonly hasReasoning: boolean;
}

export function passedRequest(
  source: ParsedObject,
  { history, referenced }: PassedItems,
  target: PassedTarget,
): Buffer {
  const { input, tools, include, text } = source.body;
  const own = typeof input === 'string' ? [textInput(input)] : jsonObjects(input);
  const expanded = (item: JsonObject, isStored: boolean): JsonObject[] => {
    if (item['type'] === 'item_reference') {
      const stored = referenced.get(item['id']);
      return stored === undefined ? [] : expanded(stored, true);
    }
    const sent = isStored ? storedItem(item) : item;
    return sent !== undefined && isReadable(sent) ? [withCallersTools(sent)] : [];
  };
  const items = [
    ...history.flatMap((item) => expanded(item, true)),
    ...own.flatMap((item) => expanded(item, false)),
  ].filter(({ type }) => target.hasReasoning || type !== 'reasoning');
  const isText = typeof input === 'string' && history.length === 0;
  const kept = callersTools(tools);
  const included = Array.isArray(include) ? (include as readonly unknown[]) : [];
  const changed: Record<string, unknown> = {
    ...source.body,
    ...LEFT_OUT,
    service_tier: target.serviceTier,
    [`${target.serviceName}_parameters`]: undefined,
    model: target.model,
    max_output_tokens: target.maxOutputTokens,
    input: isText ? input : items,
    tools: kept,
    include: included.includes(SEALED_REASONING) ? include : [...included, SEALED_REASONING],
    text: engineText(text),
    store: false,
  };
  if (kept !== tools && Array.isArray(kept) && kept.length === 0) {
    for (const name of ['tools', 'tool_choice', 'parallel_tool_calls']) changed[name] = undefined;
  }
  if (target.promptCacheKey !== undefined) changed['prompt_cache_key'] = target.promptCacheKey;
  for (const name of target.dialect.leaveOut) changed[name] = undefined;
  return spliceObject(source, changed);
}

/** Engines of this protocol have no verbosity `auto`, which is the default of this server. */
function engineText(text: unknown): unknown {
  return isJsonObject(text) && text['verbosity'] === 'auto'
    ? { ...text, verbosity: undefined }
    : text;
}

/** Returns the same list if every tool is kept. */
function callersTools(tools: unknown): unknown {
  if (!Array.isArray(tools)) return tools;
  const kept = tools.filter((tool) => isJsonObject(tool) && CALLERS_TOOLS.has(tool['type']));
  return kept.length === tools.length ? tools : kept;
}

/** Items can define tools too, such as `additional_tools` and `tool_search_output`. */
function withCallersTools(item: JsonObject): JsonObject {
  const { tools } = item;
  const kept = callersTools(tools);
  return kept === tools ? item : { ...item, tools: kept };
}

function textInput(text: string): JsonObject {
  return { type: 'message', role: 'user', content: text };
}

/** An engine does not know ids of this server, and nothing of its own is stored. */
function storedItem(item: JsonObject): JsonObject | undefined {
  // A search by this server: its results are not stored.
  if (item['type'] === 'web_search_call') return undefined;
  const { id: _ours, ...rest } = item;
  return rest;
}

/** Reasoning without encrypted content is not stored anywhere; sealed reasoning is of this server. */
function isReadable({ type, encrypted_content: data, content }: JsonObject): boolean {
  if (type !== 'reasoning') return true;
  if (typeof data === 'string') return !isSealed(data);
  return Array.isArray(content) && content.length > 0;
}

/**
 * Bytes of items that a chat request does not have, but that count as prompt tokens of an engine of
 * the protocol.
 */
export function passedBytes(items: readonly JsonObject[]): number {
  let sizeBytes = 0;
  for (const item of items) {
    const { type = 'message' } = item;
    if (!KNOWN_ITEMS.has(type) && isReadable(item))
      sizeBytes += Buffer.byteLength(JSON.stringify(item));
  }
  return sizeBytes;
}

const KNOWN_ITEMS = new Set<unknown>([
  'message',
  'function_call',
  'custom_tool_call',
  'function_call_output',
  'custom_tool_call_output',
  'item_reference',
]);
