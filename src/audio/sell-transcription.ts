/**
 * Turns media into a sold transcript, for all transcription endpoints. The endpoint determines how
 * the media arrives and how the transcript is formatted.
 *
 * The media is measured, its sound is extracted in the sandbox and cut at quiet positions into
 * pieces of a few minutes, and each piece is sent to an engine. Memory use does not depend on the
 * length. The billed length is known to the millisecond before an engine is called.
 *
 * A caller who disconnects is charged for the transcribed pieces, and for a piece of which text was
 * already sent; a failure costs nothing.
 */
import { type CatalogModel, chargeFor } from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { MediaWorkspace, MediaFile, MediaFiles } from '../documents/media-files.ts';
import type { EngineResponse, EngineCall, Engines, FailureReason } from '../engines/engines.ts';
import { type LearnedFields, OmittedFields } from '../engines/learned-fields.ts';
import { type RefusalCodes, mediaEngineFault } from '../engines/media-engine-fault.ts';
import {
  type AudioPiece,
  type Media,
  SPEECH_BYTES_PER_SECOND,
  audioPieces,
} from '../engines/media/media.ts';
import { EVENT_STREAM } from '../http/response-stream.ts';
import type { RequestContext } from '../http/request-context.ts';
import { costOf, noteOutcome } from '../http/model-sale.ts';
import {
  type HeldWork,
  type SellingParts,
  answerWork,
  findModel,
  sayStreamed,
  sellWork,
} from '../http/sell-work.ts';
import { multipartBody } from '../net/multipart-body.ts';
import {
  type PieceTranscript,
  TranscriptionResponses,
  type TranscriptionOptions,
  maxCharactersOf,
} from './transcription-engine.ts';
import { TranscriptStream } from './transcript-stream.ts';

export interface TranscriptionsParts extends SellingParts {
  readonly engines: Engines;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly maxSeconds: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly learned: LearnedFields;
}

export interface TranscriptionOrder {
  readonly model: string | undefined;
  readonly task: SpeechTask;
  readonly options: TranscriptionOptions;
  /** Writes the media into a file of the request. Called after the credit check. */
  readonly saveMedia: (workspace: MediaWorkspace, signal: AbortSignal) => Promise<MediaFile>;
  readonly write: (transcript: Transcript) => { readonly type: string; readonly body: Buffer };
  /** Sends the transcript as events; `write` is then not called. */
  readonly asEvents?: boolean;
}

export type SpeechTask = 'transcribe' | 'translate';

export interface Transcript {
  readonly task: SpeechTask;
  readonly text: string;
  /** ISO 639-1; `undefined` if unknown. */
  readonly language: string | undefined;
  readonly durationMs: number;
  readonly pieces: readonly PieceTranscript[];
}

/** 19 MB of 16-bit samples at 16 kHz, below the 25 MB that most servers accept. */
const PIECE_SECONDS = 600;
/** The last part of a piece in which the cut is placed. */
const CUT_SECONDS = 30;
const MAX_ANSWER_BYTES = 8_000_000;
const MS_PER_SECOND = 1_000;
/** Name of each task in a usage record, and its path at an engine. */
const TASKS = {
  transcribe: { kind: 'transcription', path: '/audio/transcriptions' },
  translate: { kind: 'translation', path: '/audio/translations' },
} as const;
const REFUSALS: RefusalCodes = {
  byStatus: { 413: 'ASR_UPSTREAM_VALIDATION_FAILED' },
  refused: 'ASR_UPSTREAM_VALIDATION_FAILED',
  failed: 'ASR_UPSTREAM_FAILED',
};

interface Run extends HeldWork {
  readonly parts: TranscriptionsParts;
  readonly order: TranscriptionOrder;
  readonly pcmPath: string;
  readonly durationMs: number;
  readonly responses: TranscriptionResponses;
  stream: TranscriptStream | undefined;
  doneMs: number;
  /** The caller does not read the response, so the engine was aborted. */
  isStalled: boolean;
  replica: string | undefined;
  attempts: number;
}

/** Transcribes media, charges its length and responds. Faults: 400, 402, 422, 429, 502, 503. */
export async function sellTranscription(
  parts: TranscriptionsParts,
  context: RequestContext,
  order: TranscriptionOrder,
): Promise<void> {
  const { caller } = context;
  const { kind } = TASKS[order.task];
  const found = findModel(parts, context, 'asr', { name: order.model, work: kind });
  await sellWork(parts, context, found, { kind }, async (held) => {
    const { sale, price } = held;
    const isFree = chargeFor({ audioMs: MS_PER_SECOND }, price) === 0n;
    if (!isFree) await parts.sales.requireCredit(caller);
    await parts.files.within(caller.accountId, async (workspace) => {
      const sound = await extractSound(parts, context, order, workspace);
      const costNano = chargeFor({ audioMs: sound.durationMs }, price);
      await sale.reserve({ minNano: costNano, maxNano: costNano });
      const run: Run = {
        ...held,
        ...sound,
        parts,
        order,
        responses: new TranscriptionResponses(order.options),
        stream: undefined,
        doneMs: 0,
        isStalled: false,
        replica: undefined,
        attempts: 0,
      };
      await (order.asEvents === true
        ? streamTranscript(run, costNano)
        : sendTranscript(run, costNano));
    });
  });
}

async function sendTranscript(run: Run, costNano: Nano): Promise<void> {
  const pieces = await transcribeUntilDisconnect(run);
  const transcript = transcriptOf(pieces, run.durationMs, run.order);
  await answerWork(run, run, outcomeOf(run, costNano, 'completed', transcript.text), () =>
    run.order.write(transcript),
  );
}

/** Streams the transcript; its final event is sent after the charge is committed. */
async function streamTranscript(run: Run, costNano: Nano): Promise<void> {
  const { parts, context, sale } = run;
  const stream = new TranscriptStream({
    context,
    clock: parts.clock,
    setHeaders: () => sayStreamed(run, run),
  });
  run.stream = stream;
  try {
    await transcribeUntilDisconnect(run);
    // A response that is stored for retries includes the headers.
    if (context.keeper !== undefined) stream.begin();
    const outcome = outcomeOf(run, costNano, 'completed', stream.text);
    const sold = await sale.answer(outcome, (settled) => {
      const last = stream.done(run.durationMs, costOf(settled));
      return { type: EVENT_STREAM, body: stream.kept(last), last };
    });
    noteOutcome(context, outcome);
    stream.end(sold.last);
  } catch (error) {
    // Before the first text an error sets the status.
    if (!stream.hasBegun || context.workSignal.aborted || sale.state === 'settled') throw error;
    await endFailedStream(run, stream, error);
  } finally {
    stream.close();
  }
}

/** Ends a stream that failed after text was sent: free, unless the caller did not read it. */
async function endFailedStream(run: Run, stream: TranscriptStream, error: unknown): Promise<void> {
  const { parts, context, sale, price, attempts } = run;
  const doneNano = chargeFor({ audioMs: run.doneMs }, price);
  if (run.isStalled) await sale.settle(outcomeOf(run, doneNano, 'aborted'));
  else await sale.release({ status: 'failed', attempts });
  const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
  const reason = reasonOf(fault.options.cause ?? error);
  parts.log.warn({ requestId: context.requestId, reason }, 'A transcript stream failed');
  context.failed(fault);
  stream.fail({ message: fault.message, code: fault.code });
}

function transcriptOf(
  pieces: readonly PieceTranscript[],
  durationMs: number,
  { task, options }: TranscriptionOrder,
): Transcript {
  const text = pieces.flatMap((piece) => (piece.text === '' ? [] : [piece.text])).join(' ');
  const language = task === 'translate' ? 'en' : (mainLanguage(pieces) ?? options.language);
  return { task, text, language, durationMs, pieces };
}

/** Extracts raw samples; returns their exact length. Faults: 400, 422. */
async function extractSound(
  parts: TranscriptionsParts,
  { caller, workSignal: signal }: RequestContext,
  order: TranscriptionOrder,
  workspace: MediaWorkspace,
): Promise<{ pcmPath: string; durationMs: number }> {
  const { maxSeconds } = parts;
  const file = await order.saveMedia(workspace, signal);
  const media = await parts.media();
  const call = { signal, caller: caller.accountId };
  const { durationSeconds, hasAudio } = await media.probe(file.path, call);
  if (!hasAudio) throw noSound();
  if (durationSeconds > maxSeconds) throw tooLong(durationSeconds, maxSeconds);
  // The extracted sound needs disk space as well.
  const expectedBytes = Math.ceil(durationSeconds * SPEECH_BYTES_PER_SECOND);
  await workspace.reserve(expectedBytes);
  const pcmPath = workspace.newPath();
  const { durationMs } = await media.extractAudio(file.path, pcmPath, maxSeconds + 1, call);
  // The duration of header and packets may be wrong; the number of samples is exact.
  if (durationMs > maxSeconds * MS_PER_SECOND) throw tooLong(durationMs / 1_000, maxSeconds);
  const writtenBytes = (durationMs / MS_PER_SECOND) * SPEECH_BYTES_PER_SECOND;
  await workspace.reserve(Math.max(0, writtenBytes - expectedBytes));
  return { pcmPath, durationMs };
}

function noSound(): Fault {
  const message = 'The video has no audio track: send media with sound';
  return new Fault('ASR_UPSTREAM_VALIDATION_FAILED', { message });
}

function tooLong(seconds: number, maxSeconds: number): Fault {
  return new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `The media has ${Math.ceil(seconds)} seconds: send at most ${maxSeconds}`,
  });
}

/** Transcribes all pieces; after a disconnect of the caller returns those done until then. */
async function transcribeUntilDisconnect(run: Run): Promise<PieceTranscript[]> {
  try {
    return await transcribeAll(run);
  } catch (error) {
    const hasWork = run.context.workSignal.aborted && run.doneMs > 0;
    const costNano = chargeFor({ audioMs: run.doneMs }, run.price);
    if (hasWork) await run.sale.settle(outcomeOf(run, costNano, 'aborted'));
    throw error;
  }
}

/** `text` is the transcript that is sold, if it is complete. */
function outcomeOf(run: Run, costNano: Nano, status: 'completed' | 'aborted', text?: string) {
  const { attempts, replica, doneMs } = run;
  const sold = text === undefined ? {} : { sha256: [sha256Hex(text)] };
  const extras = { audioSeconds: doneMs / MS_PER_SECOND, ...sold };
  return { costNano, status, attempts, ...(replica && { replica }), extras };
}

async function transcribeAll(run: Run): Promise<PieceTranscript[]> {
  const { parts, context, durationMs, responses } = run;
  const pieces: PieceTranscript[] = [];
  const startedMs = parts.clock.monotonicMs();
  for await (const piece of audioPieces(run.pcmPath, PIECE_SECONDS, CUT_SECONDS)) {
    if (run.stream === undefined) {
      const { body } = await requestPiece(run, piece);
      const transcript = responses.read(body, piece);
      if (transcript.lacks !== undefined) throw noTimes(run.model, transcript.lacks);
      pieces.push(transcript);
    } else await streamPiece(run, run.stream, piece);
    run.doneMs = piece.endMs;
    if (piece.endMs >= durationMs) break;
    const spentMs = parts.clock.monotonicMs() - startedMs;
    const remainingMs = Math.round((spentMs * (durationMs - piece.endMs)) / piece.endMs);
    const percent = Math.floor((piece.endMs * 100) / durationMs);
    const fields = { requestId: context.requestId, percent, remainingMs };
    parts.log.info(fields, 'A transcription is in progress');
  }
  run.doneMs = durationMs;
  return pieces;
}

/** Transcribes one piece as a stream. An engine without streaming is requested without it. */
async function streamPiece(run: Run, stream: TranscriptStream, piece: AudioPiece): Promise<void> {
  const { responses, parts } = run;
  const omitted = omittedFields(run, true);
  const ms = piece.endMs - piece.startMs;
  stream.beginPiece();
  const { attempts } = run;
  const streamed = await stream.requestPiece({
    engines: parts.engines,
    call: callOf(run, piece, omitted, true),
    maxCharacters: maxCharactersOf(ms),
    // The response headers contain the engine.
    onHead: (head) => {
      run.replica = head.replica.engine;
      run.attempts = attempts + head.attempts;
    },
  });
  const { outcome, body, problem, isWhole } = streamed;
  run.attempts = attempts + outcome.attempts;
  if (outcome.ok) omitted.learn(outcome.replica);
  // The engine received the whole piece, so all of it is charged.
  if (stream.hasPiece) run.doneMs = piece.endMs;
  const { aborted } = run.context.workSignal;
  if (isWhole && problem === undefined && !aborted) return;
  if (outcome.ok && problem === undefined) {
    if (body === undefined) return;
    if (responses.isUsable(body, ms))
      return void stream.writeText(responses.read(body, piece).text);
  }
  if (!aborted && !stream.hasPiece && (outcome.ok || WITHOUT_STREAM.has(outcome.reason))) {
    const whole = await requestPiece(run, piece);
    return void stream.writeText(responses.read(whole.body, piece).text);
  }
  if (!outcome.ok && problem === undefined) {
    run.isStalled = stream.hasPiece && outcome.reason === 'timeout' && stream.isBlocked;
    throw mediaEngineFault(outcome, run.model.id, REFUSALS);
  }
  throw new Fault(REFUSALS.failed, { cause: problem });
}

function omittedFields({ parts, context, responses }: Run, asStream: boolean): OmittedFields {
  const { accountId } = context.caller;
  return new OmittedFields(parts.learned, accountId, responses.optionalFields(asStream));
}

/** Failures that may mean that an engine does not support streaming. */
const WITHOUT_STREAM: ReadonlySet<FailureReason> = new Set(['refused', 'failed', 'garbage']);

function callOf(
  { context, model, order, pcmPath, responses }: Run,
  piece: AudioPiece,
  omitted: OmittedFields,
  asStream: boolean,
): EngineCall {
  const boundary = `farebox-${context.requestId}`;
  const sound = { path: pcmPath, ...piece };
  const { kind, path } = TASKS[order.task];
  return {
    work: kind,
    replicas: model.replicas,
    method: 'POST',
    path,
    isOptionalPath: order.task === 'translate',
    contentType: `multipart/form-data; boundary=${boundary}`,
    buildBody: (replica, refusal) => {
      if (refusal !== undefined && !omitted.add(replica, refusal)) return undefined;
      const isOmitted = (field: string): boolean => omitted.has(replica, field);
      return multipartBody(boundary, responses.parts(replica.model, sound, asStream, isOmitted));
    },
    canAmend: true,
    maxResponseBytes: MAX_ANSWER_BYTES,
    caller: context.caller.accountId,
    tries: context,
    signal: context.workSignal,
  };
}

async function requestPiece(run: Run, piece: AudioPiece): Promise<EngineResponse> {
  const { parts, model, responses } = run;
  const omitted = omittedFields(run, false);
  const response = await parts.engines.collect({
    ...callOf(run, piece, omitted, false),
    isUsable: (body) => responses.isUsable(body, piece.endMs - piece.startMs),
  });
  if (response.ok) {
    omitted.learn(response.replica);
    run.replica = response.replica.engine;
    run.attempts += response.attempts;
    return response;
  }
  const isOverFormat = response.reason === 'refused' && response.status === 400;
  if (isOverFormat && responses.wantsTimes) throw noTimes(model, responses.wantsTimes);
  throw mediaEngineFault(response, model.id, REFUSALS);
}

/** The Fault for a model without times: subtitles cannot be written then. */
function noTimes(model: CatalogModel, what: string): Fault {
  const message = `The model ${model.id} does not return times of ${what}s for this request: request json or text, or choose another model`;
  return new Fault('ASR_UPSTREAM_VALIDATION_FAILED', { message });
}

function mainLanguage(pieces: readonly PieceTranscript[]): string | undefined {
  const spoken = new Map<string, number>();
  for (const { language, text, ms } of pieces) {
    if (language !== '' && text !== '') spoken.set(language, (spoken.get(language) ?? 0) + ms);
  }
  const [best] = [...spoken].toSorted((a, b) => b[1] - a[1]);
  return best?.[0] ?? pieces.find(({ language }) => language !== '')?.language;
}
