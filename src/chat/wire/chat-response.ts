/**
 * Reads a non-streaming chat response of an engine (`readChatResponse`) and writes it for the
 * caller (`writeChatResponse`) once the charge is known. Unchanged members keep the engine's bytes.
 */
import { isAscii } from 'node:buffer';
import { Fault } from '../../core/faults.ts';
import { bytesAtMost } from '../../core/token-count.ts';
import {
  addTally,
  argumentsText,
  cutMessage,
  finishReason,
  isInterrupted,
  functionOf,
  noOutput,
  outputBytes,
  type OutputTally,
  reasoningOf,
  safeLogprobs,
  tallyOf,
  toolCallsOf,
  canonicalMessage,
  withoutUsage,
} from './chat-choice.ts';
import { childrenOf, isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { textWithMembers, withMembers } from '../../json/json-splice.ts';
import { jsonObjects } from '../../json/json-text.ts';
import { CHUNK_OBJECT } from './chunk-layout.ts';
import { SVC_PARAMETER_DEFAULTS, type SvcParameters } from './svc-parameters.ts';
import { stripThinkTags } from './think-tags.ts';
import {
  chatUsageText,
  readUsage,
  type Cost,
  type ReportedUsage,
  type TokenUsage,
} from '../../engines/usage.ts';
import type { FoundDocument, RawResult, SearchResult } from '../web/web.ts';

interface ResponseSource {
  readonly bytes: Buffer;
  readonly body: JsonObject;
  /** The bytes of a short response as latin1. */
  readonly text?: string | undefined;
}

export interface ChatResponse {
  readonly source: ResponseSource;
  readonly choices: readonly JsonObject[];
  readonly reported: ReportedUsage | undefined;
  readonly tally: Readonly<OutputTally>;
  /** Results of the engine's own search, if citations are requested. */
  readonly cited?: readonly RawResult[] | undefined;
}

export interface ResponseOptions {
  readonly choiceCount: number;
  /** The grant of one choice, at which its text is truncated. */
  readonly maxOutputTokens: number;
  readonly stripThinkTags: boolean;
  /** Whether to omit reasoning that the engine returned although it was turned off. */
  readonly dropReasoning: boolean;
  readonly readsCitations?: boolean | undefined;
}

export interface ResponseEnd {
  readonly usage: TokenUsage;
  readonly cost: Cost;
  readonly parameters: SvcParameters;
  readonly citations: readonly SearchResult[];
}

export interface ResponseFrame {
  readonly id: string;
  readonly model: string;
  /** Unix seconds; engines differ in value and unit. */
  readonly createdS: number;
  readonly serviceName: string;
  /** Search results to return as a tool call before those of the engine. */
  readonly documents?: readonly FoundDocument[] | undefined;
}

/** The members by which every protocol reports the charge and the effective parameters. */
export function costMembers(
  serviceName: string,
  { cost, parameters, citations }: ResponseEnd,
): JsonObject {
  return { cost, [`${serviceName}_parameters`]: echoOf(parameters, citations) };
}

export function documentsCall(
  serviceName: string,
  documents: readonly FoundDocument[],
): JsonObject {
  const name = `${serviceName}_web_search_documents`;
  const made = { name, arguments: JSON.stringify({ documents }) };
  return { id: 'web_search_call', type: 'function', function: made };
}

function garbage(cause: unknown): Fault {
  const message = 'The engine returned something that is not a chat completion';
  return new Fault('INFERENCE_FAILED', { message, cause });
}

/** Shorter responses are changed as text, which takes fewer copies. */
const TEXT_BYTES = 8 * 1_024;

/** Throws `INFERENCE_FAILED` if the bytes are no chat completion. */
export function readChatResponse(bytes: Buffer, options: ResponseOptions): ChatResponse {
  const text = bytes.length <= TEXT_BYTES ? bytes.toString('latin1') : undefined;
  let body: unknown;
  try {
    body = JSON.parse(text !== undefined && isAscii(bytes) ? text : bytes.toString());
  } catch (cause) {
    // The parser's message quotes the response, so it stays internal.
    throw garbage(cause);
  }
  if (!isJsonObject(body)) throw garbage('no choices');
  return readChatBody({ bytes, body, text }, options);
}

/** Reads a chat completion that is parsed. Throws `INFERENCE_FAILED` if it has no choices. */
export function readChatBody(source: ResponseSource, options: ResponseOptions): ChatResponse {
  const { body } = source;
  if (!Array.isArray(body['choices']) || body['choices'].length === 0) throw garbage('no choices');
  const given: readonly unknown[] = body['choices'];
  const count = Math.min(given.length, options.choiceCount);
  const output: ReadOutput = { tally: undefined };
  let changed = count === given.length ? undefined : given.slice(0, count);
  for (let index = 0; index < count; index += 1) {
    const choice = readChoice(given[index], index, options, output);
    if (choice === given[index]) continue;
    changed ??= given.slice();
    changed[index] = choice;
  }
  const choices = (changed ?? given) as readonly JsonObject[]; // each was read
  const tally = output.tally ?? noOutput();
  const usage = readUsage(body['usage']);
  const cited = options.readsCitations === true ? citedBy(body) : undefined;
  return {
    source,
    choices,
    reported:
      usage === undefined
        ? undefined
        : { usage, atBytes: outputBytes(tally), tier: body['service_tier'] },
    tally,
    cited,
  };
}

interface ReadOutput {
  tally: OutputTally | undefined;
}

function readChoice(
  choice: unknown,
  index: number,
  options: ResponseOptions,
  output: ReadOutput,
): JsonObject {
  if (!isJsonObject(choice) || !isJsonObject(choice['message'])) {
    throw garbage('a choice without a message');
  }
  const original = choice['message'];
  const whole = canonicalMessage(original);
  const wholeCalls = toolCallsOf(whole);
  const size = tallyOf(whole, wholeCalls);
  const sizeBytes = outputBytes(size);
  const leftBytes = bytesAtMost(options.maxOutputTokens);
  const isCut = sizeBytes > leftBytes;
  const granted = isCut ? cutMessage(whole, leftBytes) : whole;
  const calls = isCut ? toolCallsOf(granted) : wholeCalls;
  const shown = isCut ? tallyOf(granted, calls) : size;
  if (output.tally === undefined) output.tally = shown;
  else addTally(output.tally, shown);
  const message = safeMessage(granted, calls, options);
  const given = choice['finish_reason'];
  if (sizeBytes === 0 && isInterrupted(given)) throw garbage('no completion');
  const reason = finishReason(isCut ? 'length' : given, calls.length > 0);
  // Log probabilities would be longer than the truncated text.
  const logprobs = isCut || !choice['logprobs'] ? null : safeLogprobs(choice['logprobs']);
  const isSame =
    message === original &&
    reason === given &&
    choice['usage'] === undefined &&
    choice['index'] === index &&
    choice['logprobs'] === logprobs &&
    choice['stop_reason'] !== undefined;
  if (isSame) return choice;
  const filled = { logprobs: null, stop_reason: null, ...withoutUsage(choice) };
  return { ...filled, logprobs, index, message, finish_reason: reason };
}

/** Adds every member that the SDKs read; returns the same object if none is missing. */
function safeMessage(
  message: JsonObject,
  calls: readonly JsonObject[],
  options: ResponseOptions,
): JsonObject {
  const given = message['content'] ?? null;
  const isStripped = options.stripThinkTags && typeof given === 'string';
  const content = isStripped ? stripThinkTags(given) : given;
  const reasoning_content = options.dropReasoning ? null : (reasoningOf(message) ?? null);
  const areSafe = Array.isArray(message['tool_calls']) && calls.every(isSafeCall);
  const tool_calls = areSafe ? message['tool_calls'] : calls.map(safeCall);
  const isSame =
    message['role'] === 'assistant' &&
    message['content'] === content &&
    message['reasoning_content'] === reasoning_content &&
    message['tool_calls'] === tool_calls;
  if (isSame) return message;
  const safe: Record<string, unknown> = { ...message };
  // Missing members are added in this order; existing ones keep their place.
  safe['role'] = 'assistant';
  safe['content'] = content;
  safe['reasoning_content'] = reasoning_content;
  safe['tool_calls'] = tool_calls;
  safe['refusal'] ??= null;
  if (options.dropReasoning) delete safe['reasoning_details'];
  return safe;
}

function isSafeCall(call: JsonObject): boolean {
  const { arguments: text } = functionOf(call);
  return typeof call['id'] === 'string' && call['type'] === 'function' && typeof text === 'string';
}

function safeCall(call: JsonObject, index: number): JsonObject {
  if (isSafeCall(call)) return call;
  const made = functionOf(call);
  const id = typeof call['id'] === 'string' && call['id'] !== '' ? call['id'] : `call_${index}`;
  const text = argumentsText(made['arguments']) || '{}';
  return { ...call, id, type: 'function', function: { ...made, arguments: text } };
}

/** Returns the caller's bytes; a string contains them as latin1. */
export function writeChatResponse(
  { source, choices }: ChatResponse,
  frame: ResponseFrame,
  end: ResponseEnd,
): Buffer | string {
  const { bytes, body, text } = source;
  const { documents } = frame;
  const shown = documents === undefined ? choices : withDocuments(choices, documents, frame);
  const isUnchanged = shown === body['choices'];
  const { serviceName } = frame;
  const { usage, cost } = end;
  const echo = echoText(end);
  const texts: Record<string, string> = {
    id: `"id":"${frame.id}"`,
    object: '"object":"chat.completion"',
    created: `"created":${frame.createdS}`,
    model: `"model":${JSON.stringify(frame.model)}`,
    usage: `"usage":${chatUsageText(usage)}`,
    cost: `"cost":{"usd":${cost.usd},"diem":${cost.diem}}`,
  };
  if (!isUnchanged) texts['choices'] = `"choices":${JSON.stringify(shown)}`;
  if ((body['prompt_logprobs'] ?? null) === null) {
    texts['prompt_logprobs'] = '"prompt_logprobs":null';
  }
  texts[`${serviceName}_parameters`] = `"${serviceName}_parameters":${echo}`;
  const areAscii = isUnchanged && echo === USUAL_ECHO && ASCII.test(frame.model);
  const written = areAscii && text !== undefined ? textWithMembers(text, body, texts) : undefined;
  return written ?? withMembers({ bytes, body, members: childrenOf(bytes).spans }, texts);
}

/** The last chunk of a stream, as JSON. */
export function usageChunkText(
  { id, model, createdS, serviceName }: ResponseFrame,
  end: ResponseEnd,
): string {
  const { usage, cost } = end;
  return `{"id":${JSON.stringify(id)},"object":"${CHUNK_OBJECT}","created":${createdS},"model":${JSON.stringify(model)},"choices":[],"usage":${chatUsageText(usage)},"cost":{"usd":${cost.usd},"diem":${cost.diem}},"${serviceName}_parameters":${echoText(end)}}`;
}

function echoText({ parameters, citations }: ResponseEnd): string {
  const isUsual = parameters === SVC_PARAMETER_DEFAULTS && citations.length === 0;
  return isUsual ? USUAL_ECHO : JSON.stringify(echoOf(parameters, citations));
}

function echoOf(parameters: SvcParameters, citations: readonly SearchResult[]): JsonObject {
  return { ...parameters, web_search_citations: citations };
}

const ASCII = /^[ -~]*$/;
const USUAL_ECHO = JSON.stringify(echoOf(SVC_PARAMETER_DEFAULTS, []));

function withDocuments(
  choices: readonly JsonObject[],
  documents: readonly FoundDocument[],
  { serviceName }: ResponseFrame,
): readonly JsonObject[] {
  const [first, ...others] = choices;
  if (first === undefined) return choices;
  const message = isJsonObject(first['message']) ? first['message'] : {};
  const call = documentsCall(serviceName, documents);
  const tool_calls = [call, ...toolCallsOf(message)];
  const finish_reason = finishReason(first['finish_reason'], true);
  return [{ ...first, message: { ...message, tool_calls }, finish_reason }, ...others];
}

const MAX_CITED = 1_024;
const CITATION_LISTS = ['search_results', 'search_sources', 'citations'];

export const NOTHING_CITED: readonly RawResult[] = [];

/**
 * Reads the results of an engine's own search: a list of URLs (xAI), results with titles (Perplexity
 * and others), or annotations of a message.
 */
export function citedBy(answer: JsonObject, before = NOTHING_CITED): readonly RawResult[] {
  const cited = [...before];
  for (const name of CITATION_LISTS) addCited(cited, answer[name]);
  for (const choice of jsonObjects(answer['choices'])) {
    const message = choice['message'] ?? choice['delta'];
    if (isJsonObject(message)) addCited(cited, message['annotations']);
  }
  return cited;
}

function addCited(to: RawResult[], list: unknown): void {
  if (!Array.isArray(list)) return;
  for (const item of list as readonly unknown[]) {
    if (to.length >= MAX_CITED) return;
    const found = citedResult(item);
    if (found !== undefined) to.push(found);
  }
}

function citedResult(item: unknown): RawResult | undefined {
  if (typeof item === 'string') return { url: item, title: '', content: '', date: undefined };
  if (!isJsonObject(item)) return undefined;
  const inner = isJsonObject(item['url_citation']) ? item['url_citation'] : item;
  const { url, title, content, snippet, date, published_at } = inner;
  return { url, title, content: content ?? snippet, date: date ?? published_at };
}
