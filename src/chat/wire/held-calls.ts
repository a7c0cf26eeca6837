/**
 * Calls of a tool that is ours (the web search of `auto`): they never reach the caller. An answer
 * whose every call is held is not an answer yet; beside calls of the caller's own tools they are
 * left out.
 */
import { argumentsText, finishReason, madeBy, nameOf, toolCallsOf } from './chat-choice.ts';
import type { ChatResponse } from './chat-response.ts';
import type { ChatMessage } from './chat-message.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

export interface HeldCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

export interface HeldRound {
  readonly calls: readonly HeldCall[];
  readonly content: string;
  readonly reasoning: string;
}

export function heldRoundOf(answer: ChatResponse, tool: string): HeldRound | undefined {
  const message = firstMessage(answer);
  const calls = toolCallsOf(message);
  if (calls.length === 0 || !calls.every((call) => nameOf(call) === tool)) return undefined;
  return {
    calls: calls.map((call, at) => heldCall(call, at, tool)),
    content: textOf(message['content']),
    reasoning: textOf(message['reasoning_content']),
  };
}

/** The answer without calls of the tool, and with what was said before it in earlier rounds. */
export function joinedResponse(
  answer: ChatResponse,
  tool: string,
  earlier: readonly HeldRound[],
): ChatResponse {
  const choices = answer.choices.map((choice, at) => {
    const message = isJsonObject(choice['message']) ? choice['message'] : {};
    const { content, reasoning_content } = message;
    const given = toolCallsOf(message);
    const calls = given.filter((call) => nameOf(call) !== tool);
    const before = at === 0 ? earlier : [];
    const hasHeld = calls.length < given.length;
    if (!hasHeld && before.length === 0) return choice;
    const joinedMessage = {
      ...message,
      content: joined(
        before.map((round) => round.content),
        content,
      ),
      reasoning_content: joined(
        before.map((round) => round.reasoning),
        reasoning_content,
      ),
      tool_calls: calls,
    };
    const reason = choice['finish_reason'];
    const isUnseen = hasHeld && calls.length === 0 && reason === 'tool_calls';
    const finish_reason = isUnseen ? 'stop' : finishReason(reason, calls.length > 0);
    return { ...choice, message: joinedMessage, finish_reason };
  });
  return { ...answer, choices };
}

/** The model's own turn, as it goes back to the model. */
export function heldMessage(round: HeldRound): ChatMessage {
  return {
    role: 'assistant',
    content: round.content === '' ? null : round.content,
    tool_calls: round.calls.map((call) => ({
      id: call.id,
      type: 'function',
      function: { name: call.name, arguments: call.arguments },
    })),
  };
}

export const ROUND_BREAK = '\n\n';

function joined(earlier: readonly string[], last: unknown): unknown {
  const said = earlier.filter((text) => text !== '');
  if (said.length === 0) return last ?? null;
  const end = textOf(last);
  return [...said, ...(end === '' ? [] : [end])].join(ROUND_BREAK);
}

function firstMessage(answer: ChatResponse): JsonObject {
  const message = answer.choices[0]?.['message'];
  return isJsonObject(message) ? message : {};
}

function heldCall(call: JsonObject, at: number, name: string): HeldCall {
  const id = typeof call['id'] === 'string' && call['id'] !== '' ? call['id'] : `call_${at}`;
  return { id, name, arguments: argumentsText(madeBy(call)['arguments']) };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
