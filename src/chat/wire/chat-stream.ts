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
  addLayout,
  type BoundaryLayout,
  CHUNK_OBJECT,
  type ChunkLayout,
  type ChunkLayouts,
  ChunkTemplate,
  LayoutMatch,
  learnLayout,
  shownAround,
  stepOf,
  type TextLayout,
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
import {
  type ResponseEnd,
  type ResponseFrame,
  documentsCall,
  usageChunkText,
} from './chat-response.ts';
import type { FoundDocument, RawResult, SearchResult } from '../web/web.ts';
import { citedBy, NOTHING_CITED } from './engine-citations.ts';
import { SseEvents, type SseData } from '../../http/sse-events.ts';
import { Frame } from '../../http/stream-writer.ts';
import { StreamChoice, type StreamChoiceOptions } from './stream-choice.ts';
import { readUsage, type ReportedUsage } from '../../engines/usage.ts';
import {
  BROKEN_STREAM,
  DONE,
  DONE_EVENT,
  type EngineFailure,
  engineFailure,
  eventText,
} from './stream-events.ts';

/** Another protocol's events in the place of chunks. */
export interface OtherEvents {
  text(kind: TextKind, json: string, call: number): string;
  choice(choice: JsonObject): string;
  nextRound(): void;
  end(end: ResponseEnd): string;
}

export interface ChatStreamOptions extends StreamChoiceOptions, ResponseFrame {
  readonly events?: OtherEvents | undefined;
  readonly layouts?: ChunkLayouts | undefined;
}

export class ChatStream {
  readonly #options: ChatStreamOptions;
  #events = new SseEvents();
  /** Whether the engine's next byte is the first of an event. */
  #isBetween = true;
  readonly #choices = new Map<number, StreamChoice>();
  #templates: ChunkTemplate[] = [];
  /** Rewritten text has no constant layout. */
  readonly #canLearn: boolean;
  /** Of the model, where an event of a layout says nothing else. */
  readonly #layouts: ChunkLayout[] | undefined;
  /** Events that were learned from: more than a few are all different. */
  #learned = 0;
  readonly #match = new LayoutMatch();
  #isDone = false;
  #areDocumentsShown = false;
  reported: ReportedUsage | undefined;
  cited: readonly RawResult[] = NOTHING_CITED;
  /** Whether the caller was given any text, in this round or before. */
  hasShownText = false;
  /** Whether every choice has ended, one of them where its grant did: the engine may stop. */
  isCutOff = false;
  failure: EngineFailure | undefined;

  constructor(options: ChatStreamOptions) {
    this.#options = options;
    this.#canLearn =
      !options.stripThinkTags && !options.dropReasoning && options.heldTool === undefined;
    const isPlain = options.documents === undefined && options.readsCitations !== true;
    this.#layouts = this.#canLearn && isPlain ? options.layouts?.of(options.model) : undefined;
  }

  get tally(): Readonly<OutputTally> {
    const first = this.#choices.get(0);
    if (first !== undefined && this.#choices.size === 1) return first.tally;
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
    // Events of a known layout, up to the first that is none.
    let copied = 0;
    while (this.#isBetween && copied < chunk.length) {
      const end = this.#pass(chunk, copied, into);
      if (end === -1) break;
      copied = end;
    }
    if (copied === chunk.length) return;
    const isFirstKnown = this.#isBetween;
    if (!this.#events.push(chunk.subarray(copied))) this.failure = BROKEN_STREAM;
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      this.#take(data, into, isFirstKnown && data.event?.start === 0);
      if (this.isOver) break;
    }
    this.#isBetween = this.#events.isBetween;
  }

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

  get heldRound(): HeldRound | undefined {
    return this.#choices.get(0)?.heldRound;
  }

  /** Whether a choice closed a block of thinking that its prompt had opened; see `StreamChoice`. */
  get opensThinking(): boolean | undefined {
    let opens: boolean | undefined;
    for (const choice of this.#choices.values()) opens = choice.opensThinking ?? opens;
    return opens;
  }

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
  closing(end: ResponseEnd, found?: readonly FoundDocument[]): Buffer {
    const { events } = this.#options;
    if (events !== undefined) return Buffer.from(this.#closeChoices(events) + events.end(end));
    let text = '';
    if (found !== undefined || this.#choices.size === 0) {
      const first = this.#choice(0);
      if (found !== undefined) {
        text += this.#started(first) + this.#documentsChunk(found, first.addCall());
      }
    }
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isHeld) continue;
      const last = choice.close(this.isCutOff ? 'length' : 'stop');
      text += this.#started(choice) + this.#ownChunk([last]);
    }
    return Buffer.from(`${text}data: ${usageChunkText(this.#options, end)}\n\n${DONE_EVENT}`);
  }

  #closeChoices(events: OtherEvents): string {
    let text = '';
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isHeld) continue;
      text += events.choice(choice.close(this.isCutOff ? 'length' : 'stop'));
    }
    return text;
  }

  usageChunk(end: ResponseEnd): Buffer {
    return Buffer.from(`data: ${usageChunkText(this.#options, end)}\n\n`);
  }

  /**
   * Shows the event of a known layout that is there whole from `start` on, its text counted; gives
   * its end, or -1 where it takes parsing.
   */
  #pass(bytes: Buffer, start: number, into: Frame): number {
    const templates = this.#templates;
    let found: ChunkTemplate | undefined;
    for (let at = 0; at < templates.length && found === undefined; at += 1) {
      const template = templates[at];
      if (template?.matches(bytes, start) === true) found = template;
    }
    if (found === undefined) {
      const layout = this.#layouts && this.#match.find(this.#layouts, bytes, start);
      if (layout === undefined) return -1;
      if (layout.kind === 'boundary') return this.#passBoundary(layout, into);
      found = this.#templateOf(layout, bytes, start);
      if (found === undefined) return -1;
    }
    const { end } = found;
    if (found.textEnd > found.textStart) {
      // Where the grant ends the text is cut, which takes parsing.
      if (!found.counter.count(found.kind, found.textBytes)) return -1;
      this.hasShownText = true;
    }
    const { events } = this.#options;
    if (events !== undefined) {
      // Another protocol gets nothing but the text.
      const text = bytes.toString('utf8', found.textStart, found.textEnd);
      into.addText(events.text(found.kind, text, found.call));
      return end;
    }
    // Mostly the bytes are one event.
    const leftBytes = bytes.length - start;
    into.reserve(end === bytes.length ? leftBytes + found.addedBytes : found.mostBytes(leftBytes));
    into.end = found.write(bytes, into.bytes, into.end);
    return end;
  }

  /** The same of an event without text, of the layout that was found. */
  #passBoundary(layout: BoundaryLayout, into: Frame): number {
    if (this.#options.events !== undefined) return -1;
    if (layout.choice >= this.#options.choiceCount) return -1;
    if (!this.#choice(layout.choice).passBoundary(layout)) return -1;
    into.addText(shownAround(layout, this.#options).before);
    return this.#match.end;
  }

  /** The template of a layout, for the event that was found to have it; kept for those that follow. */
  #templateOf(layout: TextLayout, bytes: Buffer, start: number): ChunkTemplate | undefined {
    const { choice: index, saysRole } = layout;
    const { choiceCount, events } = this.#options;
    // Some engines name the role beside each text, so beside the first.
    const isFirst = saysRole && index < choiceCount && events === undefined;
    const choice = isFirst ? this.#choice(index) : this.#choices.get(index);
    if (choice === undefined || !(isFirst || choice.hasRole)) return undefined;
    choice.hasRole = true;
    const template = new ChunkTemplate(layout, choice, this.#options, this.#match, bytes, start);
    if (this.#templates.length >= MAX_TEMPLATES) this.#templates.pop();
    this.#templates.unshift(template);
    return template.matches(bytes, start) ? template : undefined;
  }

  /** `isUnlike`: the event is known to have no layout. */
  #take(data: SseData, shown: Frame, isUnlike = false): void {
    const { event } = data;
    if (event !== undefined && !isUnlike && this.#pass(data.bytes, event.start, shown) !== -1)
      return;
    const text = data.bytes.toString('utf8', data.start, data.end).trim();
    if (text === '') return;
    if (text === DONE) {
      this.#isDone = true;
      return;
    }
    const chunk = parseChunk(text);
    if (chunk === undefined) {
      this.failure = BROKEN_STREAM;
      return;
    }
    if (chunk['error'] !== undefined && chunk['error'] !== null) {
      this.failure = engineFailure(chunk['error']);
      return;
    }
    if (this.#options.readsCitations === true) this.cited = citedBy(chunk, this.cited);
    const { choices } = chunk;
    const isEmpty = !Array.isArray(choices) || choices.length === 0;
    const given = isEmpty ? NO_CHOICES : this.#showChoices(choices, shown);
    // The usage beside a text includes it.
    const saidUsage = chunk['usage'] ?? (isEmpty ? undefined : usageOfChoice(choices));
    const usage = saidUsage === undefined ? undefined : readUsage(saidUsage);
    if (usage !== undefined) {
      let atBytes = 0;
      for (const choice of this.#choices.values()) atBytes += choice.bytes;
      this.reported = { usage, atBytes };
    }
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
      shown.addText(this.#preparedDocuments());
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
      if (!choice.hasRole) before.addText(this.#started(choice));
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

  #started(choice: StreamChoice): string {
    if (choice.hasRole) return '';
    choice.hasRole = true;
    if (this.#options.events !== undefined) return '';
    const delta = { role: 'assistant', content: '' };
    const { index } = choice;
    const chunk = this.#ownChunk([{ index, delta, logprobs: null, finish_reason: null }]);
    return index === 0 ? chunk + this.#preparedDocuments() : chunk;
  }

  #preparedDocuments(): string {
    const { documents } = this.#options;
    if (documents === undefined || this.#areDocumentsShown) return '';
    this.#areDocumentsShown = true;
    return this.#documentsChunk(documents, 0);
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
    const { event, bytes } = data;
    if (!this.#canLearn || event === undefined || this.#learned >= MAX_LEARNED) return;
    const step = stepOf(chunk, this.#options.documents !== undefined);
    if (step === undefined || !this.#choices.has(step.choice)) return;
    const isBoundary = step.kind === 'boundary';
    // They come once in a stream.
    if (isBoundary && this.#layouts === undefined) return;
    this.#learned += 1;
    const layout = learnLayout(data, step, this.#options);
    if (layout === undefined) return;
    // The index of a call is what this stream has made of it.
    const isOfAll = layout.kind !== 'tool' && layout.gaps.length === (isBoundary ? 2 : 3);
    const layouts = isOfAll ? this.#layouts : undefined;
    const isKnown =
      layouts !== undefined && this.#match.find(layouts, bytes, event.start) !== undefined;
    if (layouts !== undefined && !isKnown) addLayout(layouts, layout);
    if (layout.kind === 'boundary') return;
    if (this.#match.find([layout], bytes, event.start) !== undefined) {
      this.#templateOf(layout, bytes, event.start);
    }
  }
}

/** Templates of one stream that are worth comparing with. */
const MAX_TEMPLATES = 8;
/** An engine that writes something new into each event has no layouts. */
const MAX_LEARNED = 32;
const NO_CHOICES: readonly JsonObject[] = [];

function hasText(choice: JsonObject): boolean {
  return isJsonObject(choice['delta']) && outputBytes(tallyOf(choice['delta'])) > 0;
}

/** Some engines put their usage into the last chunk of a choice. */
function usageOfChoice([choice]: readonly unknown[]): unknown {
  return isJsonObject(choice) ? (choice['usage'] ?? undefined) : undefined;
}

/** An event cut by the end of the stream is not shown; `[DONE]` and whole JSON are. */
function isWhole(data: SseData): boolean {
  const text = data.bytes.toString('utf8', data.start, data.end).trim();
  return text === DONE || parseChunk(text) !== undefined;
}

function parseChunk(text: string): JsonObject | undefined {
  try {
    const chunk: unknown = JSON.parse(text);
    return isJsonObject(chunk) ? chunk : undefined;
  } catch {
    // Reported as a failure of the engine; the bytes stay inside.
    return undefined;
  }
}
