/**
 * A chat stream on its way from the engine to the caller: bytes in, bytes out.
 *
 * Shown in this order whatever the engine does: role chunk, reasoning, content or tool deltas, a
 * chunk with the finish reason, the usage chunk (ours, after the charge is known), `[DONE]`.
 * Chunks of a known layout pass as bytes with our id and model (`chunk-template.ts`); only what
 * differs is parsed. Counts what was produced, for the bill of an engine that sends no usage, and
 * ends a choice that goes beyond its grant.
 * Does no I/O and knows no time: the route reads, waits, settles and writes.
 */
import {
  CHUNK_OBJECT,
  type ChunkLayout,
  type ChunkLayouts,
  type ChunkTemplate,
  learnLayout,
  MAX_LAYOUTS,
  templateOf,
  textOnlyKind,
} from './chunk-template.ts';
import type { HeldRound } from './held-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import {
  addTally,
  noOutput,
  outputBytes,
  type OutputTally,
  tallyOf,
  type TextKind,
} from './chat-choice.ts';
import { type AnswerEnd, type AnswerFrame, documentsCall, endMembers } from './chat-response.ts';
import type { FoundDocument, RawResult, SearchResult } from '../web/web.ts';
import { citedBy, NOTHING_CITED } from './engine-citations.ts';
import { SseEvents, type SseData } from '../../http/sse-events.ts';
import { Frame } from '../../http/stream-writer.ts';
import { StreamChoice, type StreamChoiceOptions } from './stream-choice.ts';
import type { Fault } from '../../core/faults.ts';
import { readUsage, type ReportedUsage } from '../../engines/usage.ts';

/** Another protocol's events in the place of chunks. */
export interface OtherEvents {
  /** A piece of text as it stands in JSON; `call` is the index of the call that has it. */
  text(kind: TextKind, json: string, call: number): string;
  /** A choice of a chunk. */
  choice(choice: JsonObject): string;
  /** The engine is asked again. */
  nextRound(): void;
  /** What ends a complete stream. */
  end(end: AnswerEnd): string;
}

export interface ChatStreamOptions extends StreamChoiceOptions, AnswerFrame {
  /** Absent: chunks of chat completions. */
  readonly events?: OtherEvents | undefined;
  /** What other streams have learned. */
  readonly layouts?: ChunkLayouts | undefined;
}

/** An error that the engine sent inside its stream, or `broken_stream`: for the log, not the caller. */
export interface EngineFailure {
  readonly message: string;
  readonly type: string | undefined;
  readonly code: string | undefined;
}

const DONE = '[DONE]';
const DONE_EVENT = `data: ${DONE}\n\n`;

export class ChatStream {
  readonly #options: ChatStreamOptions;
  #events = new SseEvents();
  /** Whether the engine's next byte is the first of an event. */
  #isBetween = true;
  readonly #choices = new Map<number, StreamChoice>();
  #templates: ChunkTemplate[] = [];
  /** Rewritten text has no constant layout. */
  readonly #canLearn: boolean;
  /** Where an event of a layout says nothing but its text. */
  readonly #layouts: ChunkLayouts | undefined;
  #isDone = false;
  #areDocumentsShown = false;
  /** What the engine said last of its usage, maybe before its end. */
  reported: ReportedUsage | undefined;
  /** What the engine's own search found, where citations are asked for. */
  cited: readonly RawResult[] = NOTHING_CITED;
  /** Whether the caller was given any text, in this round or before. */
  hasShownText = false;
  /** Whether every choice has ended, one of them where its grant did: the engine may stop. */
  isCutOff = false;
  /** The engine's error; nothing that comes after it is shown. */
  failure: EngineFailure | undefined;

  constructor(options: ChatStreamOptions) {
    this.#options = options;
    this.#canLearn =
      !options.stripThinkTags && !options.dropReasoning && options.heldTool === undefined;
    const isPlain = options.documents === undefined && options.readsCitations !== true;
    this.#layouts = this.#canLearn && isPlain ? options.layouts : undefined;
  }

  /** What was produced so far in this round. */
  get tally(): OutputTally {
    const tally = noOutput();
    for (const choice of this.#choices.values()) addTally(tally, choice.tally);
    return tally;
  }

  /**
   * Whether the answer is whole: `[DONE]`, an end to each choice that began, or the end of the
   * grant. A stream that ends before was broken off, and one without any choice is no answer.
   */
  get isComplete(): boolean {
    if (this.failure !== undefined || this.#choices.size === 0) return false;
    if (this.#isDone || this.isCutOff) return true;
    for (const choice of this.#choices.values()) if (!choice.isFinished) return false;
    return true;
  }

  /** Whether `[DONE]`, an error or the end of the grant has come: the rest needs no reading. */
  get isOver(): boolean {
    return this.#isDone || this.isCutOff || this.failure !== undefined;
  }

  /**
   * Adds the bytes for the caller that these bytes of the engine complete; maybe none. Never throws:
   * what is no chat stream becomes a `failure`.
   */
  push(chunk: Buffer, into: Frame): void {
    if (this.#isDone || this.isCutOff || this.failure !== undefined) return;
    const { events } = this.#options;
    // Events of a known layout, up to the first that is none.
    let copied = 0;
    while (this.#isBetween && copied < chunk.length) {
      const template = this.#templateOf(chunk, copied);
      if (template === undefined) break;
      if (events !== undefined) tell(events, template, chunk, into);
      else {
        // Mostly the chunk is one event.
        const isLast = template.end === chunk.length;
        const leftBytes = chunk.length - copied;
        into.room(isLast ? leftBytes + template.addedBytes : template.mostBytes(leftBytes));
        into.end = template.write(chunk, into.bytes, into.end);
      }
      copied = template.end;
    }
    if (copied === chunk.length) return;
    const isFirstKnown = this.#isBetween;
    if (!this.#events.push(chunk.subarray(copied))) this.failure = BROKEN;
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      this.#take(data, into, isFirstKnown && data.event?.start === 0);
      if (this.isOver) break;
    }
    this.#isBetween = this.#events.isBetween;
  }

  /** The bytes of an event that the engine did not end with a blank line. Call at its end. */
  flush(): Buffer {
    const shown = new Frame();
    const data = this.isOver ? undefined : this.#events.finish();
    if (data !== undefined && isWhole(data)) this.#take(data, shown);
    return shown.take();
  }

  /** The first chunk of `include_search_results_in_stream`. */
  citationsChunk(citations: readonly SearchResult[]): Buffer {
    const parameters = { web_search_citations: citations };
    const more = { [`${this.#options.serviceName}_parameters`]: parameters };
    return Buffer.from(this.#ownChunk([], more));
  }

  /** What the engine said when it ended with nothing but calls of the held tool. */
  get heldRound(): HeldRound | undefined {
    return this.#choices.get(0)?.heldRound;
  }

  /** Whether a choice closed a block of thinking that its prompt had opened; see `StreamChoice`. */
  get opensThinking(): boolean | undefined {
    let opens: boolean | undefined;
    for (const choice of this.#choices.values()) opens = choice.opensThinking ?? opens;
    return opens;
  }

  /** Makes ready for another answer of an engine, which continues what was shown. */
  nextRound(maxOutputTokens: number): void {
    for (const choice of this.#choices.values()) choice.nextRound(maxOutputTokens);
    this.#options.events?.nextRound();
    this.#events = new SseEvents();
    this.#isBetween = true;
    this.#templates = [];
    this.reported = undefined;
    this.#isDone = false;
    this.isCutOff = false;
  }

  /**
   * The end of a complete stream: documents that were found between its rounds, open choices, then
   * usage and cost, then `[DONE]`.
   */
  closing(end: AnswerEnd, found?: readonly FoundDocument[]): Buffer {
    const shown = new Frame();
    const { events } = this.#options;
    if (events !== undefined) return Buffer.from(this.#closeChoices(events) + events.end(end));
    if (found !== undefined || this.#choices.size === 0) {
      const first = this.#choice(0);
      if (found !== undefined) {
        this.#startChoice(first, shown);
        shown.addText(this.#documentsChunk(found, first.addCall()));
      }
    }
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isHeld) continue;
      this.#startChoice(choice, shown);
      shown.addText(this.#ownChunk([choice.close(this.isCutOff ? 'length' : 'stop')]));
    }
    shown.addText(this.#usageText(end) + DONE_EVENT);
    return shown.take();
  }

  #closeChoices(events: OtherEvents): string {
    let text = '';
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isHeld) continue;
      text += events.choice(choice.close(this.isCutOff ? 'length' : 'stop'));
    }
    return text;
  }

  /** The chunk of usage and cost: the last of a complete stream, before the error of another. */
  usageChunk(end: AnswerEnd): Buffer {
    return Buffer.from(this.#usageText(end));
  }

  #usageText(end: AnswerEnd): string {
    return this.#ownChunk([], endMembers(this.#options.serviceName, end));
  }

  /** The layout of the event that is there whole from `start` on, its text counted. */
  #templateOf(bytes: Buffer, start: number): ChunkTemplate | undefined {
    const templates = this.#templates;
    let found: ChunkTemplate | undefined;
    for (let at = 0; at < templates.length && found === undefined; at += 1) {
      const template = templates[at];
      if (template?.matches(bytes, start) === true) found = template;
    }
    if (this.#layouts !== undefined) found ??= this.#sharedTemplate(this.#layouts, bytes, start);
    if (found === undefined || found.textEnd === found.textStart) return found;
    // Where the grant ends the text is cut, which takes parsing.
    if (!found.counter.count(found.kind, found.textBytes)) return undefined;
    this.hasShownText = true;
    return found;
  }

  /** The same of a layout that other streams have learned, its text not counted. */
  #sharedTemplate(layouts: ChunkLayouts, bytes: Buffer, start: number): ChunkTemplate | undefined {
    for (const layout of layouts.of(this.#options.model)) {
      const counter = this.#choices.get(layout.choice);
      if (counter?.hasRole !== true) continue;
      const template = templateOf(layout, counter, this.#options, bytes, start);
      if (template?.matches(bytes, start) !== true) continue;
      this.#keep(template);
      return template;
    }
    return undefined;
  }

  #keep(template: ChunkTemplate): void {
    if (this.#templates.length >= MAX_LAYOUTS) this.#templates.pop();
    this.#templates.unshift(template);
  }

  /** `isUnlike`: the event is known to have no layout. */
  #take(data: SseData, shown: Frame, isUnlike = false): void {
    const { event } = data;
    if (event !== undefined && !isUnlike) {
      const template = this.#templateOf(data.bytes, event.start);
      if (template !== undefined) {
        const { events } = this.#options;
        if (events !== undefined) return tell(events, template, data.bytes, shown);
        shown.room(template.mostBytes(event.end - event.start));
        shown.end = template.write(data.bytes, shown.bytes, shown.end);
        return;
      }
    }
    const text = data.bytes.toString('utf8', data.start, data.end).trim();
    if (text === '') return;
    if (text === DONE) {
      this.#isDone = true;
      return;
    }
    const chunk = parseChunk(text);
    if (chunk === undefined) {
      this.failure = BROKEN;
      return;
    }
    if (chunk['error'] !== undefined && chunk['error'] !== null) {
      this.failure = engineFailure(chunk['error']);
      return;
    }
    if (this.#options.readsCitations === true) this.cited = citedBy(chunk, this.cited);
    const { choices } = chunk;
    const given = Array.isArray(choices) ? this.#showChoices(choices, shown) : [];
    // The usage beside a text includes it.
    const saidUsage = chunk['usage'] ?? undefined;
    const usage = saidUsage === undefined ? undefined : readUsage(saidUsage);
    if (usage !== undefined) this.reported = { usage, atBytes: outputBytes(this.tally) };
    if (given.length === 0) return;
    this.hasShownText ||= given.some(hasText);
    const { id, model, createdS, events } = this.#options;
    if (events !== undefined) {
      for (const choice of given) shown.addText(events.choice(choice));
      this.#learn(chunk, data);
      return;
    }
    const { usage: _taken, ...others } = chunk;
    const head = { id, object: CHUNK_OBJECT, created: createdS, model };
    shown.addText(eventText({ ...others, ...head, choices: given }));
    this.#learn(chunk, data);
    const { documents } = this.#options;
    if (documents !== undefined && given.some((choice) => choice['index'] === 0)) {
      this.#showDocuments(shown);
    }
  }

  #showChoices(choices: readonly unknown[], before: Frame): JsonObject[] {
    const shown: JsonObject[] = [];
    for (let position = 0; position < choices.length; position += 1) {
      const given = choices[position];
      if (!isJsonObject(given)) continue;
      const index = typeof given['index'] === 'number' ? given['index'] : position;
      if (!Number.isSafeInteger(index) || index < 0 || index >= this.#options.choiceCount) continue;
      const choice = this.#choice(index);
      const one = choice.show(given);
      if (choice.isCut) this.#endWhereCut(choice);
      if (one === undefined) continue;
      if (!choice.hasRole) this.#startChoice(choice, before);
      shown.push(one);
    }
    return shown;
  }

  #endWhereCut({ isEndless }: StreamChoice): void {
    const choices = [...this.#choices.values()];
    const haveEnded =
      choices.length === this.#options.choiceCount && choices.every((choice) => choice.isFinished);
    this.isCutOff = haveEnded || isEndless;
  }

  #choice(index: number): StreamChoice {
    const known = this.#choices.get(index);
    if (known !== undefined) return known;
    const firstCall = index === 0 && this.#options.documents !== undefined ? 1 : 0;
    const made = new StreamChoice(index, this.#options, firstCall);
    this.#choices.set(index, made);
    return made;
  }

  /** The role chunk, for engines that leave it out. */
  #startChoice(choice: StreamChoice, shown: Frame): void {
    if (choice.hasRole) return;
    choice.hasRole = true;
    if (this.#options.events !== undefined) return;
    const delta = { role: 'assistant', content: '' };
    const { index } = choice;
    shown.addText(this.#ownChunk([{ index, delta, logprobs: null, finish_reason: null }]));
    if (index === 0) this.#showDocuments(shown);
  }

  #showDocuments(shown: Frame): void {
    const { documents } = this.#options;
    if (documents === undefined || this.#areDocumentsShown) return;
    this.#areDocumentsShown = true;
    shown.addText(this.#documentsChunk(documents, 0));
  }

  #documentsChunk(documents: readonly FoundDocument[], index: number): string {
    const call = documentsCall(this.#options.serviceName, documents);
    const delta = { tool_calls: [{ index, ...call }] };
    return this.#ownChunk([{ index: 0, delta, logprobs: null, finish_reason: null }]);
  }

  #ownChunk(choices: readonly JsonObject[], more: JsonObject = {}): string {
    const { id, model, createdS } = this.#options;
    const head = { id, object: CHUNK_OBJECT, created: createdS, model };
    return eventText({ ...head, choices, ...more });
  }

  #learn(chunk: JsonObject, data: SseData): void {
    if (!this.#canLearn) return;
    const text = textOnlyKind(chunk, this.#options.documents !== undefined);
    const counter = text === undefined ? undefined : this.#choices.get(text.choice);
    if (text === undefined || counter === undefined) return;
    const layout = learnLayout(data, text, this.#options);
    if (layout === undefined || data.event === undefined) return;
    const template = templateOf(layout, counter, this.#options, data.bytes, data.event.start);
    if (template !== undefined) this.#keep(template);
    if (this.#isShareable(layout, data)) this.#layouts?.add(this.#options.model, layout);
  }

  /** Whether other streams can have events of this layout, and none has told. */
  #isShareable(layout: ChunkLayout, { bytes, event }: SseData): boolean {
    // The index of a call is what this stream has made of it.
    if (layout.gaps.length < ALL_GAPS || layout.kind === 'tool' || event === undefined)
      return false;
    const known = this.#layouts?.of(this.#options.model) ?? [];
    return !known.some((one) => {
      const counter = this.#choices.get(one.choice);
      if (counter === undefined) return false;
      return templateOf(one, counter, this.#options, bytes, event.start) !== undefined;
    });
  }
}

/** The text, the id and the time. */
const ALL_GAPS = 3;

/** One event with JSON data. */
function eventText(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** Of an event of a known layout another protocol gets nothing but the text. */
function tell(events: OtherEvents, template: ChunkTemplate, bytes: Buffer, into: Frame): void {
  const { kind, call, textStart, textEnd } = template;
  into.addText(events.text(kind, bytes.toString('utf8', textStart, textEnd), call));
}

function hasText(choice: JsonObject): boolean {
  return isJsonObject(choice['delta']) && outputBytes(tallyOf(choice['delta'])) > 0;
}

const BROKEN: EngineFailure = {
  message: 'The engine sent a broken stream',
  type: undefined,
  code: 'broken_stream',
};

/** An event cut by the end of the stream is not shown; `[DONE]` and whole JSON are. */
function isWhole(data: SseData): boolean {
  const text = data.bytes.toString('utf8', data.start, data.end).trim();
  return text === DONE || parseChunk(text) !== undefined;
}

/** `undefined` for what is no JSON object. */
function parseChunk(text: string): JsonObject | undefined {
  try {
    const chunk: unknown = JSON.parse(text);
    return isJsonObject(chunk) ? chunk : undefined;
  } catch {
    // Reported as a failure of the engine; the bytes stay inside.
    return undefined;
  }
}

function engineFailure(error: unknown): EngineFailure {
  if (!isJsonObject(error)) return { message: String(error), type: undefined, code: undefined };
  const text = (value: unknown): string | undefined =>
    typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
  return {
    message: text(error['message']) ?? 'no message',
    type: text(error['type']),
    code: text(error['code']),
  };
}

/** The events that end a failed stream: the error, then `[DONE]`. */
export function streamErrorEvents(fault: Fault): Buffer {
  const { type, code } = errorNames(fault);
  const retryAfter = fault.options.retryAfterSeconds;
  const error = {
    message: fault.message,
    type,
    code,
    param: null,
    ...(retryAfter === undefined ? {} : { retry_after: retryAfter }),
  };
  return Buffer.from(eventText({ error }) + DONE_EVENT);
}

function errorNames(fault: Fault): { readonly type: string; readonly code: string } {
  if (fault.code === 'INFERENCE_FAILED') return { type: 'api_error', code: 'upstream_error' };
  if (fault.code === 'CONTENT_POLICY_VIOLATION') {
    return { type: 'content_filter_error', code: 'content_blocked_by_provider' };
  }
  const isCallers = fault.status < 500 && fault.status !== 429;
  const type = isCallers ? 'invalid_request_error' : 'server_error';
  return { type, code: fault.code.toLowerCase() };
}
