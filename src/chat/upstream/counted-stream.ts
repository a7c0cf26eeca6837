/**
 * The common part of streams that are passed on event by event: splits the events of the engine,
 * counts their output, and ends the stream at its grant.
 */
import type { ReportedUsage } from '../../engines/usage.ts';
import { SseEvents, type SseData } from '../../http/sse-events.ts';
import { Frame } from '../../http/stream-writer.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import {
  addTally,
  mostBytes,
  noOutput,
  outputBytes,
  type OutputTally,
} from '../wire/chat-choice.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';
import { BROKEN_STREAM, DONE, type EngineFailure, parsedEvent } from '../wire/stream-events.ts';
import type { EngineStream } from './upstream.ts';

export const NO_BYTES = Buffer.alloc(0);

export abstract class CountedStream implements EngineStream {
  readonly tally: OutputTally = noOutput();
  reported: ReportedUsage | undefined;
  failure: EngineFailure | undefined;
  hasShownText = false;
  isCutOff = false;
  /** Whether the engine has sent its last event. */
  protected isDone = false;
  readonly #grantedTokens: number;
  readonly #events = new SseEvents();
  #deltas = 0;

  constructor(grantedTokens: number) {
    this.#grantedTokens = grantedTokens;
  }

  abstract get isComplete(): boolean;

  get isOver(): boolean {
    return this.isDone || this.isCutOff || this.failure !== undefined;
  }

  push(chunk: Buffer, into: Frame): void {
    if (this.isOver) return;
    if (!this.#events.push(chunk)) this.failure = BROKEN_STREAM;
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      if (!this.#take(data, into)) this.failure = BROKEN_STREAM;
      if (this.isOver) break;
    }
  }

  /** An event truncated by the end of the stream is dropped. */
  flush(): Buffer {
    const shown = new Frame();
    const data = this.isOver ? undefined : this.#events.finish();
    if (data !== undefined) this.#take(data, shown);
    return shown.take();
  }

  abstract closing(end: ResponseEnd): Buffer;

  /** Errors of most protocols contain no usage. */
  usageChunk(_end: ResponseEnd): Buffer {
    return NO_BYTES;
  }

  protected abstract take(event: JsonObject, data: SseData, into: Frame): void;

  /** Counts a piece; `false` if it exceeds the grant, so that the stream ends before it. */
  protected count(piece: Readonly<OutputTally>): boolean {
    const sizeBytes = outputBytes(piece);
    if (sizeBytes === 0) return true;
    this.#deltas += 1;
    const most = mostBytes(this.#grantedTokens, this.#deltas);
    this.isCutOff = outputBytes(this.tally) + sizeBytes > most;
    if (this.isCutOff) return false;
    addTally(this.tally, piece);
    this.hasShownText = true;
    return true;
  }

  /** Returns `false` if the data is no event. */
  #take(data: SseData, into: Frame): boolean {
    const text = data.bytes.toString('utf8', data.start, data.end);
    const event = parsedEvent(text);
    if (event !== undefined) {
      this.take(event, data, into);
      return true;
    }
    const word = text.trim();
    if (word === DONE) this.isDone = true;
    return word === DONE || word === '';
  }
}
