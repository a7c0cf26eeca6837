/**
 * Converts a chat stream of an engine into the stream of the caller: bytes in, bytes out, without
 * I/O.
 *
 * The order is always: role, deltas, finish reason, usage (after the charge), `[DONE]`. Events of a
 * known layout pass as bytes with the caller's id and model (`chunk-layout.ts`); others are parsed.
 * The stream counts output for the bill, and truncates a choice at its grant.
 */
import {
  addLayout,
  type BoundaryLayout,
  CHUNK_OBJECT,
  type ChunkLayout,
  type ChunkLayouts,
  LayoutMatch,
  learnLayout,
  shownAround,
  stepOf,
  type TextLayout,
} from './chunk-layout.ts';
import type { SearchRound } from './search-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { parsedJsonObject } from '../../json/json-text.ts';
import {
  addTally,
  isInterrupted,
  noOutput,
  outputBytes,
  type OutputTally,
  tallyOf,
  type TextKind,
} from './chat-choice.ts';
import {
  citedBy,
  documentsCall,
  NOTHING_CITED,
  type ResponseEnd,
  type ResponseFrame,
  usageChunkText,
} from './chat-response.ts';
import type { FoundDocument, RawResult, SearchResult } from '../web/web.ts';
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
  INTERRUPTED_STREAM,
  eventText,
  parsedEvent,
} from './stream-events.ts';

/** Writes events of another protocol in place of chunks. */
interface OtherEvents {
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
  #isBetween = true;
  readonly #choices = new Map<number, StreamChoice>();
  readonly #rewritten: RewrittenLayout[] = [];
  /** Rewritten text has no constant layout. */
  readonly #canLearn: boolean;
  /** Layouts shared by the streams of the model. */
  readonly #layouts: ChunkLayout[] | undefined;
  #ownLayouts: ChunkLayout[] = [];
  /** Whether pieces of tool calls keep the engine's index. */
  #canPassCalls: boolean;
  #learned = 0;
  readonly #match = new LayoutMatch();
  #isDone = false;
  #areDocumentsShown = false;
  reported: ReportedUsage | undefined;
  cited: readonly RawResult[] = NOTHING_CITED;
  hasShownText = false;
  /**
   * Whether every choice has ended, one of them at its grant, so that the engine can be stopped.
   */
  isCutOff = false;
  failure: EngineFailure | undefined;

  constructor(options: ChatStreamOptions) {
    this.#options = options;
    this.#canLearn =
      !options.stripThinkTags && !options.dropReasoning && options.searchTool === undefined;
    const isPlain = options.documents === undefined && options.readsCitations !== true;
    this.#canPassCalls = options.documents === undefined;
    this.#layouts = this.#canLearn && isPlain ? options.layouts?.of(options.model) : undefined;
  }

  get tally(): Readonly<OutputTally> {
    const tally = noOutput();
    for (const choice of this.#choices.values()) addTally(tally, choice.tally);
    return tally;
  }

  /**
   * Whether the completion is complete: after `[DONE]`, the end of every choice, or the end of the
   * grant.
   */
  get isComplete(): boolean {
    if (this.failure !== undefined || this.#choices.size === 0) return false;
    if (this.#isDone || this.isCutOff) return true;
    for (const choice of this.#choices.values()) if (!choice.isFinished) return false;
    return true;
  }

  get isOver(): boolean {
    return this.#isDone || this.isCutOff || this.failure !== undefined;
  }

  /**
   * Appends the caller's bytes for a chunk of the engine. Never throws: an invalid stream sets
   * `failure`.
   */
  push(chunk: Buffer, into: Frame): void {
    if (this.#isDone || this.isCutOff || this.failure !== undefined) return;
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

  citationsChunk(citations: readonly SearchResult[]): Buffer {
    const parameters = { web_search_citations: citations };
    const more = { [`${this.#options.serviceName}_parameters`]: parameters };
    return Buffer.from(this.#ownChunk([], more));
  }

  get searchRound(): SearchRound | undefined {
    return this.#choices.get(0)?.searchRound;
  }

  /** Whether a choice closed a thinking block that its prompt had opened. */
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
    this.reported = undefined;
    this.#isDone = false;
    this.isCutOff = false;
  }

  /**
   * Ends a complete stream: search results of its rounds, open choices, usage and cost, `[DONE]`.
   */
  closing(end: ResponseEnd, found?: readonly FoundDocument[]): Buffer {
    const { events } = this.#options;
    let text = '';
    if (events === undefined && (found !== undefined || this.#choices.size === 0)) {
      const first = this.#choice(0);
      if (found !== undefined) {
        text += this.#started(first) + this.#documentsChunk(found, first.addCall());
      }
    }
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isEndPending) continue;
      const last = choice.close(this.isCutOff ? 'length' : 'stop');
      text += events?.choice(last) ?? this.#started(choice) + this.#ownChunk([last]);
    }
    if (events !== undefined) return Buffer.from(text + events.end(end));
    return Buffer.from(`${text}data: ${usageChunkText(this.#options, end)}\n\n${DONE_EVENT}`);
  }

  usageChunk(end: ResponseEnd): Buffer {
    return Buffer.from(`data: ${usageChunkText(this.#options, end)}\n\n`);
  }

  /**
   * Passes on the complete event of a known layout at `start` and counts its text. Returns its end,
   * or -1 if the event has to be parsed.
   */
  #pass(bytes: Buffer, start: number, into: Frame): number {
    const match = this.#match;
    const layout =
      match.find(this.#ownLayouts, bytes, start) ??
      (this.#layouts && match.find(this.#layouts, bytes, start));
    if (layout === undefined) return -1;
    if (layout.kind === 'boundary') return this.#passBoundary(layout, into);
    const { textStart, textEnd, end } = match;
    const rewritten = this.#rewrittenOf(layout);
    if (rewritten === undefined) return -1;
    const { choice, before, after } = rewritten;
    if (textEnd > textStart) {
      // At the end of the grant the text is truncated, which requires parsing.
      if (!choice.count(layout.kind, match.textBytes)) return -1;
      this.hasShownText = true;
    }
    const { events } = this.#options;
    if (events !== undefined) {
      into.addText(
        events.text(layout.kind, bytes.toString('utf8', textStart, textEnd), layout.call),
      );
      return end;
    }
    const leftBytes = bytes.length - start;
    const addedBytes = before.length + after.length - (end - start) + (textEnd - textStart);
    into.reserve(leftBytes + Math.max(0, addedBytes) * Math.ceil(leftBytes / (end - start)));
    let at = into.end + before.copy(into.bytes, into.end);
    at += bytes.copy(into.bytes, at, textStart, textEnd);
    into.end = at + after.copy(into.bytes, at);
    return end;
  }

  #passBoundary(layout: BoundaryLayout, into: Frame): number {
    if (this.#options.events !== undefined) return -1;
    if (layout.choice >= this.#options.choiceCount) return -1;
    if (!this.#choice(layout.choice).passBoundary(layout)) return -1;
    into.addText(shownAround(layout, this.#options).before);
    return this.#match.end;
  }

  /**
   * The layout as this stream sends it; `undefined` if its choice has to begin by another chunk.
   */
  #rewrittenOf(layout: TextLayout): RewrittenLayout | undefined {
    for (const known of this.#rewritten) if (known.layout === layout) return known;
    const { choice: index, saysRole } = layout;
    const { choiceCount, events } = this.#options;
    // Some engines repeat the role in each chunk, so the first text may begin the choice.
    const isFirst = saysRole && index < choiceCount && events === undefined;
    const choice = isFirst ? this.#choice(index) : this.#choices.get(index);
    if (choice === undefined || !(isFirst || choice.hasRole)) return undefined;
    choice.hasRole = true;
    const { before, after } = shownAround(layout, this.#options);
    const made = { layout, choice, before: Buffer.from(before), after: Buffer.from(after) };
    this.#rewritten.push(made);
    return made;
  }

  /** `isUnlike`: no known layout matches the event. */
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
    const chunk = parsedEvent(text);
    if (chunk === undefined) {
      this.failure = BROKEN_STREAM;
      return;
    }
    // Some engines send the error without an object around it.
    const error = chunk['object'] === 'error' ? chunk : (chunk['error'] ?? undefined);
    if (error !== undefined) {
      this.failure = engineFailure(error);
      return;
    }
    if (this.#options.readsCitations === true) this.cited = citedBy(chunk, this.cited);
    const { choices } = chunk;
    const isEmpty = !Array.isArray(choices) || choices.length === 0;
    const given = isEmpty ? NO_CHOICES : this.#showChoices(choices, shown);
    // Usage in the same chunk as a text includes that text.
    const saidUsage = chunk['usage'] ?? (isEmpty ? undefined : usageOfChoice(choices));
    const usage = saidUsage === undefined ? undefined : readUsage(saidUsage);
    if (usage !== undefined) {
      let atBytes = 0;
      for (const choice of this.#choices.values()) atBytes += choice.bytes;
      this.reported = { usage, atBytes, tier: chunk['service_tier'] };
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
      if (choice.bytes === 0 && isInterrupted(given['finish_reason'])) {
        this.failure = INTERRUPTED_STREAM;
        return [];
      }
      if (choice.isCut) this.#endWhereCut(choice);
      if (this.#canPassCalls && choice.areCallsRenumbered) {
        this.#canPassCalls = false;
        this.#ownLayouts = this.#ownLayouts.filter(({ kind }) => kind !== 'tool');
      }
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
    const step = stepOf(chunk, this.#canPassCalls);
    if (step === undefined || !this.#choices.has(step.choice)) return;
    const isBoundary = step.kind === 'boundary';
    // Role and end occur once per stream, so only shared layouts are worth learning.
    if (isBoundary && this.#layouts === undefined) return;
    this.#learned += 1;
    const layout = learnLayout(data, step, this.#options);
    if (layout === undefined) return;
    // The index of a tool call is specific to this stream.
    const isOfAll = layout.kind !== 'tool' && layout.gaps.length === (isBoundary ? 2 : 3);
    const layouts = (isOfAll ? this.#layouts : undefined) ?? this.#ownLayouts;
    if (this.#match.find(layouts, bytes, event.start) === undefined) addLayout(layouts, layout);
  }
}

interface RewrittenLayout {
  readonly layout: TextLayout;
  readonly choice: StreamChoice;
  readonly before: Buffer;
  readonly after: Buffer;
}

const MAX_LEARNED = 32;
const NO_CHOICES: readonly JsonObject[] = [];

function hasText(choice: JsonObject): boolean {
  return isJsonObject(choice['delta']) && outputBytes(tallyOf(choice['delta'])) > 0;
}

/** Some engines put usage into the last chunk of a choice. */
function usageOfChoice([choice]: readonly unknown[]): unknown {
  return isJsonObject(choice) ? (choice['usage'] ?? undefined) : undefined;
}

/** An event truncated by the end of the stream is dropped. */
function isWhole(data: SseData): boolean {
  const text = data.bytes.toString('utf8', data.start, data.end).trim();
  return text === DONE || parsedJsonObject(text) !== undefined;
}
