/**
 * Writes chat answers in the OpenAI shape: collected as one JSON body, or piece by piece as
 * server-sent events (role, reasoning, content or tool calls, finish, usage, `[DONE]`).
 */
import { randomBytes } from 'node:crypto';

import type { AnswerPiece } from './answer-splitter.ts';
import type { ChatListener, ChatUsage } from './chat-model.ts';
import type { TokenLogprob } from './logprob-track.ts';

type FinishReason = Parameters<ChatListener['onEnd']>[1];

interface WireCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string; arguments: string };
}

/** Fields that every body and chunk of one answer share. */
export interface AnswerHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

/** The head of a new answer; `nowMs` is Unix time. */
export function newHead(model: string, nowMs: number): AnswerHead {
  const id = `chatcmpl-${randomBytes(16).toString('hex')}`;
  return { id, created: Math.floor(nowMs / 1_000), model };
}

function newCallId(): string {
  return `call_${randomBytes(12).toString('hex')}`;
}

/** The usage object of the OpenAI protocol. */
export function usageOnWire(usage: ChatUsage): Record<string, unknown> {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}

interface CollectedChoice {
  content: string;
  reasoning: string;
  readonly calls: WireCall[];
  readonly logprobs: TokenLogprob[];
  finishReason: FinishReason;
}

/** Collects all choices into one body. */
export class CollectedAnswer implements ChatListener {
  readonly #choices: CollectedChoice[];
  readonly #withLogprobs: boolean;

  constructor(choices: number, withLogprobs: boolean) {
    this.#withLogprobs = withLogprobs;
    this.#choices = Array.from({ length: choices }, () => ({
      content: '',
      reasoning: '',
      calls: [],
      logprobs: [],
      finishReason: 'stop' as const,
    }));
  }

  onStart(): void {
    // A collected answer begins with its end.
  }

  onPieces(index: number, pieces: readonly AnswerPiece[], logprobs: readonly TokenLogprob[]): void {
    const choice = this.#choices[index];
    if (choice === undefined) return;
    choice.logprobs.push(...logprobs);
    for (const piece of pieces) collect(choice, piece);
  }

  onEnd(index: number, finishReason: FinishReason): void {
    const choice = this.#choices[index];
    if (choice !== undefined) choice.finishReason = finishReason;
  }

  body(head: AnswerHead, usage: ChatUsage): Record<string, unknown> {
    return {
      id: head.id,
      object: 'chat.completion',
      created: head.created,
      model: head.model,
      choices: this.#choices.map((choice, index) => ({
        index,
        message: {
          role: 'assistant',
          content: choice.content === '' && choice.calls.length > 0 ? null : choice.content,
          refusal: null,
          ...(choice.reasoning === '' ? {} : { reasoning_content: choice.reasoning }),
          ...(choice.calls.length === 0 ? {} : { tool_calls: choice.calls }),
        },
        logprobs: this.#withLogprobs ? { content: choice.logprobs, refusal: null } : null,
        finish_reason: choice.finishReason,
      })),
      usage: usageOnWire(usage),
    };
  }
}

function collect(choice: CollectedChoice, piece: AnswerPiece): void {
  switch (piece.type) {
    case 'content':
      choice.content += piece.text;
      return;
    case 'reasoning':
      choice.reasoning += piece.text;
      return;
    case 'call-start':
      choice.calls.push({
        id: newCallId(),
        type: 'function',
        function: { name: piece.name, arguments: '' },
      });
      return;
    case 'call-arguments': {
      const call = choice.calls[piece.index];
      if (call !== undefined) call.function.arguments += piece.text;
    }
  }
}

/** Writes each piece as an event at once. */
export class StreamedAnswer implements ChatListener {
  readonly #head: AnswerHead;
  readonly #choices: number;
  readonly #withLogprobs: boolean;
  readonly #write: (text: string) => void;

  constructor(
    head: AnswerHead,
    options: { readonly choices: number; readonly withLogprobs: boolean },
    write: (text: string) => void,
  ) {
    this.#head = head;
    this.#choices = options.choices;
    this.#withLogprobs = options.withLogprobs;
    this.#write = write;
  }

  onStart(): void {
    for (let index = 0; index < this.#choices; index += 1) {
      this.#choice(index, { role: 'assistant', content: '' }, null);
    }
  }

  onPieces(index: number, pieces: readonly AnswerPiece[], logprobs: readonly TokenLogprob[]): void {
    let scores = logprobs;
    for (const piece of pieces) {
      const isContent = piece.type === 'content';
      this.#choice(index, deltaOf(piece), null, isContent ? scores : []);
      if (isContent) scores = [];
    }
  }

  onEnd(index: number, finishReason: FinishReason): void {
    this.#choice(index, {}, finishReason);
  }

  /** The usage chunk, when asked for, and the end mark. */
  finish(usage: ChatUsage | undefined): void {
    if (usage !== undefined) this.#event({ choices: [], usage: usageOnWire(usage) });
    this.#write('data: [DONE]\n\n');
  }

  /** An error after the stream has begun. */
  fail(body: unknown): void {
    this.#write(`data: ${JSON.stringify(body)}\n\ndata: [DONE]\n\n`);
  }

  #choice(
    index: number,
    delta: unknown,
    finishReason: FinishReason | null,
    logprobs: readonly TokenLogprob[] = [],
  ): void {
    const scores =
      this.#withLogprobs && logprobs.length > 0 ? { content: logprobs, refusal: null } : null;
    this.#event({ choices: [{ index, delta, logprobs: scores, finish_reason: finishReason }] });
  }

  #event(fields: Record<string, unknown>): void {
    const { id, created, model } = this.#head;
    const chunk = { id, object: 'chat.completion.chunk', created, model, ...fields };
    this.#write(`data: ${JSON.stringify(chunk)}\n\n`);
  }
}

function deltaOf(piece: AnswerPiece): Record<string, unknown> {
  switch (piece.type) {
    case 'content':
      return { content: piece.text };
    case 'reasoning':
      return { reasoning_content: piece.text };
    case 'call-start': {
      const named = { name: piece.name, arguments: '' };
      const call = { index: piece.index, id: newCallId(), type: 'function', function: named };
      return { tool_calls: [call] };
    }
    case 'call-arguments':
      return { tool_calls: [{ index: piece.index, function: { arguments: piece.text } }] };
  }
}
