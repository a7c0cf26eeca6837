/**
 * A whole chat answer: read from an engine (`readChatAnswer`), then written for the caller
 * (`writeChatAnswer`) once the charge is known.
 *
 * Only members that differ are written; choices that are already right keep the engine's bytes.
 * An answer that is no chat answer is a Fault, never a body of ours.
 */
import { Fault } from '../../core/faults.ts';
import {
  argumentsText,
  finishReason,
  reasoningOf,
  toolCallsOf,
  withReasoningName,
} from './chat-choice.ts';
import { childrenOf, isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import {
  addTally,
  cutMessage,
  mostBytes,
  noOutput,
  outputBytes,
  type OutputTally,
  tallyOf,
} from './output-tally.ts';
import { type ParsedObject, spliceObject } from '../../json/json-splice.ts';
import { documentsCall, type SearchDocument } from './search-documents.ts';
import { parametersKey } from './svc-parameters.ts';
import { stripThinkTags } from './think-tags.ts';
import {
  chatUsage,
  readUsage,
  type Cost,
  type ReportedUsage,
  type TokenUsage,
} from '../../engines/usage.ts';

export interface ChatAnswer {
  readonly source: ParsedObject;
  readonly choices: readonly JsonObject[];
  /** What the engine says was used; `undefined` when it says nothing. */
  readonly reported: ReportedUsage | undefined;
  readonly tally: Readonly<OutputTally>;
}

/** How much the caller gets of the answer's text, and what it asked to be changed in it. */
export interface AnswerOptions {
  /** Choices that were asked for; others are not shown. */
  readonly choiceCount: number;
  /** The grant of one choice: its text is cut where the grant ends. */
  readonly maxOutputTokens: number;
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
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString());
  } catch (cause) {
    // Whatever the engine sent, the caller learns only that it was unusable.
    throw garbage(cause);
  }
  if (!isJsonObject(body) || !Array.isArray(body['choices']) || body['choices'].length === 0) {
    throw garbage('no choices');
  }
  const tally = noOutput();
  const choices = body['choices']
    .slice(0, options.choiceCount)
    .map((choice: unknown, index) => readChoice(choice, index, options, tally));
  const usage = readUsage(body['usage']);
  return {
    source: { bytes, body, members: childrenOf(bytes).spans },
    choices,
    reported: usage === undefined ? undefined : { usage, atBytes: outputBytes(tally) },
    tally,
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
  const whole = withReasoningName(original);
  const size = tallyOf(whole);
  const roomBytes = mostBytes(options.maxOutputTokens, 0);
  const isCut = outputBytes(size) > roomBytes;
  const granted = isCut ? cutMessage(whole, roomBytes) : whole;
  addTally(tally, isCut ? tallyOf(granted) : size);
  const message = safeMessage(granted, options);
  const ended = isCut ? 'length' : given['finish_reason'];
  const reason = finishReason(ended, toolCallsOf(message).length > 0);
  const isSame =
    message === original &&
    reason === given['finish_reason'] &&
    given['index'] === index &&
    given['logprobs'] !== undefined &&
    given['stop_reason'] !== undefined;
  if (isSame) return given;
  const filled = { logprobs: null, stop_reason: null, ...given, ...(isCut ? NO_LOGPROBS : {}) };
  return { ...filled, index, message, finish_reason: reason };
}

/** They would be longer than the text that is left. */
const NO_LOGPROBS = { logprobs: null };

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
  const isSame =
    Array.isArray(body['choices']) &&
    body['choices'].length === choices.length &&
    choices.every((c, at) => c === itemAt(body, at));
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
