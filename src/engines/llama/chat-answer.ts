/**
 * Writes chat answers in the OpenAI shape: collected as one JSON body, or piece by piece as
 * server-sent events (role, reasoning, content or tool calls, finish, usage, `[DONE]`).
 */
import { randomBytes } from 'node:crypto';
import type { AnswerPiece } from './answer-splitter.ts';
import type { ChoiceEnd } from './chat-choice.ts';
import type { ChatListener, ChatUsage } from './chat-model.ts';
import type { TokenLogprob } from './logprob-track.ts';

type FinishReason = ChoiceEnd['finishReason'];

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

/** A tool call as the protocol shows it; its arguments follow. */
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

interface CollectedChoice {
  content: string;
  reasoning: string;
  readonly calls: ReturnType<typeof newCall>[];
  readonly logprobs: TokenLogprob[];
  finishReason: FinishReason;
}

/** Collects all choices into one body. */
export class CollectedAnswer implements ChatListener {
  readonly #choices = new Map<number, CollectedChoice>();
  readonly #withLogprobs: boolean;

  constructor(choices: number, withLogprobs: boolean) {
    this.#withLogprobs = withLogprobs;
    for (let index = 0; index < choices; index += 1) {
      const empty = { content: '', reasoning: '', calls: [], logprobs: [] };
      this.#choices.set(index, { ...empty, finishReason: 'stop' });
    }
  }

  onStart(): void {
    // A collected answer begins with its end.
  }

  onPieces(index: number, pieces: readonly AnswerPiece[], logprobs: readonly TokenLogprob[]): void {
    const choice = this.#choices.get(index);
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
  }

  onEnd(index: number, finishReason: FinishReason): void {
    const choice = this.#choices.get(index);
    if (choice !== undefined) choice.finishReason = finishReason;
  }

  body(head: AnswerHead, usage: ChatUsage): object {
    const { id, created, model } = head;
    const choices = [...this.#choices].map(([index, choice]) => ({
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
    }));
    return { id, object: 'chat.completion', created, model, choices, usage: usageOnWire(usage) };
  }
}

/** Writes each piece as an event at once. */
export class StreamedAnswer implements ChatListener {
  readonly #head: AnswerHead;
  readonly #choices: number;
  readonly #write: (text: string) => void;

  constructor(head: AnswerHead, choices: number, write: (text: string) => void) {
    this.#head = head;
    this.#choices = choices;
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
    delta: object,
    finishReason: FinishReason | null,
    scores: readonly TokenLogprob[] = [],
  ): void {
    const logprobs = scores.length > 0 ? { content: scores, refusal: null } : null;
    this.#event({ choices: [{ index, delta, logprobs, finish_reason: finishReason }] });
  }

  #event(fields: object): void {
    const { id, created, model } = this.#head;
    const chunk = { id, object: 'chat.completion.chunk', created, model, ...fields };
    this.#write(`data: ${JSON.stringify(chunk)}\n\n`);
  }
}

function deltaOf(piece: AnswerPiece): object {
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
