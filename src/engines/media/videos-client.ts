/**
 * Speaks OpenAI's `/v1/videos` to engines: create with multipart, list, poll, fetch, delete. A job
 * stays with the replica that took it.
 *
 * What an engine does wrong is an answer (`away`, `unclear`, `lost`, `refused`), never a throw: the
 * caller is a job that will ask again. The words of an engine are in `detail`, for the log.
 */
import { parsedJson } from '../../json/json-text.ts';
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { z } from 'zod';
import { type FormPart, multipartBody } from '../../net/multipart-body.ts';
import type { EngineFailure, EngineRun, Engines, Replica } from '../engines.ts';

/** Where a job is ordered: an engine, and the name that it gives the model. */
export interface EnginePlace {
  readonly engine: string;
  readonly engineModel: string;
}

/** A job of an engine: enough to find it again after a restart. */
export interface EngineRef extends EnginePlace {
  readonly engineJobId: string;
}

/** A job as the service keeps it. Its `engine` is empty unless an order of it may have arrived. */
export interface OrderedJob extends EnginePlace {
  /** A UUID. */
  readonly id: string;
  readonly modelId: string;
  readonly attempts: number;
  readonly request: Readonly<Record<string, unknown>>;
}

/** A file of media. */
export interface EngineInput {
  /** The field that it came in. */
  readonly role: string;
  readonly path: string;
  readonly mimeType: string;
}

export interface EngineOrder {
  readonly job: OrderedJob;
  readonly inputs: readonly EngineInput[];
  /**
   * Called before anything goes to an engine, with the place it will go to. `false`: the job is
   * somebody else's by now, and nothing may be sent.
   */
  readonly beforeOrder: (place: EnginePlace) => Promise<boolean>;
}

/**
 * - `policy`: it calls the content unfit
 * - `request`: it does not take the prompt or the options
 * - `media`: it cannot read what was given
 * - `engine`: it cannot make videos, whatever is asked of it
 */
type Objection = 'policy' | 'request' | 'media' | 'engine';

/** An answer of which `detail` is for the log only: it holds the words of an engine. */
type Told<Kind extends string, More = object> = {
  readonly kind: Kind;
  readonly detail: string;
} & Readonly<More>;

/** It answers that it has no time now. */
type Busy = Told<'busy', { retryAfterMs: number | undefined }>;
/** It does not answer, or not in its protocol. */
type Away = Told<'away'>;
export type EngineDelay = Busy | Away;

type Created = { readonly kind: 'created' } & EngineRef;
/** Nothing is being made, and asking again does not help. */
type Refused = Told<'refused', { objection: Objection }>;

/**
 * - `unclear`: it may be making the video, and the answer is lost
 * - `not-ours`: `beforeOrder` said no
 */
export type CreateResult =
  | Created
  | Refused
  | Told<'unclear'>
  | { readonly kind: 'not-ours' }
  | EngineDelay;

/** `unknown`: no engine shows it; those that keep no list say so too. */
export type FindResult = Created | { readonly kind: 'unknown' } | Away;

/** `lost`: the engine does not know the job (any more). */
export type PollResult =
  | { readonly kind: 'running'; readonly fraction: number }
  | { readonly kind: 'done' | 'lost' }
  | Told<'failed', { objection: Objection }>
  | EngineDelay;

export type DownloadResult =
  | { readonly kind: 'done' | 'lost' }
  | { readonly kind: 'too-large'; readonly detail: string }
  | EngineDelay;

export interface DownloadOptions {
  /** Whether a film of this size may be kept; asked with each piece of it. */
  readonly hasRoom: (sizeBytes: number) => boolean;
  readonly signal: AbortSignal;
}

/** What makes videos. None of these throws for what an engine does; a throw is a bug or an abort. */
export type VideoEngines = Pick<VideosClient, 'create' | 'find' | 'poll' | 'download' | 'remove'>;

const CreatedBody = z.object({ id: z.string().min(1).max(500) });
const ErrorWords = z.object({
  message: z.string().nullish().catch(null),
  code: z.coerce.string().nullish().catch(null),
  type: z.string().nullish().catch(null),
});
const Polled = z.object({
  status: z.string().transform((status) => status.trim().toLowerCase()),
  progress: z.number().nullish().catch(null),
  error: z
    .string()
    .transform((message) => ({ message, code: null, type: null }))
    .or(ErrorWords)
    .nullish()
    .catch(null),
});
/** Both shapes of error bodies: `{error: {message}}` and `{error, code}`. */
const ErrorBody = z.object({
  error: z.union([z.string(), ErrorWords]),
  code: z.string().nullish(),
});
/** Engines that show the key of an order do it in its metadata, or beside its id. */
const Listed = z.object({
  data: z.array(
    z.looseObject({
      id: z.string().min(1).max(500),
      idempotency_key: z.string().nullish(),
      metadata: z.looseObject({ idempotency_key: z.string().nullish() }).nullish(),
    }),
  ),
});

const MAX_ANSWER_BYTES = 1_000_000;
const MAX_LIST_BYTES = 4_000_000;
/** No film is larger, whatever room there is. */
const MAX_VIDEO_BYTES = 2_000_000_000;
/**
 * Of a question that costs an engine nothing: one that hangs must not keep the worker, which has a few
 * steps at once for the jobs of all engines, nor a caller who cancels.
 */
const QUESTION_LIMITS = { firstByteMs: 30_000, idleMs: 30_000, totalMs: 60_000 };
const MAX_DETAIL_CHARACTERS = 500;
const POLICY = /policy|moderat|safety|content_filter|nsfw/i;
/** Codes of our own engine and of others. */
const MEDIA = /^(?:(?:INVALID|UNSUPPORTED)_(?:VIDEO|AUDIO|IMAGE|MEDIA)|CORRUPTED_|IMAGE_TOO_)/i;
const REQUEST = /invalid|bad_request|unsupported|unprocessable/i;
/** The protocol's own names for the media that it knows. */
const FILE_FIELDS: Readonly<Record<string, string>> = {
  image_url: 'input_reference',
  video_url: 'input_video',
  audio_url: 'input_audio',
};
/** Statuses in the spellings of OpenAI and of other servers, in lower case. */
const DONE = new Set(['completed', 'complete', 'succeeded', 'success', 'done', 'finished']);
const ENDED = new Set(
  (
    'failed failure error errored cancelled canceled aborted expired ' +
    'timeout timed_out rejected refused moderated content_moderated deleted'
  ).split(' '),
);
const RUNNING = new Set(
  (
    'queued in_queue pending waiting scheduled accepted created submitted starting ' +
    'started preparing in_progress running processing generating rendering encoding uploading'
  ).split(' '),
);
/** The newest orders of an engine, when one of them is looked for. */
const LISTED = 100;

function away(detail: string): Away {
  return { kind: 'away', detail: detail.slice(0, MAX_DETAIL_CHARACTERS) };
}

function detailOf(failure: EngineFailure): string {
  const words = failure.body === null ? '' : ` ${failure.body.toString('utf8')}`;
  return `${failure.reason}: ${failure.message}${words}`.slice(0, MAX_DETAIL_CHARACTERS);
}

/** Busy is a full queue, or who says when to come back. A 503 without that is a dead one's too. */
function notNow(failure: EngineFailure): EngineDelay {
  const { reason, status, retryAfterSeconds: seconds } = failure;
  const isBusy = reason === 'overloaded' && (status !== 503 || seconds !== null);
  if (!isBusy) return away(detailOf(failure));
  const retryAfterMs = seconds === null ? undefined : seconds * 1_000;
  return { kind: 'busy', retryAfterMs, detail: detailOf(failure) };
}

function isLost(failure: EngineFailure): boolean {
  return failure.status === 404 || failure.status === 410;
}

/** What became of an order that has no good answer. */
function failedOrder(failure: EngineFailure): CreateResult {
  const detail = detailOf(failure);
  if (!failure.wasSent || failure.reason === 'overloaded') return notNow(failure);
  // The engine did not wait for the whole request.
  if (failure.status === 408) return away(detail);
  if (failure.reason === 'misconfigured') return { kind: 'refused', objection: 'engine', detail };
  // 409: it is at work on an order with this key.
  if (failure.reason === 'refused' && failure.status !== 409) {
    return { kind: 'refused', objection: objectionOf(codesOf(failure.body), 'request'), detail };
  }
  return { kind: 'unclear', detail };
}

/** Empty for a body that is no error that we know: the status says enough. */
function codesOf(body: Buffer | null): string {
  const { error, code } = ErrorBody.safeParse(parsedJson(String(body))).data ?? {};
  if (error === undefined || typeof error === 'string') return code ?? '';
  return `${error.code ?? ''} ${error.type ?? ''}`;
}

function objectionOf(codes: string, otherwise: Objection): Objection {
  if (POLICY.test(codes)) return 'policy';
  if (codes.split(' ').some((code) => MEDIA.test(code))) return 'media';
  return REQUEST.test(codes) ? 'request' : otherwise;
}

/** Engines that know the header take a repeated order as the first one. */
function keyOf(job: OrderedJob): string {
  return `${job.id}-${job.attempts}`;
}

function fieldText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

async function formParts(model: string, { job, inputs }: EngineOrder): Promise<FormPart[]> {
  const files = inputs.map(async ({ role, path, mimeType }) => {
    const name = FILE_FIELDS[role] ?? role;
    const { size: sizeBytes } = await stat(path);
    return { name, file: { filename: name, contentType: mimeType }, data: { path, sizeBytes } };
  });
  return [
    { name: 'model', data: model },
    ...Object.entries(job.request).map(([name, value]) => ({ name, data: fieldText(value) })),
    ...(await Promise.all(files)),
  ];
}

export class VideosClient {
  readonly #engines: Engines;
  readonly #replicasOf: (modelId: string) => readonly Replica[];

  constructor(engines: Engines, replicasOf: (modelId: string) => readonly Replica[]) {
    this.#engines = engines;
    this.#replicasOf = replicasOf;
  }

  /**
   * Orders a video at one of the model's replicas. Another one is asked only when it is certain
   * that the one before it has ordered nothing.
   */
  async create(order: EngineOrder, signal: AbortSignal): Promise<CreateResult> {
    let best: CreateResult | undefined;
    for (const replica of this.#placesOf(order.job)) {
      const place = { engine: replica.engine, engineModel: replica.model };
      if (!(await order.beforeOrder(place))) return { kind: 'not-ours' };
      const answer = await this.#order(order, replica, signal);
      if (answer.kind === 'created' || answer.kind === 'unclear') return answer;
      if (answer.kind === 'refused' && answer.objection !== 'engine') return answer;
      if (best === undefined || worthOf(answer) >= worthOf(best)) best = answer;
      if (signal.aborted) break;
    }
    return best ?? away('The model has no engine');
  }

  async #order(order: EngineOrder, replica: Replica, signal: AbortSignal): Promise<CreateResult> {
    // Nobody who wrote a part knew the id of the job.
    const boundary = `farebox-${order.job.id}`;
    const body = multipartBody(boundary, await formParts(replica.model, order));
    const answer = await this.#engines.collect({
      ...callOf('POST', replica, '/videos', signal),
      contentType: `multipart/form-data; boundary=${boundary}`,
      buildBody: () => body,
      headers: ['idempotency-key', keyOf(order.job)],
      // A second try could make a second video; the job itself asks again.
      maxAttempts: 1,
    });
    if (!answer.ok) return failedOrder(answer);
    const said = parsedJson(String(answer.body));
    const created = CreatedBody.safeParse(said);
    if (created.success) return createdAt(answer.replica, created.data.id);
    if (typeof said === 'object' && said !== null) {
      return { kind: 'unclear', detail: 'no id in the answer' };
    }
    return { kind: 'refused', objection: 'engine', detail: 'the answer is not of the protocol' };
  }

  /** Looks for an order whose answer was lost, where it went or at every replica. */
  async find(job: OrderedJob, signal: AbortSignal): Promise<FindResult> {
    let silent: Away | undefined;
    for (const replica of this.#placesOf(job)) {
      const call = questionOf('GET', replica, `/videos?limit=${LISTED}&order=desc`, signal);
      const answer = await this.#engines.collect({ ...call, maxResponseBytes: MAX_LIST_BYTES });
      // Any answer but a list: it keeps none, or does not show it.
      if (!answer.ok && answer.status === null) silent = away(detailOf(answer));
      if (!answer.ok) continue;
      const key = keyOf(job);
      const listed = Listed.safeParse(parsedJson(String(answer.body))).data?.data ?? [];
      const found = listed.find(
        (one) => one.idempotency_key === key || one.metadata?.idempotency_key === key,
      );
      if (found !== undefined) return createdAt(replica, found.id);
    }
    return silent ?? { kind: 'unknown' };
  }

  /** The place of an order that may have arrived, else the replicas in the order to ask them. */
  #placesOf({ modelId, engine, engineModel }: OrderedJob): readonly Replica[] {
    if (engine !== '') return [{ engine, model: engineModel }];
    const replicas = this.#replicasOf(modelId);
    const states = this.#engines.replicaStatus(replicas);
    const ranked = replicas.map((replica) => {
      const { engine: id, model, weight = 1 } = replica;
      const state = states.find((one) => one.engine === id && one.model === model);
      return {
        replica,
        load: state?.isHealthy === true ? (state.inFlight + 1) / weight : Infinity,
      };
    });
    return ranked
      .toSorted((a, b) => (a.replica.order ?? 0) - (b.replica.order ?? 0) || byLoad(a.load, b.load))
      .map(({ replica }) => replica);
  }

  /** How far a job is. */
  async poll(ref: EngineRef, signal: AbortSignal): Promise<PollResult> {
    const answer = await this.#engines.collect(questionOf('GET', ...placeOf(ref), signal));
    if (!answer.ok) return isLost(answer) ? { kind: 'lost' } : notNow(answer);
    const polled = Polled.safeParse(parsedJson(String(answer.body)));
    if (!polled.success) return away('no status in the answer');
    const { status, progress, error } = polled.data;
    if (DONE.has(status)) return { kind: 'done' };
    // A status that nobody knows counts as no answer, unless the engine names an error beside it.
    const isUnknown = !RUNNING.has(status) && !ENDED.has(status);
    const hasError = Boolean(error?.message ?? error?.code);
    if (isUnknown && !hasError) return away(`the status "${status}" is not known`);
    if (ENDED.has(status) || isUnknown) {
      const objection = objectionOf(`${error?.code ?? ''} ${error?.type ?? ''}`, 'engine');
      const detail = `${status}: ${error?.code ?? ''} ${error?.message ?? ''}`;
      return { kind: 'failed', objection, detail: detail.slice(0, MAX_DETAIL_CHARACTERS) };
    }
    return { kind: 'running', fraction: Math.max(0, Math.min((progress ?? 0) / 100, 1)) };
  }

  /** Writes the video to `path`, while `hasRoom` says so of its size. */
  async download(ref: EngineRef, path: string, options: DownloadOptions): Promise<DownloadResult> {
    const { hasRoom, signal } = options;
    let sizeBytes = 0;
    let isTooLarge = false;
    const file = createWriteStream(path);
    const opened = once(file, 'open');
    let run: EngineRun | undefined;
    file.on('drain', () => run?.resume());
    await opened;
    run = this.#engines.run(
      {
        ...callOf('GET', ...placeOf(ref, '/content'), signal),
        maxResponseBytes: MAX_VIDEO_BYTES,
      },
      {
        // What the file is, its bytes say.
        onHead: () => undefined,
        onChunk: (chunk) => {
          sizeBytes += chunk.length;
          isTooLarge ||= !hasRoom(sizeBytes);
          if (isTooLarge) run?.abort();
          return !isTooLarge && file.write(chunk);
        },
      },
    );
    // A full disk ends the call; the error itself comes from `finished`.
    file.on('error', () => run?.abort());
    const outcome = await run.outcome;
    file.end();
    if (!file.closed) await once(file, 'close');
    if (file.errored !== null) throw file.errored;
    if (isTooLarge) return { kind: 'too-large', detail: `There is no room for ${sizeBytes} bytes` };
    if (outcome.ok) return { kind: 'done' };
    if (outcome.reason === 'too-large') return { kind: 'too-large', detail: detailOf(outcome) };
    return isLost(outcome) ? { kind: 'lost' } : notNow(outcome);
  }

  /** Lets the engine forget a job; that it does not answer is no matter. */
  async remove(ref: EngineRef): Promise<void> {
    await this.#engines.collect(questionOf('DELETE', ...placeOf(ref), undefined));
  }
}

function callOf(
  method: 'POST' | 'GET' | 'DELETE',
  replica: Replica,
  path: string,
  signal: AbortSignal | undefined,
) {
  const maxResponseBytes = MAX_ANSWER_BYTES;
  return { work: 'video' as const, replicas: [replica], method, path, maxResponseBytes, signal };
}

function questionOf(...call: Parameters<typeof callOf>) {
  return { ...callOf(...call), timeLimits: QUESTION_LIMITS };
}

/** Where a job is asked for. */
function placeOf(
  { engine, engineModel: model, engineJobId }: EngineRef,
  suffix = '',
): readonly [Replica, string] {
  return [{ engine, model }, `/videos/${encodeURIComponent(engineJobId)}${suffix}`];
}

function createdAt({ engine, model }: Replica, engineJobId: string): CreateResult & FindResult {
  return { kind: 'created', engine, engineModel: model, engineJobId };
}

/** One that may take it later says more than one that never will. */
const WORTH: Readonly<Record<string, number>> = { refused: 0, away: 1, busy: 2 };

function worthOf(answer: CreateResult): number {
  return WORTH[answer.kind] ?? 0;
}

/** `Infinity - Infinity` is no order. */
function byLoad(a: number, b: number): number {
  return a === b ? 0 : a - b;
}
