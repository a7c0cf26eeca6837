/**
 * From media to a sold transcript, for every route that hears: how the media gets into a file and
 * how the transcript is written is the route's.
 *
 * Media is measured, its sound is taken out in the sandbox, cut at quiet places into pieces of a few
 * minutes, and each piece goes to an engine. Length costs time, not memory, and the price is known
 * to the millisecond before any engine works.
 *
 * A caller who leaves pays for the pieces that were written down; a failure costs nothing.
 */
import type { RateRule, Sale, Sales } from '../billing/sale.ts';
import {
  type Catalog,
  type CatalogModel,
  type Price,
  chargeFor,
  requireModel,
} from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { MediaWorkspace, MediaFile, MediaFiles } from '../documents/media-files.ts';
import type { EngineAnswer, Engines } from '../engines/engines.ts';
import { type RefusalCodes, mediaEngineFault } from '../engines/media-engine-fault.ts';
import {
  type AudioPiece,
  type Media,
  SPEECH_BYTES_PER_SECOND,
  audioPieces,
} from '../engines/media/media.ts';
import { AnswerHeaders } from '../http/answer-headers.ts';
import { priceFor, saleRequest } from '../http/model-sale.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Caller } from '../identity/identity.ts';
import { multipartBody } from '../net/multipart-body.ts';
import { type Heard, SpeechAnswers, type SpeechOptions } from './speech-answer.ts';

export interface TranscriptionsParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly maxSeconds: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly serviceName: string;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

/** What a request asks for. */
export interface TranscriptionOrder {
  /** The default of its type when `undefined`. */
  readonly model: string | undefined;
  /** Written down in the language of the speech, or in English. */
  readonly task: SpeechTask;
  readonly options: SpeechOptions;
  /** Puts the media into a file of the request. Called once the caller is known to have credit. */
  readonly take: (workspace: MediaWorkspace, signal: AbortSignal) => Promise<MediaFile>;
  /** The answer's body and its content type. */
  readonly write: (transcript: Transcript) => { readonly type: string; readonly body: Buffer };
}

export type SpeechTask = 'transcribe' | 'translate';

/** What was heard in all of the media. */
export interface Transcript {
  readonly task: SpeechTask;
  readonly text: string;
  /** ISO 639-1; `undefined` when nobody tells. */
  readonly language: string | undefined;
  readonly durationMs: number;
  /** In the order of time; with segments and words where they were asked for. */
  readonly heard: readonly Heard[];
}

/** 16 kHz of 16 bits: 19 MB, below the 25 MB that most servers take. */
const PIECE_SECONDS = 600;
/** Where in a piece its cut is looked for. */
const CUT_SECONDS = 30;
const MAX_ANSWER_BYTES = 8_000_000;
const MS_PER_SECOND = 1_000;
/** What each is in a usage record, and at an engine. */
const TASKS = {
  transcribe: { kind: 'transcription', path: '/audio/transcriptions' },
  translate: { kind: 'translation', path: '/audio/translations' },
} as const;
const REFUSALS: RefusalCodes = {
  byStatus: { 413: 'ASR_UPSTREAM_VALIDATION_FAILED' },
  refused: 'ASR_UPSTREAM_VALIDATION_FAILED',
  failed: 'ASR_UPSTREAM_FAILED',
};

/** One run, once its sound is a file and its money is held. */
interface Run {
  readonly parts: TranscriptionsParts;
  readonly context: RequestContext;
  readonly order: TranscriptionOrder;
  readonly model: CatalogModel;
  readonly price: Price;
  readonly sale: Sale;
  readonly pcmPath: string;
  readonly durationMs: number;
  /** What was written down so far. */
  doneMs: number;
  replica: string | undefined;
  attempts: number;
}

/** Hears the media of `order`, charges its length, and answers. Faults: 400, 402, 422, 429, 502, 503. */
export async function sellTranscription(
  parts: TranscriptionsParts,
  context: RequestContext,
  order: TranscriptionOrder,
): Promise<void> {
  const { sales } = parts;
  const { caller, notes } = context;
  const { kind } = TASKS[order.task];
  const asked = { name: order.model, work: kind };
  const resolved = requireModel(parts.catalog, 'asr', asked);
  const { model, deprecation } = resolved;
  const price = priceFor(context, resolved);
  const rate = parts.rateOf(caller, model);
  const wanted = saleRequest(context, { kind, model, price, rate });
  const sold = await sales.sell(wanted, async (sale) => {
    context.known = { model, deprecation, sale };
    const isFree = chargeFor({ audioMs: MS_PER_SECOND }, price) === 0n;
    if (!isFree) await sales.requireCredit(caller);
    return await parts.files.within(caller.accountId, async (workspace) => {
      const sound = await soundOf(parts, context, order, workspace);
      const costNano = chargeFor({ audioMs: sound.durationMs }, price);
      await sale.reserve({ minNano: costNano, maxNano: costNano });
      const work = { doneMs: 0, replica: undefined, attempts: 0 };
      const run: Run = { parts, context, order, model, price, sale, ...sound, ...work };
      const heard = await hearUntilLeft(run);
      const outcome = outcomeOf(run, costNano, 'completed');
      const answer = await sale.answer(outcome, ({ after }) => {
        const { replica, attempts } = run;
        const facts = { model, deprecation, rate, sale, replica, attempts };
        const headers = new AnswerHeaders(parts);
        headers.answered({ ...facts, remainingNano: after.usdNano }, context.answerHeaders);
        return order.write(transcriptOf(heard, sound.durationMs, order));
      });
      Object.assign(notes, {
        costUsd: formatUsd(costNano),
        ...(run.replica && { replica: run.replica }),
      });
      return answer;
    });
  });
  if (sold !== undefined) await context.bytes(200, sold.type, sold.body);
}

function transcriptOf(
  heard: readonly Heard[],
  durationMs: number,
  { task, options }: TranscriptionOrder,
): Transcript {
  const text = heard.flatMap((piece) => (piece.text === '' ? [] : [piece.text])).join(' ');
  const language = task === 'translate' ? 'en' : (mainLanguage(heard) ?? options.language);
  return { task, text, language, durationMs, heard };
}

/** Raw samples of the media, and their exact length. Faults: 400, 422. */
async function soundOf(
  parts: TranscriptionsParts,
  { caller, workSignal: signal }: RequestContext,
  order: TranscriptionOrder,
  workspace: MediaWorkspace,
): Promise<{ pcmPath: string; durationMs: number }> {
  const { maxSeconds } = parts;
  const file = await order.take(workspace, signal);
  const media = await parts.media();
  const looked = { signal, holder: caller.accountId };
  const { durationSeconds } = await media.probe(file.path, looked);
  if (durationSeconds > maxSeconds) throw tooLong(durationSeconds, maxSeconds);
  // Its sound lies beside it.
  await workspace.reserve(Math.ceil(durationSeconds * SPEECH_BYTES_PER_SECOND));
  const pcmPath = workspace.newPath();
  const { durationMs } = await media.extractAudio(file.path, pcmPath, maxSeconds + 1, looked);
  // A header may lie in both directions; the samples do not.
  if (durationMs > maxSeconds * MS_PER_SECOND) throw tooLong(durationMs / 1_000, maxSeconds);
  return { pcmPath, durationMs };
}

function tooLong(seconds: number, maxSeconds: number): Fault {
  return new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `The media has ${Math.ceil(seconds)} seconds: send at most ${maxSeconds}`,
  });
}

/** A caller who leaves pays for what was written down by then. */
async function hearUntilLeft(run: Run): Promise<Heard[]> {
  try {
    return await hearAll(run);
  } catch (error) {
    const hasWork = run.context.workSignal.aborted && run.doneMs > 0;
    const costNano = chargeFor({ audioMs: run.doneMs }, run.price);
    if (hasWork) await run.sale.settle(outcomeOf(run, costNano, 'aborted'));
    throw error;
  }
}

function outcomeOf(run: Run, costNano: Nano, status: 'completed' | 'aborted') {
  const { attempts, replica, doneMs } = run;
  const extras = { audioSeconds: doneMs / MS_PER_SECOND };
  return { costNano, status, attempts, ...(replica && { replica }), extras };
}

async function hearAll(run: Run): Promise<Heard[]> {
  const { parts, context, durationMs } = run;
  const heard: Heard[] = [];
  const answers = new SpeechAnswers(run.order.options);
  const startedMs = parts.clock.monotonicMs();
  for await (const piece of audioPieces(run.pcmPath, PIECE_SECONDS, CUT_SECONDS)) {
    const answer = await ask(run, answers, piece);
    run.replica = answer.replica.engine;
    run.attempts += answer.attempts;
    run.doneMs = piece.endMs;
    const said = answers.read(answer.body, piece);
    if (said.lacks !== undefined) throw noTimes(run.model, said.lacks);
    heard.push(said);
    if (piece.endMs >= durationMs) break;
    const spentMs = parts.clock.monotonicMs() - startedMs;
    const remainingMs = Math.round((spentMs * (durationMs - piece.endMs)) / piece.endMs);
    const percent = Math.floor((piece.endMs * 100) / durationMs);
    const fields = { requestId: context.requestId, percent, remainingMs };
    parts.log.info(fields, 'A transcription is on its way');
  }
  run.doneMs = durationMs;
  return heard;
}

async function ask(run: Run, answers: SpeechAnswers, piece: AudioPiece): Promise<EngineAnswer> {
  const { parts, context, model } = run;
  const boundary = `farebox-${context.requestId}`;
  const sound = { path: run.pcmPath, ...piece };
  const { kind, path } = TASKS[run.order.task];
  for (;;) {
    const answer = await parts.engines.collect({
      work: kind,
      replicas: model.replicas,
      method: 'POST',
      path,
      mayLackPath: run.order.task === 'translate',
      contentType: `multipart/form-data; boundary=${boundary}`,
      buildBody: (replica) => multipartBody(boundary, answers.parts(replica.model, sound)),
      maxResponseBytes: MAX_ANSWER_BYTES,
      isUsable: (body) => answers.isUsable(body, piece.endMs - piece.startMs),
      caller: context.caller.accountId,
      signal: context.workSignal,
    });
    if (answer.ok) return answer;
    const isOverFormat = answer.reason === 'refused' && answer.status === 400;
    if (isOverFormat && answers.askForLess()) continue;
    if (isOverFormat && answers.wantsTimes) throw noTimes(model, answers.wantsTimes);
    throw mediaEngineFault(answer, model.id, REFUSALS);
  }
}

/** Without them a subtitle would be an invention. */
function noTimes(model: CatalogModel, what: string): Fault {
  const message = `The model ${model.id} gives no times of ${what}s for this request: ask for json or text, or choose another model`;
  return new Fault('ASR_UPSTREAM_VALIDATION_FAILED', { message });
}

/** The language of most of the speech. */
function mainLanguage(heard: readonly Heard[]): string | undefined {
  const spoken = new Map<string, number>();
  for (const { language, text, ms } of heard) {
    if (language !== '' && text !== '') spoken.set(language, (spoken.get(language) ?? 0) + ms);
  }
  const [best] = [...spoken].toSorted((a, b) => b[1] - a[1]);
  return best?.[0] ?? heard.find(({ language }) => language !== '')?.language;
}
