/**
 * Pictures made by an engine and sold by the piece, for every route that has them made: the dearest
 * kind that fits the request is set aside, each picture is looked at, and what was delivered is
 * charged by its size and quality.
 */
import { type ImageKind, dearestImage, imagePrice, surcharge } from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import { decodeBase64, nextTurn } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Nano, ZERO, nano } from '../core/money.ts';
import type { Documents } from '../documents/documents.ts';
import { engineFault } from '../engines/engine-refusal.ts';
import type {
  EngineAnswer,
  EngineCall,
  EngineFailure,
  Engines,
  Replica,
} from '../engines/engines.ts';
import type { ReplicaSet } from '../engines/replica-set.ts';
import { AnswerStream, KEEP_ALIVE } from '../http/answer-stream.ts';
import type { RequestContext } from '../http/request-context.ts';
import { LARGE_BODY_BYTES, type ReadLargeJson } from '../http/read-request.ts';
import {
  type AnsweredBy,
  answerWork,
  type ChargedCost,
  costOf,
  findModel,
  type HeldWork,
  noteOutcome,
  sayStreamed,
  sellWork,
  type SellingParts,
} from '../http/sell-work.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';
import { parseJsonBody, refuseIssues } from '../json/validation.ts';
import { type ImageFormat, type MadeImage, madeImage } from './made-image.ts';

export interface MakeImagesParts extends SellingParts {
  readonly engines: Engines;
  readonly documents: Documents;
  readonly clock: Clock;
  readonly log: Log;
  readonly readLargeJson: ReadLargeJson;
  /** Replicas that do not know `response_format` and send base64 anyway. */
  readonly plainReplicas: ReplicaSet;
}

/** What a request wants made. */
export interface ImageOrder {
  /** The default of its type when `undefined`. */
  readonly model: string | undefined;
  readonly prompt: string;
  /** Number of pictures. */
  readonly count: number;
  /** Pictures that it starts from. */
  readonly inputImages?: number;
  /** Named by the caller; `undefined` for what the engine chooses. */
  readonly kind: ImageKind;
  readonly format: ImageFormat | undefined;
  readonly stream: boolean;
  /** `image` or `image_edit`, of the usage record. */
  readonly work: 'image' | 'image_edit';
  readonly path: '/images/generations' | '/images/edits';
  readonly contentType: string;
  /** The engine's body; without `response_format` for engines that do not know it. */
  readonly body: (
    model: string,
    isPlain: boolean,
  ) => ReturnType<NonNullable<EngineCall['buildBody']>>;
  /** What the first event of a stream is called: `image_generation` or `image_edit`. */
  readonly event: 'image_generation' | 'image_edit';
}

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';
const ANSWER_TYPES = ['application/json'];
/** A picture of the largest size that does not compress, as base64. */
const MAX_IMAGE_BASE64 = 64 * 1024 * 1024;
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** A large picture takes minutes on a small machine. */
const TIME_LIMITS = { firstByteMs: 600_000, totalMs: 1_200_000 };
const DEFAULT_PROMPT_CHARACTERS = 32_000;
const DEFAULT_MAX_IMAGES = 10;

/** Pictures that were looked at, and what the engine says beside them. */
interface Made {
  readonly images: readonly (MadeImage & { readonly revisedPrompt: string | undefined })[];
  readonly quality: string | undefined;
  readonly usage: JsonObject | undefined;
}

/** Has pictures made, charges them and answers. Throws 400, 401, 402, 403, 404, 422, 429, 5xx. */
export async function makeImages(
  parts: MakeImagesParts,
  context: RequestContext,
  order: ImageOrder,
): Promise<void> {
  const wanted = { name: order.model, work: 'images' };
  const found = findModel(parts, context, 'image', wanted);
  requireFitting(order, found.model);
  const eachNano = dearestImage(order.kind, found.price);
  const maxNano = nano(found.price.perRequest + surcharge(order.count, eachNano));
  const bounds = { minNano: maxNano, maxNano };
  await sellWork(parts, context, found, { kind: order.work, bounds }, (held) =>
    order.stream ? answerAsEvents(parts, order, held) : answerWhole(parts, order, held),
  );
}

/** What the model does not take is refused before an engine hears of it. */
function requireFitting(order: ImageOrder, model: HeldWork['model']): void {
  const { image, id } = model;
  const refuse = (field: string, message: string): never => {
    throw refuseIssues([{ code: 'custom', path: [field], message }]);
  };
  if (order.inputImages !== undefined) requireEdits(order.inputImages, model);
  const { size, quality } = order.kind;
  const most = image?.promptCharacterLimit ?? DEFAULT_PROMPT_CHARACTERS;
  if (order.prompt.length > most) {
    refuse(
      'prompt',
      `The model ${id} takes at most ${most} characters, got ${order.prompt.length}`,
    );
  }
  const mostImages = image?.maxImages ?? DEFAULT_MAX_IMAGES;
  if (order.count > mostImages) {
    refuse('n', `The model ${id} makes at most ${mostImages} images at once, not ${order.count}`);
  }
  const sizes = image?.sizes;
  if (size !== undefined && sizes !== undefined && !sizes.includes(size)) {
    refuse('size', `The model ${id} makes ${sizes.join(', ')}, not ${size}`);
  }
  const qualities = image?.qualities;
  if (quality !== undefined && qualities !== undefined && !qualities.includes(quality)) {
    refuse('quality', `The model ${id} makes ${qualities.join(', ')}, not ${quality}`);
  }
}

function requireEdits(given: number, { id, image }: HeldWork['model']): void {
  if (image?.edits !== true) {
    const message = `The model ${id} makes images and does not edit them: choose one that lists edits`;
    throw new Fault('INVALID_MODEL', { message });
  }
  if (given <= image.maxInputImages) return;
  const message = `The model ${id} takes at most ${image.maxInputImages} pictures, got ${given}`;
  throw refuseIssues([{ code: 'too_big', path: ['image'], message }]);
}

/** Runs the engine; rejects with the Fault of its failure. */
async function make(
  { engines, documents, log, plainReplicas, readLargeJson }: MakeImagesParts,
  order: ImageOrder,
  { model, context, signal }: HeldWork,
): Promise<{ readonly made: Made; readonly answer: EngineAnswer }> {
  const { requestId } = context;
  const caller = context.caller.accountId;
  let made: Made | undefined;
  let plain: Replica | undefined;
  const answer = await engines.collect({
    work: 'images',
    replicas: model.replicas,
    method: 'POST',
    path: order.path,
    contentType: order.contentType,
    buildBody: (replica, refusal) => {
      const isPlain = plainReplicas.has(replica);
      if (refusal === undefined) return order.body(replica.model, isPlain);
      // Engines that send nothing but base64 have not all heard of the field that asks for it.
      if (isPlain || plain === replica || !isOverFormat(refusal)) return undefined;
      plain = replica;
      return order.body(replica.model, true);
    },
    canAmend: true,
    mayLackPath: true,
    caller,
    signal,
    maxResponseBytes: Math.min(
      MAX_RESPONSE_BYTES,
      MIN_RESPONSE_BYTES + order.count * MAX_IMAGE_BASE64,
    ),
    timeLimits: TIME_LIMITS,
    accept: ANSWER_TYPES,
    isUsable: async (body) => {
      const read = await readMade(body, order, { documents, readLargeJson, signal, caller });
      made = typeof read === 'string' ? undefined : read;
      if (typeof read === 'string') log.warn({ requestId, reason: read }, 'Images are not sold');
      return made !== undefined;
    },
  });
  if (!answer.ok) throw engineFault(answer, model.id);
  if (made === undefined) throw new Error('A usable answer was read');
  if (plain === answer.replica) plainReplicas.add(plain);
  return { made, answer };
}

function isOverFormat({ status, body }: EngineFailure): boolean {
  return (status === 400 || status === 422) && /response_format/i.test(String(body ?? ''));
}

interface Reading {
  readonly documents: Documents;
  readonly readLargeJson: ReadLargeJson;
  readonly signal: AbortSignal;
  readonly caller: string;
}

/** The pictures of an engine's answer, or why they are none. */
async function readMade(
  body: Buffer,
  { count, format }: ImageOrder,
  { readLargeJson, ...looking }: Reading,
): Promise<Made | string> {
  let answer: unknown;
  try {
    answer = body.length >= LARGE_BODY_BYTES ? await readLargeJson(body) : parseJsonBody(body);
  } catch (error) {
    // Not JSON: another engine may do better.
    return reasonOf(error);
  }
  const data = isJsonObject(answer) ? answer['data'] : undefined;
  if (!isJsonObject(answer) || !Array.isArray(data)) return 'The answer has no list "data"';
  const images: Made['images'][number][] = [];
  // What was not asked for is not paid, and not looked at.
  for (const one of data.slice(0, count)) {
    const base64: unknown = isJsonObject(one) ? one['b64_json'] : undefined;
    if (typeof base64 !== 'string') return 'An image is not in "b64_json"';
    const image = await madeImage(await decodeBase64(base64), looking);
    if (image === undefined) return 'An image cannot be read';
    if (format !== undefined && image.format !== format) {
      return `An image is ${image.format}, not ${format}`;
    }
    const revised: unknown = isJsonObject(one) ? one['revised_prompt'] : undefined;
    images.push({ ...image, revisedPrompt: typeof revised === 'string' ? revised : undefined });
    await nextTurn();
  }
  if (images.length === 0) return 'The answer has no image';
  const { quality, usage } = answer;
  return {
    images,
    quality: typeof quality === 'string' ? quality : undefined,
    usage: isJsonObject(usage) ? usage : undefined,
  };
}

/**
 * What the pictures cost: an engine that made a smaller one than it was asked for is paid for that,
 * and never for a larger one.
 */
function costOfImages({ images, quality }: Made, { kind }: ImageOrder, { price }: HeldWork): Nano {
  let sum: bigint = price.perRequest;
  for (const { size } of images) {
    const made = imagePrice({ size, quality: kind.quality ?? quality }, price);
    const asked =
      kind.size === undefined
        ? made
        : imagePrice({ ...kind, quality: kind.quality ?? quality }, price);
    sum += made < asked ? made : asked;
  }
  return nano(sum > ZERO ? sum : ZERO);
}

interface Sold {
  readonly made: Made;
  readonly by: AnsweredBy;
  readonly outcome: Parameters<typeof answerWork>[2];
}

async function sold(parts: MakeImagesParts, order: ImageOrder, held: HeldWork): Promise<Sold> {
  const { made, answer } = await make(parts, order, held);
  const replica = answer.replica.engine;
  const { attempts, head } = answer;
  const extras = { images: made.images.length };
  const costNano = costOfImages(made, order, held);
  return {
    made,
    by: { replica, attempts, flags: parts.headers.flagsOf(head.headers) },
    outcome: { costNano, status: 'completed', attempts, replica, extras },
  };
}

async function answerWhole(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
): Promise<void> {
  const { made, by, outcome } = await sold(parts, order, held);
  const createdS = Math.floor(parts.clock.nowMs() / 1_000);
  await answerWork(held, by, outcome, (cost) => {
    return { type: JSON_TYPE, body: bodyOf(made, order, createdS, cost) };
  });
}

/** What is known of the pictures beside their bytes. */
function factsOf({ images, quality, usage }: Made, order: ImageOrder): JsonObject {
  return {
    output_format: images[0]?.format,
    size: images[0]?.size,
    quality: order.kind.quality ?? quality,
    usage,
  };
}

/** Base64 needs no escapes: it is put between texts, not through a JSON writer. */
function bodyOf(made: Made, order: ImageOrder, created: number, cost: ChargedCost): Buffer {
  const pieces: string[] = [`{"created":${created},"data":[`];
  for (const [place, { bytes, revisedPrompt }] of made.images.entries()) {
    const revised =
      revisedPrompt === undefined ? '' : `,"revised_prompt":${JSON.stringify(revisedPrompt)}`;
    const separator = place === 0 ? '' : ',';
    pieces.push(`${separator}{"b64_json":"`, bytes.toString('base64'), `"${revised}}`);
  }
  pieces.push('],', JSON.stringify({ ...factsOf(made, order), cost }).slice(1));
  return Buffer.from(pieces.join(''));
}

/** An event for each picture once all are charged; comments keep the connection open until then. */
async function answerAsEvents(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
): Promise<void> {
  const { context, sale } = held;
  let by: AnsweredBy = { replica: undefined, attempts: 1 };
  const stream = new AnswerStream({
    context,
    clock: parts.clock,
    type: EVENT_STREAM,
    head: () => sayStreamed(held, by),
    resume: () => undefined,
    keepAlive: KEEP_ALIVE,
  });
  try {
    const done = await sold(parts, order, held);
    by = done.by;
    if (context.keeper !== undefined) stream.begin();
    const answer = await sale.answer(done.outcome, (settled) => {
      const last = eventsOf(done.made, order, parts.clock, costOf(settled));
      return { type: EVENT_STREAM, body: stream.kept(last), last };
    });
    noteOutcome(context, done.outcome);
    stream.end(answer.last);
  } catch (error) {
    // Before the headers an error is a status; after them it is an event.
    if (!stream.hasBegun || held.signal.aborted) throw error;
    await sale.release({ status: 'failed' });
    const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
    const told = { message: fault.message, code: fault.code, param: null };
    stream.end(Buffer.from(eventText('error', JSON.stringify({ type: 'error', error: told }))));
    parts.log.warn({ requestId: context.requestId, reason: reasonOf(error) }, 'Images failed');
  } finally {
    stream.close();
  }
}

function eventsOf(made: Made, order: ImageOrder, clock: Clock, cost: ChargedCost): Buffer {
  const type = `${order.event}.completed`;
  const created_at = Math.floor(clock.nowMs() / 1_000);
  const events = made.images.map(({ bytes }, place) => {
    const isLast = place === made.images.length - 1;
    const facts = { type, created_at, ...factsOf(made, order), ...(isLast && { cost }) };
    const json = `{"b64_json":"${bytes.toString('base64')}",${JSON.stringify(facts).slice(1)}`;
    return eventText(type, json);
  });
  return Buffer.from(events.join(''));
}

function eventText(type: string, json: string): string {
  return `event: ${type}\ndata: ${json}\n\n`;
}
