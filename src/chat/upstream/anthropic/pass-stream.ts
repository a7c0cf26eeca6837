/**
 * Passes the events of a message on as they come, and counts their output. The model's name is that
 * of the caller, the cost is added to `message_delta`, which is sent after the charge, and the
 * message is ended where its grant ends.
 */
import { bytesUsually } from '../../../core/token-count.ts';
import { readUsage, type ReportedUsage } from '../../../engines/usage.ts';
import { SseEvents, type SseData } from '../../../http/sse-events.ts';
import { Frame } from '../../../http/stream-writer.ts';
import { childrenOf, isJsonObject, type JsonObject, type Span } from '../../../json/json-scan.ts';
import { parsedJsonObject } from '../../../json/json-text.ts';
import {
  mostBytes,
  noOutput,
  outputBytes,
  type OutputTally,
  textBytes,
} from '../../wire/chat-choice.ts';
import { costMembers, type ResponseEnd, type ResponseFrame } from '../../wire/chat-response.ts';
import { BROKEN_STREAM, type EngineFailure, engineFailure } from '../../wire/stream-events.ts';
import type { EngineStream } from '../upstream.ts';
import { mergedUsage, withChanged } from './message-members.ts';

interface HeldEvent {
  readonly bytes: Buffer;
  readonly data: Buffer;
  readonly body: JsonObject;
}

const NO_BYTES = Buffer.alloc(0);

export class PassStream implements EngineStream {
  readonly tally: OutputTally = noOutput();
  reported: ReportedUsage | undefined;
  hasShownText = false;
  isCutOff = false;
  failure: EngineFailure | undefined;
  readonly #grantedTokens: number;
  readonly #frame: ResponseFrame;
  readonly #events = new SseEvents();
  #usage: JsonObject = {};
  #deltas = 0;
  #openBlock: unknown;
  /** The last `message_delta`. */
  #held: HeldEvent | undefined;
  #hasEnded = false;
  #isDone = false;

  constructor(grantedTokens: number, frame: ResponseFrame) {
    this.#grantedTokens = grantedTokens;
    this.#frame = frame;
  }

  get isComplete(): boolean {
    return this.failure === undefined && (this.#isDone || this.#hasEnded || this.isCutOff);
  }

  get isOver(): boolean {
    return this.#isDone || this.isCutOff || this.failure !== undefined;
  }

  push(chunk: Buffer, into: Frame): void {
    if (this.isOver) return;
    if (!this.#events.push(chunk)) this.failure = BROKEN_STREAM;
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      this.#take(data, into);
      if (this.isOver) break;
    }
  }

  flush(): Buffer {
    const shown = new Frame();
    const data = this.isOver ? undefined : this.#events.finish();
    // An event truncated by the end of the stream is dropped.
    if (data !== undefined && parsedEvent(data) !== undefined) this.#take(data, shown);
    return shown.take();
  }

  closing(end: ResponseEnd): Buffer {
    const held = this.isCutOff ? undefined : this.#held;
    const given = held ?? ownEnd(this.isCutOff);
    const cost = costMembers(this.#frame.serviceName, end);
    // SDKs read the count of the output here.
    const added = isJsonObject(given.body['usage'])
      ? cost
      : { usage: { ...this.#usage, output_tokens: end.usage.completionTokens }, ...cost };
    const data = withChanged(given.data, given.body, added);
    const open = this.isCutOff ? this.#openBlock : undefined;
    const stop = open === undefined ? '' : eventText({ type: 'content_block_stop', index: open });
    const head = `${stop}event: message_delta\ndata: `;
    return Buffer.concat([Buffer.from(head), data, Buffer.from(`\n\n${MESSAGE_STOP}`)]);
  }

  /** Errors of this protocol contain no usage. */
  usageChunk(): Buffer {
    return NO_BYTES;
  }

  #take(data: SseData, into: Frame): void {
    const { bytes, start, end, event: span } = data;
    const event = parsedEvent(data);
    if (event === undefined) {
      this.failure = BROKEN_STREAM;
      return;
    }
    const whole = span === undefined ? undefined : bytes.subarray(span.start, span.end);
    const shown = whole ?? Buffer.from(eventText(event));
    switch (event['type']) {
      case 'message_start':
        this.#addUsage(isJsonObject(event['message']) ? event['message']['usage'] : undefined);
        return this.#pass(this.#withModel(data) ?? shown, into);
      case 'content_block_start':
        this.#openBlock = event['index'];
        if (!this.#count(event['content_block'])) return;
        return this.#pass(shown, into);
      case 'content_block_delta':
        if (!this.#count(event['delta'])) return;
        return this.#pass(shown, into);
      case 'content_block_stop':
        this.#openBlock = undefined;
        return this.#pass(shown, into);
      case 'message_delta': {
        const { delta, usage } = event;
        this.#addUsage(usage);
        this.#hasEnded ||= isJsonObject(delta) && typeof delta['stop_reason'] === 'string';
        this.#flushHeld(into);
        // The chunk belongs to the engine call.
        const copy = Buffer.from(bytes.subarray(start, end));
        this.#held = { bytes: Buffer.from(shown), data: copy, body: event };
        return;
      }
      case 'message_stop':
        this.#isDone = true;
        return;
      case 'error':
        this.failure = engineFailure(event['error']);
        return;
      default:
        return this.#pass(shown, into);
    }
  }

  #pass(bytes: Buffer, into: Frame): void {
    this.#flushHeld(into);
    into.add(bytes);
  }

  #flushHeld(into: Frame): void {
    if (this.#held !== undefined) into.add(this.#held.bytes);
    this.#held = undefined;
  }

  /** Counts the text; `false` if it exceeds the grant, so that the message ends before it. */
  #count(piece: unknown): boolean {
    if (!isJsonObject(piece)) return true;
    const { text, thinking, partial_json: json, name, type } = piece;
    const toolBytes =
      textBytes(json) + (type === 'tool_use' ? textBytes(name) + inputBytes(piece) : 0);
    const contentBytes = textBytes(text);
    const reasoningBytes = textBytes(thinking);
    const sizeBytes = contentBytes + reasoningBytes + toolBytes;
    if (sizeBytes === 0) return true;
    const bytes = outputBytes(this.tally) + sizeBytes;
    const granted = this.#grantedTokens;
    this.#deltas += 1;
    if (bytes > bytesUsually(granted) && bytes > mostBytes(granted, this.#deltas)) {
      this.isCutOff = true;
      return false;
    }
    this.tally.contentBytes += contentBytes;
    this.tally.reasoningBytes += reasoningBytes;
    this.tally.toolBytes += toolBytes;
    this.hasShownText = true;
    return true;
  }

  #addUsage(usage: unknown): void {
    if (!isJsonObject(usage)) return;
    this.#usage = mergedUsage(this.#usage, usage);
    const read = readUsage(this.#usage);
    if (read !== undefined) this.reported = { usage: read, atBytes: outputBytes(this.tally) };
  }

  #withModel({ bytes, start, event }: SseData): Buffer | undefined {
    const message = spanOf(bytes, start, 'message');
    const model = message && spanOf(bytes, message.start, 'model');
    if (model === undefined || event === undefined) return undefined;
    return Buffer.concat([
      bytes.subarray(event.start, model.start),
      Buffer.from(JSON.stringify(this.#frame.model)),
      bytes.subarray(model.end, event.end),
    ]);
  }
}

function parsedEvent({ bytes, start, end }: SseData): JsonObject | undefined {
  return parsedJsonObject(bytes.toString('utf8', start, end));
}

/** The input that an engine sends with the start of a block; others send `{}` there. */
function inputBytes({ input }: JsonObject): number {
  const json = JSON.stringify(input ?? {});
  return json === '{}' ? 0 : textBytes(json);
}

/** The value of a member of the object at `from`. */
function spanOf(bytes: Buffer, from: number, name: string): Span | undefined {
  const found = childrenOf(bytes, from).spans.find(({ key }) => key === name);
  return found && { start: found.valueStart, end: found.end };
}

const MESSAGE_STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';

function ownEnd(isCutOff: boolean): HeldEvent {
  const delta = { stop_reason: isCutOff ? 'max_tokens' : 'end_turn', stop_sequence: null };
  const body = { type: 'message_delta', delta };
  return { bytes: NO_BYTES, data: Buffer.from(JSON.stringify(body)), body };
}

function eventText(event: JsonObject): string {
  return `event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`;
}
