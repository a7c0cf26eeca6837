/**
 * A whole chat answer: read from an engine (`readChatAnswer`), then written for the caller
 * (`writeChatAnswer`) once the charge is known.
 *
 * Only members that differ are written; choices that are already right keep the engine's bytes.
 * An answer that is no chat answer is a Fault, never a body of ours.
 */
import { Fault } from '../kernel/faults.ts';
import {
  argumentsText,
  finishReason,
  reasoningOf,
  toolCallsOf,
  withReasoningName,
} from './chat-choice.ts';
import { isJsonObject, jsonBytes, memberSpans, type JsonObject } from './json-scan.ts';
import { spliceObject } from './json-splice.ts';
import type { ParsedObject } from './json-splice.ts';
import { documentsCall, type SearchDocument } from './search-documents.ts';
import { parametersKey } from './svc-parameters.ts';
import { stripThinkTags } from './think-tags.ts';
import { chatUsage, readUsage, type Cost, type TokenUsage } from './usage.ts';

/** How much an answer holds: the basis of a bill when the engine sends no usage. */
export interface OutputTally {
  contentBytes: number;
  reasoningBytes: number;
  toolBytes: number;
  /** Stream pieces that carried content, reasoning or arguments; 0 for a whole answer. */
  deltas: number;
}

export interface ChatAnswer {
  readonly source: ParsedObject;
  readonly choices: readonly JsonObject[];
  /** What the engine says was used; `undefined` when it says nothing. */
  readonly usage: TokenUsage | undefined;
  readonly tally: Readonly<OutputTally>;
  /** Whether no choice holds any output: with no engine work reported it is free. */
  readonly isEmpty: boolean;
}

/** What the caller asked to be changed in the answer's text. */
export interface AnswerOptions {
  /** `strip_thinking_response` or `disable_thinking`: `<think>` blocks leave the content. */
  readonly stripThinkTags: boolean;
  /** `disable_thinking`: reasoning that came all the same is left out. */
  readonly dropReasoning: boolean;
}

export interface AnswerFrame {
  /** `chatcmpl-` and 32 hex. */
  readonly id: string;
  /** The resolved model id. */
  readonly model: string;
  /** Unix seconds; used when the engine names none. */
  readonly createdS: number;
  readonly usage: TokenUsage;
  readonly cost: Cost;
  readonly serviceName: string;
  /** The echo, from `echoParameters`. */
  readonly parameters: JsonObject;
  readonly documents?: readonly SearchDocument[];
}

/** `chatcmpl-` and the 32 digits of the request id: the receipt is found by either. */
export function chatCompletionId(requestId: string): string {
  return `chatcmpl-${requestId}`;
}

function garbage(cause: unknown): Fault {
  return new Fault('INFERENCE_FAILED', {
    message: 'The engine answered with something that is not a chat completion',
    cause,
  });
}

/** Reads an engine's answer. Throws `INFERENCE_FAILED` when it is no chat completion. */
export function readChatAnswer(bytes: Buffer, options: AnswerOptions): ChatAnswer {
  const { json, text } = jsonBytes(bytes);
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (cause) {
    // Whatever the engine sent, the caller learns only that it was unusable.
    throw garbage(cause);
  }
  if (!isJsonObject(body) || !Array.isArray(body['choices']) || body['choices'].length === 0) {
    throw garbage('no choices');
  }
  const tally: OutputTally = { contentBytes: 0, reasoningBytes: 0, toolBytes: 0, deltas: 0 };
  const choices = body['choices'].map((choice: unknown, index) =>
    readChoice(choice, index, options, tally),
  );
  return {
    source: { json, body, members: memberSpans(json) },
    choices,
    usage: readUsage(body['usage']),
    tally,
    isEmpty: tally.contentBytes + tally.reasoningBytes + tally.toolBytes === 0,
  };
}

function readChoice(
  choice: unknown,
  index: number,
  options: AnswerOptions,
  tally: OutputTally,
): JsonObject {
  const given = isJsonObject(choice) && isJsonObject(choice['message']) ? choice : undefined;
  if (given === undefined) throw garbage('a choice without a message');
  // Checked on the line above.
  const original = given['message'] as JsonObject;
  const renamed = withReasoningName(original);
  countMessage(renamed, tally);
  const message = safeMessage(renamed, options);
  const reason = finishReason(given['finish_reason'], toolCallsOf(message).length > 0);
  const isSame =
    message === original &&
    reason === given['finish_reason'] &&
    given['index'] === index &&
    given['logprobs'] !== undefined &&
    given['stop_reason'] !== undefined;
  if (isSame) return given;
  const filled = { logprobs: null, stop_reason: null, ...given };
  return { ...filled, index, message, finish_reason: reason };
}

function countMessage(message: JsonObject, tally: OutputTally): void {
  const { content } = message;
  if (typeof content === 'string') tally.contentBytes += Buffer.byteLength(content);
  tally.reasoningBytes += Buffer.byteLength(reasoningOf(message) ?? '');
  for (const call of toolCallsOf(message)) {
    const made = isJsonObject(call['function']) ? call['function'] : {};
    const name = typeof made['name'] === 'string' ? made['name'] : '';
    tally.toolBytes += Buffer.byteLength(name + argumentsText(made['arguments']));
  }
}

/** The message with every member that the SDKs read; the same object when all are there. */
function safeMessage(message: JsonObject, options: AnswerOptions): JsonObject {
  const changes: Record<string, unknown> = {};
  if (message['role'] !== 'assistant') changes['role'] = 'assistant';
  const content = shownContent(message['content'], options);
  if (content !== message['content']) changes['content'] = content;
  const reasoning = options.dropReasoning ? null : (reasoningOf(message) ?? null);
  if (message['reasoning_content'] !== reasoning) changes['reasoning_content'] = reasoning;
  const calls = safeCalls(message);
  if (calls !== message['tool_calls']) changes['tool_calls'] = calls;
  return Object.keys(changes).length === 0 ? message : { ...message, ...changes };
}

function shownContent(content: unknown, options: AnswerOptions): unknown {
  if (typeof content !== 'string') return content ?? null;
  return options.stripThinkTags ? stripThinkTags(content) : content;
}

function safeCalls(message: JsonObject): unknown {
  const calls = toolCallsOf(message);
  const safe = calls.map(safeCall);
  const isSame =
    Array.isArray(message['tool_calls']) && safe.every((call, at) => call === calls[at]);
  return isSame ? message['tool_calls'] : safe;
}

function safeCall(call: JsonObject, index: number): JsonObject {
  const made = isJsonObject(call['function']) ? call['function'] : {};
  const isSafe =
    typeof call['id'] === 'string' &&
    call['type'] === 'function' &&
    typeof made['arguments'] === 'string';
  if (isSafe) return call;
  const id = typeof call['id'] === 'string' && call['id'] !== '' ? call['id'] : `call_${index}`;
  const text = argumentsText(made['arguments']) || '{}';
  return { ...call, id, type: 'function', function: { ...made, arguments: text } };
}

/** The caller's bytes: the engine's answer under our id, with usage, cost and the echo. */
export function writeChatAnswer(answer: ChatAnswer, frame: AnswerFrame): Buffer {
  const { body } = answer.source;
  const choices = withDocuments(answer.choices, frame);
  const isSame = Array.isArray(body['choices']) && choices.every((c, at) => c === itemAt(body, at));
  const created = body['created'];
  const target: Record<string, unknown> = {
    ...body,
    id: frame.id,
    object: 'chat.completion',
    created: Number.isSafeInteger(created) ? created : frame.createdS,
    model: frame.model,
    choices: isSame ? body['choices'] : choices,
    usage: chatUsage(frame.usage),
    cost: frame.cost,
    prompt_logprobs: body['prompt_logprobs'] ?? null,
  };
  target[parametersKey(frame.serviceName)] = frame.parameters;
  return spliceObject(answer.source, target);
}

function itemAt(body: JsonObject, index: number): unknown {
  const choices = body['choices'];
  return Array.isArray(choices) ? choices[index] : undefined;
}

/** Search results as a tool call stand in the first choice. */
function withDocuments(choices: readonly JsonObject[], frame: AnswerFrame): readonly JsonObject[] {
  const [first, ...others] = choices;
  if (frame.documents === undefined || first === undefined) return choices;
  const message = isJsonObject(first['message']) ? first['message'] : {};
  const call = documentsCall(frame.serviceName, frame.documents);
  const tool_calls = [call, ...toolCallsOf(message)];
  const finish_reason = finishReason(first['finish_reason'], true);
  return [{ ...first, message: { ...message, tool_calls }, finish_reason }, ...others];
}
