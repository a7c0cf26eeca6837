/**
 * Streams a transcript as OpenAI events: text of an engine is forwarded as it arrives. An engine
 * without streaming produces one event per piece.
 *
 * This file parses the events of engines and writes those for callers; `sell-transcription.ts`
 * selects the pieces and charges for them.
 */
import { parsedJson } from '../json/json-text.ts';
import * as z from 'zod';
import { BodyPieces } from '../core/body-pieces.ts';
import type { Clock } from '../core/clock.ts';
import type {
  EngineCall,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSink,
  Engines,
} from '../engines/engines.ts';
import { ResponseStream, dataEvent, EVENT_STREAM, KEEP_ALIVE } from '../http/response-stream.ts';
import type { RequestContext } from '../http/request-context.ts';
import { SseEvents } from '../http/sse-events.ts';

const EVENTS = 'text/event-stream';
const DONE = '[DONE]';
const MS = 1_000;
/** Most events contain a few words, the last one the whole text. */
const MAX_EVENT_BYTES = 1024 * 1024;

/** Events of engines: OpenAI's transcript events, or chat chunks as sent by vLLM. */
const Event = z.object({
  type: z.string().optional().catch(undefined),
  delta: z.string().optional().catch(undefined),
  text: z.string().optional().catch(undefined),
  choices: z
    .array(z.object({ delta: z.object({ content: z.string().nullish() }).optional() }))
    .optional()
    .catch(undefined),
  error: z.unknown().optional(),
});

/** The charged duration; rounded up to whole seconds here, but not in the price. */
export function durationUsage(durationMs: number) {
  return { type: 'duration', seconds: Math.ceil(durationMs / MS) } as const;
}

export interface TranscriptStreamOptions {
  readonly context: RequestContext;
  readonly clock: Clock;
  readonly setHeaders: () => void;
}

interface PieceCall {
  readonly engines: Engines;
  readonly call: EngineCall;
  /** More characters are treated as a failure. */
  readonly maxCharacters: number;
  readonly onHead: (head: EngineHead) => void;
}

export interface StreamedPiece {
  readonly outcome: EngineOutcome;
  /** Body of an engine that does not stream; none of it has been sent. */
  readonly body: Buffer | undefined;
  readonly problem: string | undefined;
  /** The stream sent its final event; later connection errors are ignored. */
  readonly isWhole: boolean;
}

export class TranscriptStream {
  readonly #response: ResponseStream;
  #engineRun: EngineRun | undefined;
  text = '';
  /** Text of the current piece has been sent. */
  hasPiece = false;
  /** Separator sent before the next text, so that a piece has no trailing space. */
  #space = '';

  constructor({ context, clock, setHeaders }: TranscriptStreamOptions) {
    this.#response = new ResponseStream({
      context,
      clock,
      setHeaders,
      type: EVENT_STREAM,
      resume: () => this.#engineRun?.resume(),
      keepAlive: () => KEEP_ALIVE,
    });
  }

  get hasBegun(): boolean {
    return this.#response.hasBegun;
  }

  get isBlocked(): boolean {
    return this.#response.isBlocked;
  }

  /** Starts the next piece, separated by a space. */
  beginPiece(): void {
    this.hasPiece = false;
    this.#space = '';
  }

  /** Sends text of the current piece. Returns `false` while the connection to the caller is full. */
  writeText(text: string): boolean {
    const before = this.hasPiece ? this.#space : this.text === '' ? '' : ' ';
    const given = this.hasPiece ? text : text.trimStart();
    const visible = given.trimEnd();
    if (visible === '') {
      if (this.hasPiece) this.#space += given;
      return !this.isBlocked;
    }
    const delta = before + visible;
    this.#space = given.slice(visible.length);
    this.hasPiece = true;
    this.text += delta;
    return this.#response.write(dataEvent({ type: 'transcript.text.delta', delta }));
  }

  /** Requests the current piece from an engine and forwards its stream. */
  async requestPiece({ engines, call, maxCharacters, onHead }: PieceCall): Promise<StreamedPiece> {
    const abort = () => this.#engineRun?.abort();
    const sink = new PieceSink({ stream: this, maxCharacters, abort, onHead });
    this.#engineRun = engines.run(call, sink);
    const outcome = await this.#engineRun.outcome;
    return { outcome, ...sink.end(outcome.ok) };
  }

  done(durationMs: number, cost: object): Buffer {
    const usage = durationUsage(durationMs);
    return dataEvent({ type: 'transcript.text.done', text: this.text, usage, cost });
  }

  fail(error: { readonly message: string; readonly code: string }): void {
    this.#response.end(dataEvent({ type: 'error', error: { ...error, param: null } }));
  }

  begin(): void {
    this.#response.begin();
  }

  kept(last: Buffer): Buffer | undefined {
    return this.#response.kept(last);
  }

  end(last: Buffer): void {
    this.#response.end(last);
  }

  close(): void {
    this.#response.close();
  }
}

interface PieceSinkParts extends Pick<PieceCall, 'maxCharacters' | 'onHead'> {
  readonly stream: TranscriptStream;
  readonly abort: () => void;
}

class PieceSink implements EngineSink {
  readonly #parts: PieceSinkParts;
  readonly #events = new SseEvents(MAX_EVENT_BYTES);
  #whole: BodyPieces | undefined;
  #characters = 0;
  #isDone = false;
  #problem: string | undefined;

  constructor(parts: PieceSinkParts) {
    this.#parts = parts;
  }

  onHead(head: EngineHead): void {
    this.#parts.onHead(head);
    const isStream = String(head.headers['content-type'] ?? '')
      .toLowerCase()
      .startsWith(EVENTS);
    if (!isStream) this.#whole = new BodyPieces();
  }

  onChunk(chunk: Buffer): boolean {
    if (this.#whole !== undefined) {
      this.#whole.add(chunk);
      return true;
    }
    if (this.#problem !== undefined) return true;
    if (!this.#events.push(chunk)) return this.#fail('An event is too long');
    return this.#readEvents();
  }

  /** Returns the rest at the end of the response; a stream must have sent its final event. */
  end(isComplete: boolean): Omit<StreamedPiece, 'outcome'> {
    const body = this.#whole?.joinedAtOnce();
    if (isComplete && body === undefined && this.#problem === undefined) {
      const last = this.#events.finish();
      if (last !== undefined) this.#readEvent(last.bytes.toString('utf8', last.start, last.end));
      if (!this.#isDone) this.#problem ??= 'The stream ended without its final event';
    }
    return { body, problem: this.#problem, isWhole: this.#isDone };
  }

  #readEvents(): boolean {
    let goesOn = true;
    for (let event = this.#events.next(); event !== undefined; event = this.#events.next()) {
      goesOn = this.#readEvent(event.bytes.toString('utf8', event.start, event.end));
      if (this.#problem !== undefined) return true;
    }
    return goesOn;
  }

  #readEvent(data: string): boolean {
    if (data === DONE) {
      this.#isDone = true;
      return true;
    }
    const event = Event.safeParse(parsedJson(data)).data;
    if (event === undefined) return this.#fail('An event is not a JSON object');
    if (event.error !== undefined && event.error !== null)
      return this.#fail('The engine sent an error event');
    if (event.type === 'transcript.text.done') {
      this.#isDone = true;
      // If no text was sent, the final event contains all of it.
      return this.#parts.stream.hasPiece ? true : this.#write(event.text ?? '');
    }
    if (event.type === 'transcript.text.delta') return this.#write(event.delta ?? '');
    return this.#write(event.choices?.[0]?.delta?.content ?? '');
  }

  #write(text: string): boolean {
    this.#characters += text.length;
    // Stops a model that repeats itself endlessly.
    if (this.#characters > this.#parts.maxCharacters)
      return this.#fail('The text is too long for the duration of the sound');
    return this.#parts.stream.writeText(text);
  }

  #fail(problem: string): boolean {
    this.#problem = problem;
    this.#parts.abort();
    return true;
  }
}
