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
  addedBytes,
  decodedBytes,
  learnTemplate,
  textEnd,
  textOnlyKind,
  writeShown,
  type ChunkTemplate,
} from './chunk-template.ts';
import type { HeldRound } from './held-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { addTally, noOutput, outputBytes, type OutputTally, tallyOf } from './output-tally.ts';
import { documentsCall, type SearchDocument } from './search-documents.ts';
import { SseEvents, type SseData } from './sse-events.ts';
import { StreamChoice, type StreamChoiceOptions } from './stream-choice.ts';
import { CHUNK_OBJECT, DONE, DONE_EVENT, eventText } from './stream-frames.ts';
import { ByteWriter } from '../../json/byte-writer.ts';
import { parametersKey, type WebSearchCitation } from './svc-parameters.ts';
import {
  chatUsage,
  readUsage,
  type Cost,
  type ReportedUsage,
  type TokenUsage,
} from '../../engines/usage.ts';

export interface ChatStreamOptions extends StreamChoiceOptions {
  /** `chatcmpl-` and 32 hex. */
  readonly id: string;
  /** The resolved model id. */
  readonly model: string;
  /** Unix seconds, for the chunks that we write ourselves. */
  readonly createdS: number;
  readonly serviceName: string;
  /** An id for a tool call that the engine gave none, for example `call_…`. */
  readonly newCallId: () => string;
  /** Shown as a tool call after the role chunk. */
  readonly documents?: readonly SearchDocument[];
}

export interface StreamClosing {
  readonly usage: TokenUsage;
  readonly cost: Cost;
  /** The echo, from `echoParameters`. */
  readonly parameters: JsonObject;
}

/** An error that the engine sent inside its stream, or `broken_stream`: for the log, not the caller. */
export interface EngineFailure {
  readonly message: string;
  readonly type: string | undefined;
  readonly code: string | undefined;
}

/** More layouts than this are not worth comparing with; the oldest gives way. */
const MAX_TEMPLATES = 8;

export class ChatStream {
  readonly #options: ChatStreamOptions;
  #events = new SseEvents();
  /** Whether the engine's next byte is the first of an event. */
  #isBetween = true;
  readonly #choices = new Map<number, StreamChoice>();
  #templates: ChunkTemplate[] = [];
  /** Rewritten text has no constant layout. */
  readonly #canLearn: boolean;
  #reported: ReportedUsage | undefined;
  #failure: EngineFailure | undefined;
  #isDone = false;
  #isCutOff = false;
  #hasShownText = false;
  #areDocumentsShown = false;

  constructor(options: ChatStreamOptions) {
    this.#options = options;
    this.#canLearn =
      !options.stripThinkTags && !options.dropReasoning && options.heldTool === undefined;
  }

  /** What the engine said last of its usage, maybe before its end. */
  get reported(): ReportedUsage | undefined {
    return this.#reported;
  }

  /** What was produced so far in this round. */
  get tally(): OutputTally {
    const tally = noOutput();
    for (const choice of this.#choices.values()) addTally(tally, choice.tally);
    return tally;
  }

  /** Whether the caller was given any text, in this round or before. */
  get hasShownText(): boolean {
    return this.#hasShownText;
  }

  /** Whether every choice has ended, one of them where its grant did: the engine may stop. */
  get isCutOff(): boolean {
    return this.#isCutOff;
  }

  /** The engine's error; nothing that comes after it is shown. */
  get failure(): EngineFailure | undefined {
    return this.#failure;
  }

  /**
   * Whether the answer is whole: `[DONE]`, an end to each choice that began, or the end of the
   * grant. A stream that ends before was broken off, and one without any choice is no answer.
   */
  get isComplete(): boolean {
    if (this.#failure !== undefined || this.#choices.size === 0) return false;
    if (this.#isDone || this.#isCutOff) return true;
    return [...this.#choices.values()].every((choice) => choice.isFinished);
  }

  /** Whether `[DONE]`, an error or the end of the grant has come: the rest needs no reading. */
  get isOver(): boolean {
    return this.#isDone || this.#isCutOff || this.#failure !== undefined;
  }

  /**
   * The bytes for the caller that these bytes of the engine complete; may be empty. Never throws:
   * what is no chat stream becomes a `failure`.
   */
  push(chunk: Buffer): Buffer {
    if (this.isOver) return EMPTY;
    const [newest] = this.#templates;
    const slackBytes = newest === undefined ? undefined : addedBytes(newest, chunk);
    const writer = new ByteWriter(chunk.length, slackBytes);
    const copied = this.#isBetween ? this.#copyEvents(chunk, writer) : 0;
    if (copied < chunk.length) this.#readEvents(chunk.subarray(copied), writer);
    return writer.finish();
  }

  /** The bytes of an event that the engine did not end with a blank line. Call at its end. */
  flush(): Buffer {
    if (this.isOver) return EMPTY;
    const writer = new ByteWriter(0);
    const data = this.#events.finish();
    if (data !== undefined && isWhole(data)) this.#take(data, writer);
    return writer.finish();
  }

  /** The first chunk of `include_search_results_in_stream`. */
  citationsChunk(citations: readonly WebSearchCitation[]): Buffer {
    const parameters = { web_search_citations: citations };
    return this.#ownChunk([], { [parametersKey(this.#options.serviceName)]: parameters });
  }

  /** What the engine said when it ended with nothing but calls of the held tool. */
  get heldRound(): HeldRound | undefined {
    const { heldTool } = this.#options;
    const first = this.#choices.get(0);
    if (heldTool === undefined || first?.isAsking !== true) return undefined;
    return first.heldRound(heldTool);
  }

  /** Makes ready for another answer of an engine, which continues what was shown. */
  nextRound(maxOutputTokens: number): void {
    for (const choice of this.#choices.values()) choice.nextRound(maxOutputTokens);
    this.#events = new SseEvents();
    this.#isBetween = true;
    this.#templates = [];
    this.#reported = undefined;
    this.#isDone = false;
    this.#isCutOff = false;
  }

  /** Documents that were found between the rounds of an answer; call it before `closing`. */
  foundDocuments(documents: readonly SearchDocument[]): Buffer {
    const first = this.#choice(0);
    const writer = new ByteWriter(0);
    this.#startChoice(first, writer);
    writer.write(this.#documentsChunk(documents, first.addCall()));
    return writer.finish();
  }

  /** The end of a complete stream: open choices, then usage and cost, then `[DONE]`. */
  closing(closing: StreamClosing): Buffer {
    const writer = new ByteWriter(0);
    if (this.#choices.size === 0) this.#choice(0);
    for (const choice of this.#choices.values()) {
      if (choice.isFinished && !choice.isHeld) continue;
      this.#startChoice(choice, writer);
      writer.write(this.#ownChunk([choice.close(this.#isCutOff ? 'length' : 'stop')]));
    }
    writer.write(this.usageChunk(closing));
    writer.write(DONE_EVENT);
    return writer.finish();
  }

  /** The chunk of usage and cost: the last of a complete stream, before the error of another. */
  usageChunk({ usage, cost, parameters }: StreamClosing): Buffer {
    const key = parametersKey(this.#options.serviceName);
    return this.#ownChunk([], { usage: chatUsage(usage), cost, [key]: parameters });
  }

  /** Copies events of a known layout, up to the first that is none; gives where that begins. */
  #copyEvents(bytes: Buffer, writer: ByteWriter): number {
    let at = 0;
    while (at < bytes.length) {
      const end = this.#copyEvent(bytes, at, writer);
      if (end === -1) break;
      at = end;
    }
    return at;
  }

  /** Gives where the event ends; -1 when its layout is not known, or it is not all there. */
  #copyEvent(bytes: Buffer, start: number, writer: ByteWriter): number {
    for (const template of this.#templates) {
      const end = textEnd(template, bytes, start);
      if (end === -1) continue;
      const textStart = start + template.headEnd;
      if (end > textStart) {
        const sizeBytes = decodedBytes(bytes, textStart, end);
        // Where the grant ends the text is cut, which takes parsing.
        if (!template.counter.count(template.kind, sizeBytes)) return -1;
        this.#hasShownText = true;
      }
      writeShown(template, { bytes, start: textStart, end }, writer);
      return end + template.tailEnd - template.headEnd;
    }
    return -1;
  }

  #readEvents(bytes: Buffer, writer: ByteWriter): void {
    if (!this.#events.push(bytes)) this.#failure = BROKEN;
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      this.#take(data, writer);
      if (this.isOver) break;
    }
    this.#isBetween = this.#events.isBetween;
  }

  #take(data: SseData, writer: ByteWriter): void {
    const { event } = data;
    if (event !== undefined && this.#copyEvent(data.bytes, event.start, writer) !== -1) return;
    this.#parse(data, writer);
  }

  #parse(data: SseData, writer: ByteWriter): void {
    const text = data.bytes.toString('utf8', data.start, data.end).trim();
    if (text === '') return;
    if (text === DONE) {
      this.#isDone = true;
      return;
    }
    const chunk = parseChunk(text);
    if (chunk === undefined) {
      this.#failure = BROKEN;
      return;
    }
    if (chunk['error'] !== undefined && chunk['error'] !== null) {
      this.#failure = engineFailure(chunk['error']);
      return;
    }
    const { choices } = chunk;
    const shown = Array.isArray(choices) ? this.#showChoices(choices, writer) : [];
    // The usage beside a text includes it.
    const usage = readUsage(chunk['usage']);
    if (usage !== undefined) this.#reported = { usage, atBytes: outputBytes(this.tally) };
    if (shown.length === 0) return;
    this.#hasShownText ||= shown.some(hasText);
    writer.writeText(eventText(this.#framed(chunk, shown)));
    this.#learn(chunk, data);
    if (shown.some((choice) => choice['index'] === 0)) this.#showDocuments(writer);
  }

  #showChoices(choices: readonly unknown[], writer: ByteWriter): JsonObject[] {
    const shown: JsonObject[] = [];
    for (const [position, given] of choices.entries()) {
      if (!isJsonObject(given)) continue;
      const index = typeof given['index'] === 'number' ? given['index'] : position;
      if (!Number.isSafeInteger(index) || index < 0 || index >= this.#options.choiceCount) continue;
      const choice = this.#choice(index);
      const one = choice.show(given);
      if (choice.isCut) this.#endWhereCut(choice);
      if (one === undefined) continue;
      this.#startChoice(choice, writer);
      shown.push(one);
    }
    return shown;
  }

  #endWhereCut({ isEndless }: StreamChoice): void {
    const choices = [...this.#choices.values()];
    const haveEnded =
      choices.length === this.#options.choiceCount && choices.every((choice) => choice.isFinished);
    this.#isCutOff = haveEnded || isEndless;
  }

  #choice(index: number): StreamChoice {
    const known = this.#choices.get(index);
    if (known !== undefined) return known;
    const firstCall = index === 0 && this.#options.documents !== undefined ? 1 : 0;
    const made = new StreamChoice(index, this.#options, firstCall, this.#options.newCallId);
    this.#choices.set(index, made);
    return made;
  }

  /** The role chunk, for engines that leave it out. */
  #startChoice(choice: StreamChoice, writer: ByteWriter): void {
    if (choice.hasRole) return;
    choice.hasRole = true;
    const delta = { role: 'assistant', content: '' };
    const { index } = choice;
    writer.write(this.#ownChunk([{ index, delta, logprobs: null, finish_reason: null }]));
    if (index === 0) this.#showDocuments(writer);
  }

  #showDocuments(writer: ByteWriter): void {
    const { documents } = this.#options;
    if (documents === undefined || this.#areDocumentsShown) return;
    this.#areDocumentsShown = true;
    writer.write(this.#documentsChunk(documents, 0));
  }

  #documentsChunk(documents: readonly SearchDocument[], index: number): Buffer {
    const call = documentsCall(this.#options.serviceName, documents);
    const delta = { tool_calls: [{ index, ...call }] };
    return this.#ownChunk([{ index: 0, delta, logprobs: null, finish_reason: null }]);
  }

  #framed(chunk: JsonObject, choices: readonly JsonObject[]): JsonObject {
    const { id, model, createdS } = this.#options;
    const { usage: _taken, ...rest } = chunk;
    const created = Number.isSafeInteger(chunk['created']) ? chunk['created'] : createdS;
    return { ...rest, id, object: CHUNK_OBJECT, created, model, choices };
  }

  #ownChunk(choices: readonly JsonObject[], more: JsonObject = {}): Buffer {
    const { id, model, createdS } = this.#options;
    const head = { id, object: CHUNK_OBJECT, created: createdS, model };
    return Buffer.from(eventText({ ...head, choices, ...more }));
  }

  #learn(chunk: JsonObject, data: SseData): void {
    if (!this.#canLearn) return;
    const text = textOnlyKind(chunk, this.#options.documents !== undefined);
    const counter = text === undefined ? undefined : this.#choices.get(text.choice);
    if (text === undefined || counter === undefined) return;
    const template = learnTemplate(data, { kind: text.kind, counter }, this.#options);
    if (template === undefined) return;
    if (this.#templates.length >= MAX_TEMPLATES) this.#templates.pop();
    this.#templates.unshift(template);
  }
}

const EMPTY = Buffer.alloc(0);

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
