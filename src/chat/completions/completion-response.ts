/** Validates, counts and rewrites an engine's response to `/completions`, streaming or not. */
import { stringOrEmpty } from '../../json/json-text.ts';
import { bytesAtMost } from '../../core/token-count.ts';
import { readUsage } from '../../engines/usage.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { SseData } from '../../http/sse-events.ts';
import type { Frame } from '../../http/stream-writer.ts';
import { CountedStream, NO_BYTES } from '../upstream/counted-stream.ts';
import { finishReason, noOutput, textBytes, withoutUsage } from '../wire/chat-choice.ts';
import type { ChatResponse, ResponseEnd } from '../wire/chat-response.ts';
import { DONE_EVENT, engineFailure } from '../wire/stream-events.ts';

export interface CompletionFrame {
  readonly id: string;
  readonly model: string;
  readonly createdS: number;
  readonly choiceCount: number;
  readonly outputTokens: number;
  /** Maximum bytes of the echoed prompt of a choice; 0 without `echo`. */
  readonly echoBytes: (index: number) => number;
  readonly wantsLogprobs: boolean;
}

const FINISHES = new Set(['stop', 'length', 'content_filter']);

/** Returns `undefined` if the response does not fit the request. */
export function readCompletion(answer: unknown, frame: CompletionFrame): ChatResponse | undefined {
  if (!isJsonObject(answer)) return undefined;
  const given = answer['choices'];
  if (!Array.isArray(given) || given.length !== frame.choiceCount) return undefined;
  const choices: JsonObject[] = [];
  let sizeBytes = 0;
  for (const [place, one] of given.entries()) {
    if (!isJsonObject(one) || typeof one['text'] !== 'string') return undefined;
    const index = indexOf(one, place);
    if (index >= frame.choiceCount || choices[index] !== undefined) return undefined;
    const bytes = textBytes(one['text']);
    if (bytes > mostBytes(frame, index)) return undefined;
    sizeBytes += Math.max(0, bytes - frame.echoBytes(index));
    choices[index] = shownChoice(one, index, frame, 'stop');
  }
  const usage = readUsage(answer['usage']);
  return {
    source: { bytes: NO_BYTES, body: answer },
    choices,
    tally: { ...noOutput(), contentBytes: sizeBytes },
    reported: usage && { usage, atBytes: sizeBytes },
  };
}

function indexOf(choice: JsonObject, place: number): number {
  const { index } = choice;
  if (typeof index !== 'number') return place;
  return Number.isSafeInteger(index) && index >= 0 ? index : Infinity;
}

function shownChoice(
  choice: JsonObject,
  index: number,
  { wantsLogprobs }: CompletionFrame,
  finish: string | null,
): JsonObject {
  const { finish_reason: said, logprobs } = choice;
  const reason = typeof said === 'string' ? finishReason(said, false) : finish;
  return {
    ...withoutUsage(choice),
    text: choice['text'],
    index,
    logprobs: wantsLogprobs && isJsonObject(logprobs) ? logprobs : null,
    finish_reason: reason === null || FINISHES.has(reason) ? reason : 'stop',
  };
}

function mostBytes({ outputTokens, echoBytes }: CompletionFrame, index: number): number {
  return bytesAtMost(outputTokens) + echoBytes(index);
}

export function completionJson(
  { id, model, createdS }: Pick<CompletionFrame, 'id' | 'model' | 'createdS'>,
  choices: readonly JsonObject[],
  end?: ResponseEnd,
): string {
  const head = { id, object: 'text_completion', created: createdS, model, choices };
  if (end === undefined) return JSON.stringify(head);
  const { promptTokens, completionTokens } = end.usage;
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  };
  return JSON.stringify({ ...head, usage, cost: end.cost });
}

/** Each choice has the whole grant, and may repeat its prompt: the output is counted by choice. */
export class CompletionStream extends CountedStream {
  readonly #frame: CompletionFrame;
  readonly #bytes: number[];
  readonly #finished: boolean[];

  constructor(frame: CompletionFrame) {
    super(frame.outputTokens);
    this.#frame = frame;
    this.#bytes = Array.from({ length: frame.choiceCount }, () => 0);
    this.#finished = this.#bytes.map(() => false);
  }

  get isComplete(): boolean {
    return this.isDone || this.isCutOff || this.#finished.every(Boolean);
  }

  closing(end: ResponseEnd): Buffer {
    const finish_reason = this.isCutOff ? 'length' : 'stop';
    const open = [...this.#finished.keys()].filter((index) => !this.#finished[index]);
    const choices = open.map((index) => ({ text: '', index, logprobs: null, finish_reason }));
    const last = choices.length === 0 ? '' : eventOf(completionJson(this.#frame, choices));
    return Buffer.concat([Buffer.from(last), this.usageChunk(end), Buffer.from(DONE_EVENT)]);
  }

  override usageChunk(end: ResponseEnd): Buffer {
    return Buffer.from(eventOf(completionJson(this.#frame, [], end)));
  }

  protected override take(chunk: JsonObject, _data: SseData, into: Frame): void {
    const error = chunk['error'] ?? undefined;
    if (error !== undefined) {
      this.failure = engineFailure(error);
      return;
    }
    const { choices: given } = chunk;
    const choices = Array.isArray(given) ? this.#show(given) : [];
    // Usage in the same chunk as a text includes that text.
    const usage = readUsage(chunk['usage']);
    if (usage !== undefined) this.reported = { usage, atBytes: this.tally.contentBytes };
    if (choices.length > 0) into.addText(eventOf(completionJson(this.#frame, choices)));
  }

  #show(given: readonly unknown[]): JsonObject[] {
    const shown: JsonObject[] = [];
    for (const [place, one] of given.entries()) {
      if (!isJsonObject(one)) continue;
      const index = indexOf(one, place);
      const before = this.#bytes[index];
      if (before === undefined || this.#finished[index] === true) continue;
      const text = stringOrEmpty(one['text']);
      const echoBytes = this.#frame.echoBytes(index);
      const after = before + textBytes(text);
      if (after > mostBytes(this.#frame, index)) {
        this.isCutOff = true;
        break;
      }
      this.#bytes[index] = after;
      this.tally.contentBytes += Math.max(0, after - echoBytes) - Math.max(0, before - echoBytes);
      this.hasShownText = this.tally.contentBytes > 0;
      const choice = shownChoice({ ...one, text }, index, this.#frame, null);
      if (choice['finish_reason'] !== null) this.#finished[index] = true;
      shown.push(choice);
    }
    return shown;
  }
}

function eventOf(json: string): string {
  return `data: ${json}\n\n`;
}
