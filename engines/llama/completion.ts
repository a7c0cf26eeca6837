/**
 * `POST /v1/completions`: runs verbatim prompts as chats without a template and returns the OpenAI
 * text completion format.
 */
import * as z from 'zod';
import type { TokenLogprob } from './chat-choice.ts';
import type { ChatListener, ChatUsage } from './chat-model.ts';
import { type ChatRequest, parseChatRequest, parsed } from './chat-request.ts';
import { refusal } from './refusal.ts';

const MAX_PROMPTS = 64;
const MAX_TOP_LOGPROBS = 20;

const CompletionBody = z.looseObject({
  prompt: z.union(
    [z.string(), z.array(z.string()).min(1).max(MAX_PROMPTS)],
    'Expected a text or a list of texts: this model does not accept token ids',
  ),
  n: z.int().min(1).nullish(),
  best_of: z.int().nullish(),
  max_tokens: z.int().min(1, 'Must be at least 1: this model does not score prompts').nullish(),
  suffix: z.literal('', 'This model does not support suffix: omit it').nullish(),
  echo: z.boolean().nullish(),
  logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
});

export interface CompletionRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly echo: boolean;
  readonly wantsLogprobs: boolean;
  readonly choices: number;
  readonly prompts: readonly string[];
  /** The settings of every prompt; only the prompt differs. */
  readonly chat: ChatRequest;
}

/** Parses an OpenAI completion body; throws an error response that names the invalid field. */
export function parseCompletionRequest(input: unknown): CompletionRequest {
  const { prompt, n, best_of: bestOf, echo, logprobs, ...others } = parsed(CompletionBody, input);
  const choices = n ?? 1;
  if ((bestOf ?? choices) > choices) {
    throw refusal(
      'invalid_request',
      'best_of: Must not exceed n, because this model returns all choices',
      'best_of',
    );
  }
  const wantsLogprobs = logprobs !== null && logprobs !== undefined;
  const scores = { logprobs: wantsLogprobs, top_logprobs: logprobs ?? 0 };
  // Parsed as a chat without tools and formats.
  const messages = [{ role: 'user', content: '' }];
  const plain = { tools: undefined, response_format: undefined, messages };
  const chat = parseChatRequest({ ...others, n: choices, ...scores, ...plain });
  return {
    model: chat.model,
    stream: chat.stream,
    includeUsage: chat.includeUsage,
    echo: echo === true,
    wantsLogprobs,
    choices,
    prompts: typeof prompt === 'string' ? [prompt] : prompt,
    chat,
  };
}

type GenerateChat = (request: ChatRequest, listener: ChatListener) => Promise<ChatUsage>;

export interface CompletionChoice {
  readonly text: string;
  readonly index: number;
  readonly logprobs: Scores | null;
  readonly finish_reason: string | null;
}

/** Completes the prompts in order and calls `onChoice` with each piece. Returns the total usage. */
export async function completeAll(
  request: CompletionRequest,
  generate: GenerateChat,
  onChoice: (choice: CompletionChoice) => void,
): Promise<object> {
  let promptTokens = 0;
  let completionTokens = 0;
  for (const [place, rawPrompt] of request.prompts.entries()) {
    const usage = await generate(
      { ...request.chat, rawPrompt },
      listenerFor(request, place, onChoice),
    );
    promptTokens += usage.promptTokens;
    completionTokens += usage.completionTokens;
  }
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  };
}

function listenerFor(
  { choices, echo, prompts, wantsLogprobs }: CompletionRequest,
  place: number,
  onChoice: (choice: CompletionChoice) => void,
): ChatListener {
  const offsets = Array.from({ length: choices }, () => 0);
  const emit = (choice: number, text: string, scores: readonly TokenLogprob[]): void => {
    const logprobs = wantsLogprobs ? scored(scores, offsets[choice] ?? 0) : null;
    offsets[choice] = (offsets[choice] ?? 0) + text.length;
    const index = place * choices + choice;
    onChoice({ text, index, logprobs, finish_reason: null });
  };
  return {
    onStart() {
      if (!echo) return;
      for (let choice = 0; choice < choices; choice += 1) emit(choice, prompts[place] ?? '', []);
    },
    onPieces(choice, pieces, logprobs) {
      // Without a template every piece is content.
      const texts = pieces.flatMap((piece) => (piece.type === 'content' ? [piece.text] : []));
      const text = texts.join('');
      if (text !== '' || logprobs.length > 0) emit(choice, text, logprobs);
    },
    onEnd(choice, finish_reason) {
      onChoice({ text: '', index: place * choices + choice, logprobs: null, finish_reason });
    },
  };
}

interface Scores {
  readonly tokens: string[];
  readonly token_logprobs: number[];
  readonly top_logprobs: Record<string, number>[];
  readonly text_offset: number[];
}

function scored(given: readonly TokenLogprob[], offset: number): Scores {
  const scores: Scores = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  let at = offset;
  for (const { token, logprob, top_logprobs } of given) {
    scores.tokens.push(token);
    scores.token_logprobs.push(logprob);
    scores.top_logprobs.push(
      Object.fromEntries(top_logprobs.map((one) => [one.token, one.logprob])),
    );
    scores.text_offset.push(at);
    at += token.length;
  }
  return scores;
}

export class CollectedCompletion {
  readonly #choices = new Map<number, CompletionChoice>();

  add(piece: CompletionChoice): void {
    const before = this.#choices.get(piece.index);
    this.#choices.set(piece.index, {
      text: (before?.text ?? '') + piece.text,
      index: piece.index,
      logprobs: joined(before?.logprobs ?? null, piece.logprobs),
      finish_reason: piece.finish_reason ?? before?.finish_reason ?? null,
    });
  }

  get choices(): CompletionChoice[] {
    return [...this.#choices.values()].toSorted((a, b) => a.index - b.index);
  }
}

function joined(head: Scores | null, tail: Scores | null): Scores | null {
  if (head === null || tail === null) return head ?? tail;
  return {
    tokens: [...head.tokens, ...tail.tokens],
    token_logprobs: [...head.token_logprobs, ...tail.token_logprobs],
    top_logprobs: [...head.top_logprobs, ...tail.top_logprobs],
    text_offset: [...head.text_offset, ...tail.text_offset],
  };
}
