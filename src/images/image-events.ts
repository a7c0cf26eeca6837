/**
 * Images as server-sent events: partial images while the engine generates them, then each sold
 * image.
 *
 * A partial image is forwarded at once and has no price of its own. It can be nearly complete, so a
 * caller who disconnects after the first one is charged for the whole order; a failure of the
 * engine costs nothing. The final images are sent after the charge is committed.
 */
import type { Outcome } from '../billing/sale.ts';
import { BodyPieces } from '../core/body-pieces.ts';
import { decodeBase64 } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import { reasonOf } from '../core/log.ts';
import { failedCall } from '../engines/engine-refusal.ts';
import type { EngineHead, EngineOutcome, EngineRun, EngineSink } from '../engines/engines.ts';
import { ResponseStream, EVENT_STREAM, KEEP_ALIVE } from '../http/response-stream.ts';
import { readEngineJson } from '../http/read-request.ts';
import { costOf, noteOutcome } from '../http/model-sale.ts';
import { type FailedWork, type HeldWork, type ServedBy, sayStreamed } from '../http/sell-work.ts';
import { SseEvents } from '../http/sse-events.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';
import {
  factsOf,
  type ImageOrder,
  imagesCall,
  omittedFields,
  validateImages,
  type GeneratedImages,
  type MakeImagesParts,
  MAX_IMAGE_BASE64,
  type ImageReading,
  readingOf,
  readGenerated,
  saleOf,
  awaitImages,
  generateImages,
  type ImageSale,
} from './image-engine.ts';
import { imageJobIn } from './image-job.ts';
import { billImages } from './image-bill.ts';
import { type BodyPart, ImagesBody } from './images-body.ts';
import { imageByHeader } from './made-image.ts';

const RESPONSE_TYPES = ['text/event-stream', 'application/json'];
const EVENT_FRAME_BYTES = 64 * 1024;
const DONE = '[DONE]';
/** SDKs require the usage of an event; an engine reports none for images that have a price each. */
const NO_TOKENS = {
  input_tokens: 0,
  input_tokens_details: { text_tokens: 0, image_tokens: 0 },
  output_tokens: 0,
  total_tokens: 0,
};

/** Sends an event per image after the charge; comments keep the connection open until then. */
export async function streamImages(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
): Promise<FailedWork | undefined> {
  const { context, signal, sale } = held;
  let by: ServedBy = { replica: undefined, attempts: 1 };
  let partial: PartialImages | undefined;
  const stream: ResponseStream = new ResponseStream({
    context,
    clock: parts.clock,
    type: EVENT_STREAM,
    setHeaders: () => sayStreamed(held, partial?.servedBy() ?? by),
    resume: () => partial?.resume(),
    keepAlive: () => KEEP_ALIVE,
  });
  if (order.partialImages > 0) partial = new PartialImages(parts, order, held, stream);
  try {
    const done = await (partial?.run() ?? generateImages(parts, order, held));
    if ('fault' in done) {
      if (!stream.hasBegun && !signal.aborted) return done;
      throw done.fault;
    }
    ({ by } = done);
    if (context.keeper !== undefined) stream.begin();
    const { made } = done;
    const type = `${order.event}.completed`;
    const { quality = 'auto', usage = NO_TOKENS, ...others } = factsOf(made, order);
    const facts = { type, created_at: createdOf(parts), ...others, quality, usage };
    const events = await ImagesBody.of(eventParts(made, facts));
    const sold = await sale.answer(done.outcome, (settled) => {
      const last = events.end(factsText({ ...facts, cost: costOf(settled) }));
      return { type: EVENT_STREAM, body: stream.kept(last), last };
    });
    noteOutcome(context, done.outcome);
    stream.end(sold.last);
    return undefined;
  } catch (error) {
    const isDisconnected = signal.aborted || (stream.isBlocked && partial?.isStalled === true);
    const charged =
      isDisconnected && sale.state === 'held' ? partial?.outcomeOfDisconnect() : undefined;
    if (charged !== undefined) {
      await sale.settle(charged);
      noteOutcome(context, charged);
    }
    // Before the headers are sent, an error sets the status; afterwards it is an event.
    if (!stream.hasBegun || signal.aborted) throw error;
    if (charged === undefined) await sale.release({ status: 'failed' });
    const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
    context.failed(fault);
    const body = { message: fault.message, code: fault.code, param: null };
    stream.end(Buffer.from(eventText('error', JSON.stringify({ type: 'error', error: body }))));
    parts.log.warn({ requestId: context.requestId, code: fault.code }, 'Images failed');
    return undefined;
  } finally {
    stream.close();
  }
}

/** Receives an engine's events, or its non-streaming response. */
class PartialImages implements EngineSink {
  readonly #parts: MakeImagesParts;
  readonly #order: ImageOrder;
  readonly #held: HeldWork;
  readonly #response: ResponseStream;
  readonly #reading: ImageReading;
  readonly #events = new SseEvents(MAX_IMAGE_BASE64 + EVENT_FRAME_BYTES);
  #engineRun: EngineRun | undefined;
  #head: EngineHead | undefined;
  #outcome: EngineOutcome | undefined;
  readonly #whole = new BodyPieces();
  /** Events are validated one after the other. */
  #validating: Promise<void> = Promise.resolve();
  readonly #completed: JsonObject[] = [];
  #problem: string | undefined;
  #partialCount = 0;
  #lastPartial: { readonly size: string; readonly quality: string | undefined } | undefined;

  constructor(parts: MakeImagesParts, order: ImageOrder, held: HeldWork, response: ResponseStream) {
    this.#parts = parts;
    this.#order = order;
    this.#held = held;
    this.#response = response;
    this.#reading = readingOf(parts, held);
  }

  servedBy(): ServedBy | undefined {
    const head = this.#head;
    if (head === undefined) return undefined;
    const flags = this.#parts.headers.flagsOf(head.headers);
    return { replica: head.replica.engine, attempts: head.attempts, flags };
  }

  resume(): void {
    this.#engineRun?.resume();
  }

  async run(): Promise<ImageSale | FailedWork> {
    const { engines, log } = this.#parts;
    const omitted = omittedFields(this.#parts, this.#held);
    const call = { ...imagesCall(omitted, this.#order, this.#held), accept: RESPONSE_TYPES };
    this.#engineRun = engines.run(call, this);
    const outcome = await this.#engineRun.outcome;
    this.#outcome = outcome;
    await this.#validating;
    const { model, context } = this.#held;
    if (this.#problem === undefined && !outcome.ok) return failedCall(outcome, model.id);
    const made = this.#problem ?? (await this.#made());
    const head = this.#head;
    if (typeof made === 'string' || head === undefined) {
      log.warn({ requestId: context.requestId, reason: made }, 'Images are not sold');
      return { fault: new Fault('INFERENCE_FAILED', { cause: made }), isUnavailable: true };
    }
    omitted.learn(head.replica);
    return saleOf(this.#parts, this.#order, this.#held, { made, head });
  }

  onHead(head: EngineHead): void {
    this.#head = head;
  }

  onChunk(chunk: Buffer): boolean {
    if (this.#problem !== undefined) return true;
    if (!this.#isStream) {
      this.#whole.add(chunk);
      return true;
    }
    if (!this.#events.push(chunk)) this.#stop('An event is longer than an image');
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      this.#enqueue(data.bytes.subarray(data.start, data.end));
    }
    return !this.#response.isBlocked;
  }

  /** The engine was aborted because the caller does not read: not a failure of the engine. */
  get isStalled(): boolean {
    return this.#outcome?.ok === false && this.#outcome.reason === 'timeout';
  }

  /** The charge for a caller who disconnected after partial images were sent. */
  outcomeOfDisconnect(): Outcome | undefined {
    if (this.#lastPartial === undefined) return undefined;
    const { size, quality } = this.#lastPartial;
    const { count } = this.#order;
    const sizes = Array.from({ length: count }, () => size);
    const { attempts = 1 } = this.#outcome ?? {};
    const replica = this.#head?.replica;
    const work = { sizes, quality, usage: undefined };
    return {
      ...billImages(work, this.#order, this.#held, replica),
      status: 'aborted',
      attempts,
      ...(replica && { replica: replica.engine }),
    };
  }

  get #isStream(): boolean {
    return String(this.#head?.headers['content-type'] ?? '').startsWith('text/event-stream');
  }

  #stop(problem: string): void {
    this.#problem ??= problem;
    this.#engineRun?.abort();
  }

  #enqueue(event: Buffer): void {
    this.#validating = this.#validating
      .then(() => (this.#problem === undefined ? this.#readEvent(event) : undefined))
      .catch((error: unknown) => this.#stop(reasonOf(error)));
  }

  async #readEvent(bytes: Buffer): Promise<void> {
    if (bytes.length === DONE.length && bytes.toString() === DONE) return;
    const { accountId } = this.#held.context.caller;
    const event = await readEngineJson(bytes, accountId, this.#parts.readLargeJson);
    if (!isJsonObject(event)) return this.#stop('An event is not a JSON object');
    const { type, error, b64_json: base64 } = event;
    if (isJsonObject(error) || typeof error === 'string') return this.#stop(JSON.stringify(error));
    if (typeof base64 !== 'string') return;
    const isPartial = typeof type === 'string' && type.endsWith('.partial_image');
    if (isPartial) return await this.#show(event, base64);
    if (this.#completed.length < this.#order.count) this.#completed.push(event);
  }

  async #show(event: JsonObject, base64: string): Promise<void> {
    const { partialImages, count, event: name } = this.#order;
    if (this.#partialCount >= partialImages * count) return;
    const image = imageByHeader(await decodeBase64(base64));
    if (image === undefined) return;
    const { partial_image_index: index, quality: reported, background } = event;
    const isIndex = typeof index === 'number' && Number.isSafeInteger(index) && index >= 0;
    const quality = typeof reported === 'string' ? reported : undefined;
    const facts = {
      type: `${name}.partial_image`,
      partial_image_index: isIndex ? index : this.#partialCount % partialImages,
      created_at: createdOf(this.#parts),
      output_format: image.format,
      size: image.size,
      quality: this.#order.kind.quality ?? quality ?? 'auto',
      background: typeof background === 'string' ? background : this.#order.background,
    };
    this.#partialCount += 1;
    this.#lastPartial = { size: image.size, quality };
    const text = await ImagesBody.of([openingOf(facts.type), image.bytes]);
    this.#response.write(text.end(factsText(facts)));
  }

  async #made(): Promise<GeneratedImages | string> {
    if (!this.#isStream) {
      const body = await this.#whole.joined();
      const job = imageJobIn(body);
      const replica = this.#head?.replica;
      if (job === undefined || replica === undefined) {
        return await readGenerated(body, this.#order, this.#reading);
      }
      return await awaitImages(this.#parts, this.#order, this.#held, job, replica);
    }
    const facts = this.#completed.at(-1) ?? {};
    return await validateImages(this.#completed, facts, this.#order, this.#reading);
  }
}

function createdOf({ clock }: MakeImagesParts): number {
  return Math.floor(clock.nowMs() / 1_000);
}

interface EventFacts extends JsonObject {
  readonly type: string;
}

/** The final events, all but the facts of the last one. */
function eventParts({ images }: GeneratedImages, facts: EventFacts): BodyPart[] {
  return images.flatMap(({ bytes }, place) => [
    place === 0 ? openingOf(facts.type) : factsText(facts) + openingOf(facts.type),
    bytes,
  ]);
}

/** Base64 needs no escaping, so it is inserted without JSON.stringify, which would copy it. */
function openingOf(type: string): string {
  return `event: ${type}\ndata: {"b64_json":"`;
}

/** The end of an event, after its base64. */
function factsText(facts: JsonObject): string {
  return `",${JSON.stringify(facts).slice(1)}\n\n`;
}

function eventText(type: string, json: string): string {
  return `event: ${type}\ndata: ${json}\n\n`;
}
