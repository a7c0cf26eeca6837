/** Validates, counts and rewrites an engine's response to `/completions`, streaming or not. */
import { parsedJsonObject, stringOrEmpty } from '../../json/json-text.ts';
import { bytesAtMost } from '../../core/token-count.ts';
import { type ReportedUsage, readUsage } from '../../engines/usage.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { SseEvents } from '../../http/sse-events.ts';
import type { Frame } from '../../http/stream-writer.ts';
import type { EngineStream } from '../upstream/upstream.ts';
import {
  finishReason,
  noOutput,
  type OutputTally,
  textBytes,
  withoutUsage,
} from '../wire/chat-choice.ts';
import { type ChatResponse, NOTHING_CITED, type ResponseEnd } from '../wire/chat-response.ts';
import {
  BROKEN_STREAM,
  DONE,
  DONE_EVENT,
  type EngineFailure,
  engineFailure,
} from '../wire/stream-events.ts';

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
    source: { bytes: EMPTY, body: answer, text: undefined },
    choices,
    tally: tallyOf(sizeBytes),
    reported: usage && { usage, atBytes: sizeBytes },
    cited: NOTHING_CITED,
  };
}

function tallyOf(contentBytes: number): OutputTally {
  return { ...noOutput(), contentBytes };
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

export class CompletionStream implements EngineStream {
  readonly #frame: CompletionFrame;
  readonly #events = new SseEvents();
  readonly #bytes: number[];
  readonly #finished: boolean[];
  #outputBytes = 0;
  #isDone = false;
  reported: ReportedUsage | undefined;
  failure: EngineFailure | undefined;
  isCutOff = false;

  constructor(frame: CompletionFrame) {
    this.#frame = frame;
    this.#bytes = Array.from({ length: frame.choiceCount }, () => 0);
    this.#finished = this.#bytes.map(() => false);
  }

  get tally(): OutputTally {
    return tallyOf(this.#outputBytes);
  }

  get hasShownText(): boolean {
    return this.#outputBytes > 0;
  }

  get isOver(): boolean {
    return this.#isDone || this.isCutOff || this.failure !== undefined;
  }

  get isComplete(): boolean {
    return this.#isDone || this.isCutOff || this.#finished.every(Boolean);
  }

  push(chunk: Buffer, into: Frame): void {
    if (this.failure !== undefined || this.isCutOff) return;
    if (!this.#events.push(chunk)) {
      this.failure = BROKEN_STREAM;
      return;
    }
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      into.addText(this.#take(data.bytes.toString('utf8', data.start, data.end).trim()));
      if (this.failure !== undefined || this.isCutOff) break;
    }
  }

  flush(): Buffer {
    return EMPTY;
  }

  closing(end: ResponseEnd): Buffer {
    const finish_reason = this.isCutOff ? 'length' : 'stop';
    const open = [...this.#finished.keys()].filter((index) => !this.#finished[index]);
    const choices = open.map((index) => ({ text: '', index, logprobs: null, finish_reason }));
    const last = choices.length === 0 ? '' : eventOf(completionJson(this.#frame, choices));
    return Buffer.concat([Buffer.from(last), this.usageChunk(end), Buffer.from(DONE_EVENT)]);
  }

  usageChunk(end: ResponseEnd): Buffer {
    return Buffer.from(eventOf(completionJson(this.#frame, [], end)));
  }

  #take(text: string): string {
    if (text === '') return '';
    if (text === DONE) {
      this.#isDone = true;
      return '';
    }
    const chunk = parsedJsonObject(text);
    const error = chunk?.['error'] ?? undefined;
    if (chunk === undefined) this.failure = BROKEN_STREAM;
    else if (error !== undefined) this.failure = engineFailure(error);
    if (this.failure !== undefined) return '';
    const given = chunk?.['choices'];
    const choices = Array.isArray(given) ? this.#show(given) : [];
    // Usage in the same chunk as a text includes that text.
    const usage = readUsage(chunk?.['usage']);
    if (usage !== undefined) this.reported = { usage, atBytes: this.#outputBytes };
    return choices.length === 0 ? '' : eventOf(completionJson(this.#frame, choices));
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
      this.#outputBytes += Math.max(0, after - echoBytes) - Math.max(0, before - echoBytes);
      const choice = shownChoice({ ...one, text }, index, this.#frame, null);
      if (choice['finish_reason'] !== null) this.#finished[index] = true;
      shown.push(choice);
    }
    return shown;
  }
}

const EMPTY = Buffer.alloc(0);

function eventOf(json: string): string {
  return `data: ${json}\n\n`;
}
