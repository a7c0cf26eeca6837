/**
 * `POST /audio/speech`: forwards generated speech while it is being generated, and charges by the
 * characters of the text.
 *
 * The first bytes must match the requested format before any are sent. The audio is also written to
 * a file and decoded completely before the charge; the last bytes are sent after the charge is
 * committed. Audio that is cut off, silent, or too short or too long for its text costs nothing. A caller who
 * disconnects after the first bytes is charged for the whole text, because the engine has received
 * all of it; a failure of the engine costs nothing.
 */
import { createHash } from 'node:crypto';
import { type WriteStream, createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { jsonWithoutNulls } from '../../json/json-text.ts';
import type { Outcome } from '../../billing/sale.ts';
import { chargeFor } from '../../catalog/catalog.ts';
import type { SpeechFormat } from '../../config/config.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { sniffMedia } from '../../core/media-type.ts';
import { tokensAbout } from '../../core/token-count.ts';
import type { MediaFiles, MediaWorkspace } from '../../documents/media-files.ts';
import { UNSOLD_MEMBERS } from '../../engines/unsold-members.ts';
import { speechEngineFault } from '../../engines/media-engine-fault.ts';
import type {
  EngineCall,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSink,
  Engines,
} from '../../engines/engines.ts';
import {
  type LearnedFields,
  OmittedFields,
  type Rejects,
  rejectsAsUnknown,
} from '../../engines/learned-fields.ts';
import type { Media } from '../../engines/media/media.ts';
import { ResponseStream, dataEvent, EVENT_STREAM, KEEP_ALIVE } from '../../http/response-stream.ts';
import { type ReadLargeJson, readJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { costOf, noteOutcome } from '../../http/model-sale.ts';
import {
  type ServedBy,
  findModel,
  type FoundModel,
  type HeldWork,
  sayStreamed,
  sellWork,
  type SellingParts,
} from '../../http/sell-work.ts';
import { refuseIssues } from '../../json/validation.ts';
import { charactersIn, isAudible, PCM_BYTES_PER_SECOND, secondsOf } from './check-speech.ts';
import { AUDIO_SPEECH, SPEECH_TYPES } from './describe.ts';
import { SpeechRequest } from './schema.ts';

export interface AudioSpeechParts extends SellingParts {
  readonly engines: Engines;
  readonly clock: Clock;
  readonly log: Log;
  readonly readLargeJson: ReadLargeJson;
  readonly learned: LearnedFields;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
}

const DEFAULT_MAX_CHARACTERS = 4_096;
/** Enough for slow, uncompressed stereo speech. */
const MAX_BYTES_PER_CHARACTER = 64 * 1024;
const MIN_RESPONSE_BYTES = 4 * 1024 * 1024;
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
const TIME_LIMITS = { firstByteMs: 300_000 };
const RETRY_SECONDS = 30;
const RESPONSE_TYPES = ['audio/', 'application/octet-stream', 'application/ogg', 'binary/'];
/** Bytes needed to detect the format; a shorter response has no audio (a WAV header is 44). */
const HEAD_BYTES = 64;
/** The engine has ended, or computes, if no bytes follow for this long. */
const HOLD_MS = 50;
const LAST_BYTES = 1_024;
/** The detected type of each format by its first bytes; raw samples have none. */
const DETECTED_TYPES: Readonly<Record<Exclude<SpeechFormat, 'pcm'>, string>> = {
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  wav: 'audio/wav',
};
const EMPTY = Buffer.alloc(0);
export function audioSpeechRoute(parts: AudioSpeechParts): Route {
  return {
    method: 'POST',
    path: '/audio/speech',
    auth: 'key-or-wallet',
    about: 'Speech from text',
    body: JSON_BODY,
    sells: 'speech',
    describe: AUDIO_SPEECH,
    handle: (context) => speak(parts, context),
  };
}

interface SpeechOrder {
  readonly request: SpeechRequest;
  readonly characters: number;
  readonly voice: SpeechRequest['voice'];
  readonly format: SpeechFormat;
  readonly asEvents: boolean;
}

async function speak(parts: AudioSpeechParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, SpeechRequest, parts.readLargeJson);
  const wanted = { name: request.model ?? undefined, work: 'speech' };
  const found = findModel(parts, context, 'tts', wanted);
  const order = orderOf(request, found);
  const costNano = chargeFor({ characters: order.characters }, found.price);
  const bounds = { minNano: costNano, maxNano: costNano };
  await sellWork(parts, context, found, { kind: 'speech', bounds }, (held) =>
    parts.files.within(context.caller.accountId, async (workspace) => {
      // Before the engine is called, because it may bill the whole text.
      if (order.format !== 'pcm') await workspace.reserve(HEAD_BYTES);
      await new SpeechResponse(parts, held, order, workspace).run();
    }),
  );
}

function orderOf(request: SpeechRequest, { model }: FoundModel): SpeechOrder {
  const { id, speech } = model;
  const refuse = (field: string, message: string): never => {
    throw refuseIssues([{ code: 'custom', path: [field], message }]);
  };
  const most = speech?.maxCharacters ?? DEFAULT_MAX_CHARACTERS;
  const characters = charactersIn(request.input);
  if (characters > most) {
    refuse('input', `The model ${id} takes at most ${most} characters, got ${characters}`);
  }
  const { voice: given } = request;
  const named = typeof given === 'string' ? given : given?.id;
  const voices = speech?.voices;
  if (named !== undefined && voices !== undefined && !voices.includes(named)) {
    refuse('voice', `The model ${id} has the voices ${voices.join(', ')}, not ${named}`);
  }
  const formats = speech?.formats;
  const usual = formats === undefined || formats.includes('mp3') ? 'mp3' : formats[0];
  const format = request.response_format ?? usual ?? 'mp3';
  if (formats !== undefined && !formats.includes(format)) {
    refuse('response_format', `The model ${id} writes ${formats.join(', ')}, not ${format}`);
  }
  const voice = given ?? speech?.defaultVoice ?? voices?.[0];
  return { request, characters, voice, format, asEvents: request.stream_format === 'sse' };
}

/** Fields that determine the speech; an engine may reject any other one as unknown. */
const REQUIRED = new Set(['model', 'input', 'voice', 'speed', 'response_format']);

function optionalFields({ request, format }: SpeechOrder): [string, Rejects][] {
  const names = Object.keys(request).filter((name) => !REQUIRED.has(name));
  // The usual format of engines; the format of the result is checked.
  if (format === 'mp3') names.push('response_format');
  return names.map((name) => [name, rejectsAsUnknown(name)]);
}

function engineBody(
  { request, voice, format }: SpeechOrder,
  model: string,
  isOmitted: (field: string) => boolean,
): Buffer {
  const { user: _user, stream_format: _format, ...fields } = request;
  const own = { ...UNSOLD_MEMBERS, model, voice, response_format: format };
  const sent = Object.entries({ ...fields, ...own }).filter(([name]) => !isOmitted(name));
  return jsonWithoutNulls(Object.fromEntries(sent));
}

class SpeechResponse implements EngineSink {
  readonly #parts: AudioSpeechParts;
  readonly #held: HeldWork;
  readonly #order: SpeechOrder;
  readonly #response: ResponseStream;
  readonly #workspace: MediaWorkspace;
  readonly #path: string;
  readonly #omitted: OmittedFields;
  readonly #file: WriteStream | undefined;
  #reserving: Promise<void> = Promise.resolve();
  #engineRun: EngineRun | undefined;
  #head: EngineHead | undefined;
  /** The latest bytes, held back until more arrive or the charge is committed. */
  #pending: Buffer = EMPTY;
  #stopWaiting: (() => void) | undefined;
  #audioBytes = 0;
  #hasAudibleSample = false;
  readonly #hash = createHash('sha256');
  #isFormatChecked = false;
  #hasSent = false;
  #problem: string | Fault | undefined;

  constructor(
    parts: AudioSpeechParts,
    held: HeldWork,
    order: SpeechOrder,
    workspace: MediaWorkspace,
  ) {
    this.#parts = parts;
    this.#held = held;
    this.#order = order;
    this.#workspace = workspace;
    this.#path = workspace.newPath();
    const { accountId } = held.context.caller;
    this.#omitted = new OmittedFields(parts.learned, accountId, optionalFields(order));
    const { format, asEvents } = order;
    this.#file = format === 'pcm' ? undefined : this.#openFile();
    this.#response = new ResponseStream({
      context: held.context,
      clock: parts.clock,
      type: asEvents ? EVENT_STREAM : SPEECH_TYPES[format],
      setHeaders: () => sayStreamed(held, this.#servedBy()),
      resume: () => this.#resume(),
      keepAlive: asEvents ? () => KEEP_ALIVE : undefined,
    });
  }

  async run(): Promise<void> {
    try {
      this.#engineRun = this.#parts.engines.run(this.#call(), this);
      const outcome = await this.#engineRun.outcome;
      this.#stopWaiting?.();
      await this.#closeFile();
      if (this.#held.signal.aborted) return await this.#chargeDisconnect(outcome);
      const fault = this.#problemOf(outcome) ?? (await this.#checkAudio());
      if (this.#held.signal.aborted) return await this.#chargeDisconnect(outcome);
      await (fault === undefined ? this.#complete(outcome) : this.#fail(fault, outcome));
    } finally {
      this.#file?.destroy();
      this.#response.close();
      await this.#reserving;
    }
  }

  #openFile(): WriteStream {
    const file = createWriteStream(this.#path);
    file.on('drain', () => this.#resume());
    // A full disk: the audio cannot be checked and is not sold.
    file.on('error', (cause) => {
      this.#refuse(new Fault('SERVICE_UNAVAILABLE', { cause, retryAfterSeconds: RETRY_SECONDS }));
    });
    return file;
  }

  /** Resumes the engine when both the response and the file accept more data. */
  #resume(): void {
    if (this.#response.isBlocked || this.#file?.writableNeedDrain === true) return;
    this.#engineRun?.resume();
  }

  #refuse(problem: string | Fault): void {
    this.#problem ??= problem;
    this.#engineRun?.abort();
  }

  #store(chunk: Buffer): boolean {
    if (this.#file === undefined || this.#file.destroyed) return true;
    this.#reserving = this.#reserving
      .then(() => this.#workspace.reserve(chunk.length))
      .catch((error: unknown) => {
        // No disk space: 429 or 503, depending on whose limit it is.
        this.#refuse(error instanceof Fault ? error : new Fault('UNKNOWN_ERROR', { cause: error }));
      });
    return this.#file.write(chunk);
  }

  async #closeFile(): Promise<void> {
    await this.#reserving;
    if (this.#file === undefined || this.#file.destroyed) return;
    this.#file.end();
    // The write error is already recorded as the problem.
    await finished(this.#file).catch(() => undefined);
  }

  /** Decodes the audio. Resolves to a Fault if it cannot be sold, else to `undefined`. */
  async #checkAudio(): Promise<Fault | undefined> {
    const { signal, context } = this.#held;
    const { min, max } = secondsOf(this.#order.request);
    try {
      const { seconds, isSilent } =
        this.#file === undefined
          ? {
              seconds: this.#audioBytes / PCM_BYTES_PER_SECOND,
              isSilent: !this.#hasAudibleSample,
            }
          : await (
              await this.#parts.media()
            ).checkSound(this.#path, { signal, caller: context.caller.accountId });
      const isPlausible = seconds > 0 && seconds >= min && seconds <= max;
      // A text without letters, such as dots, may be a pause.
      if (isPlausible && (!isSilent || min === 0)) return undefined;
      const cause = isPlausible
        ? 'The audio is silent'
        : `The audio has ${seconds.toFixed(2)} seconds, its text needs ${min.toFixed(2)} to ${max.toFixed(2)}`;
      return new Fault('INFERENCE_FAILED', { cause });
    } catch (error) {
      // The caller disconnected during the check.
      if (signal.aborted) return undefined;
      const isUnusable = error instanceof Fault && error.code === 'INVALID_VIDEO_FORMAT';
      if (isUnusable) return new Fault('INFERENCE_FAILED', { cause: error.message });
      // This machine cannot decode now: unchecked audio is not sold.
      if (error instanceof Fault) return error;
      throw error;
    }
  }

  onHead(head: EngineHead): void {
    this.#head = head;
  }

  onChunk(chunk: Buffer): boolean {
    this.#stopWaiting?.();
    this.#stopWaiting = this.#parts.clock.after(HOLD_MS, () => this.#sendMost());
    if (this.#file === undefined) this.#hasAudibleSample ||= isAudible(chunk, this.#audioBytes);
    this.#audioBytes += chunk.length;
    this.#hash.update(chunk);
    if (this.#problem !== undefined) return true;
    const isStored = this.#store(chunk);
    if (!this.#isFormatChecked) {
      this.#pending = Buffer.concat([this.#pending, chunk]);
      if (this.#pending.length >= HEAD_BYTES) this.#checkFormat();
      return isStored;
    }
    const before = this.#pending;
    this.#pending = chunk;
    this.#hasSent = true;
    return this.#response.write(this.#encoded(before)) && isStored;
  }

  /** The engine computes the next sound: sends the bytes that are here, except for the last ones. */
  #sendMost(): void {
    const end = this.#pending.length - LAST_BYTES;
    if (!this.#isFormatChecked || this.#problem !== undefined || end <= 0) return;
    const most = this.#pending.subarray(0, end);
    this.#pending = this.#pending.subarray(end);
    this.#hasSent = true;
    this.#response.write(this.#encoded(most));
  }

  #checkFormat(): void {
    this.#isFormatChecked = true;
    const { format } = this.#order;
    if (format === 'pcm') return;
    const type = sniffMedia(this.#pending);
    if (type === DETECTED_TYPES[format]) return;
    this.#refuse(`The audio is ${type ?? 'of an unknown format'}, not ${format}`);
  }

  #encoded(bytes: Buffer): Buffer {
    if (!this.#order.asEvents || bytes.length === 0) return bytes;
    return dataEvent({ type: 'speech.audio.delta', audio: bytes.toString('base64') });
  }

  #call(): EngineCall {
    const { model, context, signal } = this.#held;
    const mostBytes = MIN_RESPONSE_BYTES + this.#order.characters * MAX_BYTES_PER_CHARACTER;
    return {
      work: 'speech',
      replicas: model.replicas,
      method: 'POST',
      path: '/audio/speech',
      contentType: 'application/json',
      buildBody: (replica, refusal) => {
        if (refusal !== undefined && !this.#omitted.add(replica, refusal)) return undefined;
        return engineBody(this.#order, replica.model, (name) => this.#omitted.has(replica, name));
      },
      canAmend: true,
      isOptionalPath: true,
      caller: context.caller.accountId,
      tries: context,
      signal,
      maxResponseBytes: Math.min(MAX_RESPONSE_BYTES, mostBytes),
      timeLimits: TIME_LIMITS,
      accept: RESPONSE_TYPES,
    };
  }

  #servedBy(): ServedBy {
    const head = this.#head;
    return { replica: head?.replica.engine, attempts: head?.attempts ?? 1 };
  }

  #problemOf(outcome: EngineOutcome): Fault | undefined {
    let problem = this.#problem;
    if (problem === undefined) {
      if (!outcome.ok) return speechEngineFault(outcome, this.#held.model.id);
      if (!this.#isFormatChecked) problem = 'The response has no audio';
      if (this.#order.format === 'pcm' && this.#audioBytes % 2 === 1)
        problem = 'The raw audio ends within a sample';
    }
    if (problem === undefined || problem instanceof Fault) return problem;
    return new Fault('INFERENCE_FAILED', { cause: problem });
  }

  #outcome(outcome: EngineOutcome, status: Outcome['status'], sha256?: string[]): Outcome {
    const { characters } = this.#order;
    const { attempts, replica } = outcome;
    const firstTokenMs = this.#head?.firstByteMs;
    return {
      costNano: chargeFor({ characters }, this.#held.price),
      status,
      attempts,
      extras: { characters, ...(sha256 && { sha256 }) },
      ...(replica === null ? {} : { replica: replica.engine }),
      ...(firstTokenMs === undefined ? {} : { firstTokenMs }),
    };
  }

  async #complete(outcome: EngineOutcome): Promise<void> {
    const { context, sale } = this.#held;
    const { asEvents, format, request } = this.#order;
    if (outcome.replica !== null) this.#omitted.learn(outcome.replica);
    const charge = this.#outcome(outcome, 'completed', [this.#hash.digest('hex')]);
    if (context.keeper !== undefined) this.#response.begin();
    const type = asEvents ? EVENT_STREAM : SPEECH_TYPES[format];
    const audio = this.#encoded(this.#pending);
    const sold = await sale.answer(charge, (settled) => {
      const tokens = tokensAbout(Buffer.byteLength(request.input));
      const usage = { input_tokens: tokens, output_tokens: 0, total_tokens: tokens };
      const done = { type: 'speech.audio.done', usage, cost: costOf(settled) };
      const last = asEvents ? Buffer.concat([audio, dataEvent(done)]) : audio;
      return { type, body: this.#response.kept(last), last };
    });
    noteOutcome(context, charge);
    this.#response.end(sold.last);
  }

  /** Charges for the whole text if any audio was sent. */
  async #chargeDisconnect(outcome: EngineOutcome): Promise<void> {
    if (!this.#hasSent) return;
    const charge = this.#outcome(outcome, 'aborted');
    await this.#held.sale.settle(charge);
    noteOutcome(this.#held.context, charge);
  }

  /**
   * Before the first bytes an error sets the status; afterwards the response is aborted, or the
   * error is an event.
   */
  async #fail(fault: Fault, outcome: EngineOutcome): Promise<void> {
    const { context, sale } = this.#held;
    if (!this.#response.hasBegun) throw fault;
    // The engine was aborted because the caller does not read: not a failure of the engine.
    const isGivenUp = !outcome.ok && outcome.reason === 'timeout';
    if (isGivenUp && this.#response.isBlocked && this.#hasSent)
      await this.#chargeDisconnect(outcome);
    else await sale.release({ status: 'failed', attempts: outcome.attempts });
    context.failed(fault);
    const reason = reasonOf(fault.options.cause ?? fault);
    this.#parts.log.warn({ requestId: context.requestId, reason }, 'A speech stream failed');
    if (!this.#order.asEvents) return context.destroy();
    const error = { message: fault.message, code: fault.code, param: null };
    this.#response.end(dataEvent({ type: 'error', error }));
  }
}
