/**
 * Passes the events of a message on as they come, and counts their output. The model's name is that
 * of the caller, the cost is added to `message_delta`, which is sent after the charge, and the
 * message is ended where its grant ends.
 */
import type { SseData } from '../../../http/sse-events.ts';
import type { Frame } from '../../../http/stream-writer.ts';
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { outputBytes, textBytes } from '../../wire/chat-choice.ts';
import { costMembers, type ResponseEnd, type ResponseFrame } from '../../wire/chat-response.ts';
import { engineFailure } from '../../wire/stream-events.ts';
import { readUsage } from '../../../engines/usage.ts';
import { CountedStream } from '../counted-stream.ts';
import { mergedUsage, MESSAGE_STOP, messageEvent } from './message-members.ts';

export class PassStream extends CountedStream {
  readonly #frame: ResponseFrame;
  #usage: JsonObject = {};
  #openBlock: unknown;
  /** The last `message_delta`. */
  #held: JsonObject | undefined;
  #hasEnded = false;

  constructor(grantedTokens: number, frame: ResponseFrame) {
    super(grantedTokens);
    this.#frame = frame;
  }

  get isComplete(): boolean {
    return this.failure === undefined && (this.#hasEnded || this.isCutOff);
  }

  closing(end: ResponseEnd): Buffer {
    const held = (this.isCutOff ? undefined : this.#held) ?? ownEnd(this.isCutOff);
    const cost = costMembers(this.#frame.serviceName, end);
    // SDKs read the count of the output here.
    const added = isJsonObject(held['usage'])
      ? cost
      : { usage: { ...this.#usage, output_tokens: end.usage.completionTokens }, ...cost };
    const open = this.isCutOff ? this.#openBlock : undefined;
    const stop = open === undefined ? '' : messageEvent('content_block_stop', { index: open });
    return Buffer.from(stop + messageEvent('message_delta', { ...held, ...added }) + MESSAGE_STOP);
  }

  protected override take(event: JsonObject, data: SseData, into: Frame): void {
    const { bytes, event: span } = data;
    const whole = span === undefined ? undefined : bytes.subarray(span.start, span.end);
    const shown = whole ?? Buffer.from(messageEvent(String(event['type']), event));
    switch (event['type']) {
      case 'message_start': {
        const message = isJsonObject(event['message']) ? event['message'] : {};
        this.#addUsage(message['usage']);
        const named = { ...event, message: { ...message, model: this.#frame.model } };
        return this.#pass(Buffer.from(messageEvent('message_start', named)), into);
      }
      case 'content_block_start':
        if (!this.#countPiece(event['content_block'])) return;
        this.#openBlock = event['index'];
        return this.#pass(shown, into);
      case 'content_block_delta':
        if (!this.#countPiece(event['delta'])) return;
        return this.#pass(shown, into);
      case 'content_block_stop':
        this.#openBlock = undefined;
        return this.#pass(shown, into);
      case 'message_delta': {
        const { delta, usage } = event;
        this.#addUsage(usage);
        this.#hasEnded ||= isJsonObject(delta) && typeof delta['stop_reason'] === 'string';
        this.#flushHeld(into);
        this.#held = event;
        return;
      }
      case 'message_stop':
        this.#hasEnded = true;
        this.isDone = true;
        return;
      case 'error':
        this.failure = engineFailure(event['error']);
        return;
      default:
        // A ping can follow the last `message_delta`.
        into.add(shown);
    }
  }

  #pass(bytes: Buffer, into: Frame): void {
    this.#flushHeld(into);
    into.add(bytes);
  }

  #flushHeld(into: Frame): void {
    if (this.#held !== undefined) into.addText(messageEvent('message_delta', this.#held));
    this.#held = undefined;
  }

  #countPiece(piece: unknown): boolean {
    if (!isJsonObject(piece)) return true;
    const { text, thinking, partial_json: json, name, type } = piece;
    const callBytes = type === 'tool_use' ? textBytes(name) + inputBytes(piece) : 0;
    return this.count({
      contentBytes: textBytes(text),
      reasoningBytes: textBytes(thinking),
      toolBytes: textBytes(json) + callBytes,
    });
  }

  #addUsage(usage: unknown): void {
    if (!isJsonObject(usage)) return;
    this.#usage = mergedUsage(this.#usage, usage);
    const read = readUsage(this.#usage);
    if (read !== undefined) this.reported = { usage: read, atBytes: outputBytes(this.tally) };
  }
}

/** The input that an engine sends with the start of a block; others send `{}` there. */
function inputBytes({ input }: JsonObject): number {
  const json = JSON.stringify(input ?? {});
  return json === '{}' ? 0 : textBytes(json);
}

function ownEnd(isCutOff: boolean): JsonObject {
  return { delta: { stop_reason: isCutOff ? 'max_tokens' : 'end_turn', stop_sequence: null } };
}
