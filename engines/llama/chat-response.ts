/**
 * Writes chat responses in the OpenAI format: as one JSON body, or piece by piece as server-sent
 * events (role, reasoning, content or tool calls, finish, usage).
 */
import { randomBytes } from 'node:crypto';
import type { ResponsePiece } from './response-splitter.ts';
import type { ChoiceEnd, TokenLogprob } from './chat-choice.ts';
import type { ChatListener, ChatUsage } from './chat-model.ts';

type FinishReason = ChoiceEnd['finishReason'];

export interface ResponseHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

export function newHead(model: string, nowMs: number): ResponseHead {
  const id = `chatcmpl-${randomBytes(16).toString('hex')}`;
  return { id, created: Math.floor(nowMs / 1_000), model };
}

/** A tool call in the protocol's format; its arguments follow. */
function newCall(name: string) {
  const id = `call_${randomBytes(12).toString('hex')}`;
  return { id, type: 'function', function: { name, arguments: '' } };
}

function usageOnWire(usage: ChatUsage): object {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}

export function collectedResponse(choices: number, withLogprobs: boolean) {
  const collected = Array.from({ length: choices }, () => ({
    content: '',
    reasoning: '',
    calls: [] as ReturnType<typeof newCall>[],
    logprobs: [] as TokenLogprob[],
    finishReason: 'stop' as FinishReason,
  }));
  const listener: ChatListener = {
    // A non-streaming response is sent only at its end.
    onStart: () => undefined,
    onPieces(index, pieces, logprobs) {
      const choice = collected[index];
      if (choice === undefined) return;
      choice.logprobs.push(...logprobs);
      for (const piece of pieces) {
        if (piece.type === 'content') choice.content += piece.text;
        else if (piece.type === 'reasoning') choice.reasoning += piece.text;
        else if (piece.type === 'call-start') choice.calls.push(newCall(piece.name));
        else {
          const call = choice.calls[piece.index];
          if (call !== undefined) call.function.arguments += piece.text;
        }
      }
    },
    onEnd(index, finishReason) {
      const choice = collected[index];
      if (choice !== undefined) choice.finishReason = finishReason;
    },
  };
  const body = ({ id, created, model }: ResponseHead, usage: ChatUsage): object => ({
    id,
    object: 'chat.completion',
    created,
    model,
    choices: collected.map(({ content, reasoning, calls, logprobs, finishReason }, index) => ({
      index,
      message: {
        role: 'assistant',
        content: content === '' && calls.length > 0 ? null : content,
        refusal: null,
        ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
        ...(calls.length === 0 ? {} : { tool_calls: calls }),
      },
      logprobs: withLogprobs ? { content: logprobs, refusal: null } : null,
      finish_reason: finishReason,
    })),
    usage: usageOnWire(usage),
  });
  return { listener, body };
}

export function streamedResponse(
  head: ResponseHead,
  choices: number,
  write: (text: string) => void,
) {
  const { id, created, model } = head;
  const event = (fields: object): void => {
    const chunk = { id, object: 'chat.completion.chunk', created, model, ...fields };
    write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  const choice = (
    index: number,
    delta: object,
    finish_reason: FinishReason | null,
    scores: readonly TokenLogprob[] = [],
  ): void => {
    const logprobs = scores.length > 0 ? { content: scores, refusal: null } : null;
    event({ choices: [{ index, delta, logprobs, finish_reason }] });
  };
  const listener: ChatListener = {
    onStart() {
      for (let index = 0; index < choices; index += 1) {
        choice(index, { role: 'assistant', content: '' }, null);
      }
    },
    onPieces(index, pieces, logprobs) {
      let scores = logprobs;
      for (const piece of pieces) {
        const isContent = piece.type === 'content';
        choice(index, deltaOf(piece), null, isContent ? scores : []);
        if (isContent) scores = [];
      }
    },
    onEnd: (index, finishReason) => choice(index, {}, finishReason),
  };
  const finish = (usage: ChatUsage | undefined): void => {
    if (usage !== undefined) event({ choices: [], usage: usageOnWire(usage) });
  };
  return { listener, finish };
}

function deltaOf(piece: ResponsePiece): object {
  switch (piece.type) {
    case 'content':
      return { content: piece.text };
    case 'reasoning':
      return { reasoning_content: piece.text };
    case 'call-start':
      return { tool_calls: [{ index: piece.index, ...newCall(piece.name) }] };
    case 'call-arguments':
      return { tool_calls: [{ index: piece.index, function: { arguments: piece.text } }] };
  }
}
