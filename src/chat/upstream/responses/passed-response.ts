/**
 * The response of an engine of the Responses protocol, as the caller receives it: the engine's bytes
 * with the id, the model and the cost of this server, and the members that the caller's request had.
 * If the response is stored, its items have ids of this server, by which the caller may refer to
 * them.
 */
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { withValues } from '../../../json/json-splice.ts';
import { jsonObjects, parsedJsonObject } from '../../../json/json-text.ts';
import { readUsage, type TokenUsage } from '../../../engines/usage.ts';
import { costMembers, type ResponseEnd } from '../../wire/chat-response.ts';
import { cutText, noOutput, type OutputTally, textBytes } from '../../wire/chat-choice.ts';

export interface PassedFrame {
  readonly requestId: string;
  readonly model: string;
  readonly serviceName: string;
  /** Every member of a response, for those that the engine omits; its id is that of the caller. */
  readonly defaults: JsonObject;
  /** Whether the response can be stored; `undefined` if it is not to be. */
  readonly fits: ((responseJson: string) => boolean) | undefined;
}

/** The bytes of a response object of the engine; `end` is set once the charge is known. */
export function shownResponse(bytes: Buffer, frame: PassedFrame, end?: ResponseEnd): Buffer {
  const { fits } = frame;
  const shown = writtenResponse(bytes, frame, { isStored: fits !== undefined, end });
  if (end === undefined || fits === undefined || fits(shown.toString())) return shown;
  return writtenResponse(bytes, frame, { isStored: false, end });
}

interface ResponseState {
  readonly isStored: boolean;
  readonly end: ResponseEnd | undefined;
}

function writtenResponse(bytes: Buffer, frame: PassedFrame, state: ResponseState): Buffer {
  const body = parsedJsonObject(bytes.toString()) ?? {};
  const shown = withValues(bytes, body, changedMembers(body, frame, state));
  return frame.fits === undefined ? shown : withOwnIds(shown, body['output'], frame);
}

function changedMembers(
  response: JsonObject,
  frame: PassedFrame,
  { isStored, end }: ResponseState,
): JsonObject {
  const { defaults, model, serviceName } = frame;
  const absent = Object.entries(defaults).filter(([name]) => !Object.hasOwn(response, name));
  const members: Record<string, unknown> = {
    ...Object.fromEntries(absent),
    id: defaults['id'],
    model,
    store: isStored,
    previous_response_id: defaults['previous_response_id'],
  };
  for (const name of ['metadata', 'prompt_cache_key']) members[name] = defaults[name];
  if (end !== undefined) {
    if (!isSameUsage(response['usage'], end.usage)) members['usage'] = responsesUsage(end.usage);
    Object.assign(members, costMembers(serviceName, end));
  }
  return members;
}

/** The billed usage replaces that of the engine if it differs. */
function isSameUsage(given: unknown, billed: TokenUsage): boolean {
  const usage = readUsage(given);
  return (
    usage !== undefined &&
    usage.promptTokens === billed.promptTokens &&
    usage.completionTokens === billed.completionTokens &&
    usage.cachedTokens === billed.cachedTokens
  );
}

export function responsesUsage(usage: TokenUsage): JsonObject {
  const { promptTokens, completionTokens, cachedTokens, cacheWriteTokens, reasoningTokens } = usage;
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: cacheWriteTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}

function withOwnIds(bytes: Buffer, output: unknown, { requestId }: PassedFrame): Buffer {
  let text = bytes.toString();
  for (const [index, item] of (Array.isArray(output) ? output : []).entries()) {
    if (isJsonObject(item)) text = withOwnId(text, item['id'], index, requestId);
  }
  return Buffer.from(text);
}

/** Quotes within texts are escaped in JSON, so the pattern matches members only. */
export function withOwnId(text: string, id: unknown, index: unknown, requestId: string): string {
  if (typeof id !== 'string' || id === '') return text;
  const member = new RegExp(`("(?:item_)?id"\\s*:\\s*)${escaped(JSON.stringify(id))}`, 'g');
  const kind = /^[a-z]{1,8}(?=_)/.exec(id)?.[0] ?? 'item';
  return text.replace(member, `$1"${kind}_${requestId}_${String(index)}"`);
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
}

/** Text members of an item, each with the kind of output that it counts as. */
const TEXTS: Readonly<Record<string, keyof OutputTally>> = {
  text: 'contentBytes',
  refusal: 'contentBytes',
  arguments: 'toolBytes',
  input: 'toolBytes',
  name: 'toolBytes',
};

export function itemsTally(output: readonly JsonObject[]): OutputTally {
  const tally = noOutput();
  for (const item of output) {
    eachText(item, (holder, name) => {
      const kind =
        item['type'] === 'reasoning' ? 'reasoningBytes' : (TEXTS[name] ?? 'contentBytes');
      tally[kind] += textBytes(holder[name]);
    });
  }
  return tally;
}

/** Cuts the texts of these items at a number of bytes; items after it are left out. */
export function cutItems(output: readonly JsonObject[], mostBytes: number): JsonObject[] {
  let leftBytes = mostBytes;
  const kept: JsonObject[] = [];
  for (const item of output) {
    if (leftBytes <= 0) break;
    const copy = structuredClone(item) as Record<string, unknown>; // a copy of a JSON object
    let isCut = false;
    eachText(copy, (holder, name) => {
      const given = String(holder[name]);
      const text = cutText(given, leftBytes);
      leftBytes -= textBytes(text);
      isCut ||= text !== given;
      holder[name] = text;
    });
    kept.push(isCut && copy['status'] !== undefined ? { ...copy, status: 'incomplete' } : copy);
  }
  return kept;
}

function eachText(
  item: JsonObject,
  visit: (holder: Record<string, unknown>, name: string) => void,
): void {
  for (const holder of [item, ...jsonObjects(item['summary']), ...jsonObjects(item['content'])]) {
    for (const name in TEXTS) {
      if (typeof holder[name] === 'string') visit(holder, name);
    }
  }
}
