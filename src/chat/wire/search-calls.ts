/**
 * Calls of the service's own search tool (`enable_web_search: auto`), which never reach the caller.
 * A completion with only such calls is a search round, after which the model is called again.
 */
import {
  argumentsText,
  finishReason,
  functionOf,
  functionName,
  type ReasoningDetail,
  reasoningDetails,
  toolCallsOf,
} from './chat-choice.ts';
import type { ChatResponse } from './chat-response.ts';
import type { ChatMessage } from './chat-schema.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { stringOrEmpty } from '../../json/json-text.ts';

export interface SearchCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

export interface SearchRound {
  readonly calls: readonly SearchCall[];
  readonly content: string;
  readonly reasoning: string;
  /** `reasoning_details`, which some engines require with the calls. */
  readonly details: readonly ReasoningDetail[];
}

export function searchRoundOf(response: ChatResponse, tool: string): SearchRound | undefined {
  const message = firstMessage(response);
  const calls = toolCallsOf(message);
  if (calls.length === 0 || !calls.every((call) => functionName(call) === tool)) return undefined;
  return {
    calls: calls.map((call, at) => searchCall(call, at, tool)),
    content: stringOrEmpty(message['content']),
    reasoning: stringOrEmpty(message['reasoning_content']),
    details: reasoningDetails(message),
  };
}

/** Removes the search calls, and prepends the text of earlier rounds. */
export function joinedResponse(
  response: ChatResponse,
  tool: string,
  earlier: readonly SearchRound[],
): ChatResponse {
  const choices = response.choices.map((choice, at) => {
    const message = isJsonObject(choice['message']) ? choice['message'] : {};
    const { content, reasoning_content } = message;
    const given = toolCallsOf(message);
    const calls = given.filter((call) => functionName(call) !== tool);
    const before = at === 0 ? earlier : [];
    const hasSearches = calls.length < given.length;
    if (!hasSearches && before.length === 0) return choice;
    const details = [...before.flatMap((round) => round.details), ...reasoningDetails(message)];
    const joinedMessage = {
      ...message,
      ...(details.length === 0 ? {} : { reasoning_details: details }),
      content: joined(before, 'content', content),
      reasoning_content: joined(before, 'reasoning', reasoning_content),
      tool_calls: calls,
    };
    const reason = choice['finish_reason'];
    const isUnseen = hasSearches && calls.length === 0 && reason === 'tool_calls';
    const finish_reason = isUnseen ? 'stop' : finishReason(reason, calls.length > 0);
    return { ...choice, message: joinedMessage, finish_reason };
  });
  return { ...response, choices };
}

export function searchRoundMessage(round: SearchRound): ChatMessage {
  return {
    role: 'assistant',
    content: round.content === '' ? null : round.content,
    ...(round.details.length === 0 ? {} : { reasoning_details: [...round.details] }),
    tool_calls: round.calls.map((call) => ({
      id: call.id,
      type: 'function',
      function: { name: call.name, arguments: call.arguments },
    })),
  };
}

export const ROUND_BREAK = '\n\n';

function joined(
  earlier: readonly SearchRound[],
  kind: 'content' | 'reasoning',
  last: unknown,
): unknown {
  const said = earlier.map((round) => round[kind]).filter((text) => text !== '');
  if (said.length === 0) return last ?? null;
  const end = stringOrEmpty(last);
  return [...said, ...(end === '' ? [] : [end])].join(ROUND_BREAK);
}

function firstMessage(response: ChatResponse): JsonObject {
  const message = response.choices[0]?.['message'];
  return isJsonObject(message) ? message : {};
}

function searchCall(call: JsonObject, at: number, name: string): SearchCall {
  const id = typeof call['id'] === 'string' && call['id'] !== '' ? call['id'] : `call_${at}`;
  return { id, name, arguments: argumentsText(functionOf(call)['arguments']) };
}
