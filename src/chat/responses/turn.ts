/** Converts the body of `POST /responses` and the stored turns before it to a chat request. */
import { Fault } from '../../core/faults.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { jsonObjects, stringOrEmpty } from '../../json/json-text.ts';
import { refuseMember } from '../../json/validation.ts';
import { effortOf } from '../agents/engine-values.ts';
import type { Sealer } from '../agents/sealed-text.ts';
import { Transcript } from '../agents/transcript.ts';
import { type ChatRequest, chatRequestOf } from '../wire/chat-request.ts';
import type { PassedItems } from '../upstream/responses/passed-request.ts';
import { agentParameters } from '../wire/svc-parameters.ts';
import { checkPart } from './check-part.ts';
import { readItems } from './input-items.ts';
import { JsonSchemaFormat, type ResponsesBody } from './request-schema.ts';
import type { StoredTurn, StoredTurns } from './stored-turns.ts';
import { planTools, type ToolPlan } from './tools.ts';

export interface Turn {
  readonly body: ResponsesBody;
  readonly request: ChatRequest;
  readonly tools: ToolPlan;
  readonly items: readonly JsonObject[];
  readonly callIds: ReadonlySet<string>;
  /** For an engine of the same protocol. */
  readonly passed: PassedItems;
}

interface TurnParts {
  readonly sealer: Sealer;
  readonly turns: StoredTurns;
  readonly serviceName: string;
  readonly canSearch: boolean;
}

export async function readTurn(
  parts: TurnParts,
  body: ResponsesBody,
  accountId: string,
): Promise<Turn> {
  refuseUnsupported(body);
  const items = itemsOf(body.input);
  const { previous_response_id } = body;
  const chain = previous_response_id
    ? await parts.turns.chain(previous_response_id, accountId)
    : [];
  const ids = new Set<string>();
  const earlier = chain.map((turn) => {
    return { ...turn, input: turn.input.filter((item) => isFirstReference(item, ids)) };
  });
  const transcript = new Transcript();
  transcript.system(body.instructions ?? '');
  const referenced = await referencedItems(
    parts.turns,
    ids.union(ownReferences(items)),
    earlier,
    accountId,
  );
  const reader = { transcript, sealer: parts.sealer, accountId, referenced };
  const history: JsonObject[] = [];
  for (const { input, response } of earlier) {
    await readItems(reader, input, { place: ['previous_response_id'], isOwn: false });
    const output = jsonObjects(response['output']);
    await readItems(reader, output, { place: ['previous_response_id'], isOwn: true });
    for (const list of [input, output]) for (const item of list) history.push(item);
  }
  await readItems(reader, items, { place: ['input'], isOwn: false });
  const messages = transcript.messages();
  if (messages.length === 0) throw refuseMember(['input'], 'At least one message is needed');
  const tools = planTools(body);
  const request = chatRequestOf(chatBody(parts, body, { messages, tools }), parts);
  const markedMessages = transcript.hasMarks ? transcript.messages(true) : undefined;
  const { callIds } = transcript;
  const passed = { history, referenced };
  return { body, request: { ...request, markedMessages }, tools, items, callIds, passed };
}

/** Rejects parameters that would change the result and are not supported. */
function refuseUnsupported(body: ResponsesBody): void {
  const asked = [
    ['background', body.background === true],
    ['conversation', (body['conversation'] ?? null) !== null],
    ['prompt', (body['prompt'] ?? null) !== null],
    ['stop', (body['stop'] ?? null) !== null],
  ] as const;
  for (const [name, isAsked] of asked) {
    if (!isAsked) continue;
    throw new Fault('UNSUPPORTED_PARAMETER', {
      message: `The parameter ${name} is not supported; omit it`,
      fields: { issues: [{ code: 'custom', path: [name], message: 'Not supported' }] },
    });
  }
}

function itemsOf(input: ResponsesBody['input']): JsonObject[] {
  if (typeof input !== 'string') return (input ?? []).map(withType);
  const content = [{ type: 'input_text', text: input }];
  return [{ type: 'message', role: 'user', content }];
}

/** The type of a reference is optional. */
function withType(item: JsonObject): JsonObject {
  const { type, role, id } = item;
  const isReference = typeof type !== 'string' && role === undefined && typeof id === 'string';
  return isReference ? { ...item, type: 'item_reference' } : item;
}

/** Stored items that the input refers to by id, as some clients do for reasoning. */
async function referencedItems(
  turns: StoredTurns,
  ids: ReadonlySet<string>,
  earlier: readonly StoredTurn[],
  accountId: string,
): Promise<ReadonlyMap<string, JsonObject>> {
  const found = new Map<string, JsonObject>();
  if (ids.size === 0) return found;
  const known = new Map(earlier.map((turn) => [turn.id, turn]));
  const responseIds = new Set([...ids].flatMap((id) => responseIdOfItem(id) ?? []));
  const missing = [...responseIds].filter((id) => !known.has(id));
  const others = await turns.some(missing, accountId);
  for (const responseId of responseIds) {
    const turn = known.get(responseId) ?? others.get(responseId);
    for (const item of jsonObjects(turn?.response['output'])) {
      if (typeof item['id'] === 'string') found.set(item['id'], item);
    }
  }
  return found;
}

/** The items that the input refers to. Throws 400 if it refers to one twice. */
function ownReferences(items: readonly JsonObject[]): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const [at, item] of items.entries()) {
    if (isFirstReference(item, ids)) continue;
    const id = stringOrEmpty(item['id']).slice(0, 100);
    const message = `The item ${id} is in the input twice; remove the duplicate`;
    throw refuseMember(['input', at, 'id'], message);
  }
  return ids;
}

/**
 * Adds the id of a reference to `seen`. Returns `false` for a second reference to an item: a short
 * input that names one item a thousand times would expand to gigabytes.
 */
function isFirstReference({ type, id }: JsonObject, seen: Set<string>): boolean {
  if (type !== 'item_reference' || typeof id !== 'string') return true;
  if (seen.has(id)) return false;
  seen.add(id);
  return true;
}

/** Item ids contain the id of their request: `rs_<32 hex>_0`. */
function responseIdOfItem(id: string): string | undefined {
  const requestId = /^[a-z]+_([\da-f]{32})_\d+$/.exec(id)?.[1];
  return requestId && responseIdOf(requestId);
}

export function responseIdOf(requestId: string): string {
  return `resp_${requestId}`;
}

const LOGPROBS = 'message.output_text.logprobs';

function chatBody(
  parts: TurnParts,
  body: ResponsesBody,
  { messages, tools }: { readonly messages: readonly unknown[]; readonly tools: ToolPlan },
): JsonObject {
  const top = body.top_logprobs ? { top_logprobs: body.top_logprobs } : undefined;
  const hasLogprobs = top !== undefined || body.include?.includes(LOGPROBS) === true;
  // A search that is only offered needs a search provider; a demanded one is rejected without it.
  const search = tools.search === 'auto' && !parts.canSearch ? undefined : tools.search;
  return {
    model: body.model,
    messages,
    stream: body.stream ?? false,
    tools: tools.tools.length === 0 ? undefined : tools.tools,
    tool_choice: tools.choice,
    parallel_tool_calls: body.parallel_tool_calls,
    max_completion_tokens: body.max_output_tokens,
    temperature: body.temperature,
    top_p: body.top_p,
    presence_penalty: body.presence_penalty,
    frequency_penalty: body.frequency_penalty,
    ...(hasLogprobs && { logprobs: true, ...top }),
    response_format: formatOf(body.text?.format),
    verbosity: body.text?.verbosity,
    reasoning_effort: effortOf(body.reasoning?.effort),
    prompt_cache_key: body.prompt_cache_key,
    prompt_cache_retention: body.prompt_cache_retention === '24h' ? '24h' : undefined,
    metadata: body.metadata,
    service_tier: body.service_tier,
    svc_parameters: agentParameters(body, parts.serviceName, search),
  };
}

function formatOf(format: JsonObject | null | undefined): JsonObject | undefined {
  if (!format || format['type'] === 'text') return undefined;
  if (format['type'] !== 'json_schema') return { type: format['type'] };
  const { name, description, strict, schema } = checkPart(JsonSchemaFormat, format, [
    'text',
    'format',
  ]);
  const about = description ? { description } : {};
  const isStrict = strict === undefined || strict === null ? {} : { strict };
  return { type: 'json_schema', json_schema: { name, schema, ...about, ...isStrict } };
}
